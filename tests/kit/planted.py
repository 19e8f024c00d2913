"""Small trees with a fault planted in them, for the checks that must find it."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from scripts.house_source import Source, python_files


def plant(root: Path, files: Mapping[str, str]) -> list[Source]:
    """Write every file under `root` and read the tree back as the house rules do."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return python_files(root)


def places(findings) -> list[tuple[str, int]]:
    return [(finding.path.as_posix(), finding.line) for finding in findings]
