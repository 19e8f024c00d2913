"""What a run leaves behind: a JSON file, and plots beside it."""

import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from fednode.disk.atomic import write_whole
from fednode.errors import StoreError

PACKAGES: Final = ("fednode", "numpy", "numba", "cryptography", "flwr", "tenseal")


def machine() -> dict[str, Any]:
    """Return what a reader needs to compare runs: cores that may be used, and versions."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def date_of(seconds: float) -> str:
    """Return the day, UTC, as 2026-01-31."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def write_results(folder: Path, name: str, document: Mapping[str, Any], plot: str) -> tuple[Path, Path]:
    """Write `<name>.json` and `<name>.svg` into `folder`, whole or not at all; an older pair of that name is replaced.

    Raises StoreError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"could not make {folder}: {error.strerror or error}; choose another folder") from error
    paths = folder / f"{name}.json", folder / f"{name}.svg"
    write_whole(paths[0], (json.dumps(document, indent=1) + "\n").encode())
    write_whole(paths[1], plot.encode())
    return paths
