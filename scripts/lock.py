"""Writes requirements.lock, what CI installs: `python -m scripts.lock` keeps every version, `--upgrade` takes new ones.

It asks the package index that pip is set up with, installs nothing, and runs on Linux x86_64 with Python 3.11, where
that index has PyTorch's CPU build.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
HEAD = """\
# What CI installs: version and SHA-256 of each wheel for Python 3.11 on Linux x86_64. Made by `make lock`.
# Elsewhere `make` takes the versions without the hashes (CONTRIBUTING.md).
"""
_LINE = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[\w.+]+) --hash=sha256:[0-9a-f]{64}")


def versions(text: str) -> dict[str, str]:
    """Return the version by name. Raises `ValueError` for a line that is not name, version and hash."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            parts = _LINE.fullmatch(line)
            if parts is None:
                raise ValueError(f"{line!r} is not NAME==VERSION --hash=sha256:HASH; write the file with make lock")
            found[parts["name"]] = parts["version"]
    return found


def locked(report: Mapping[str, Any]) -> str:
    """Return the lock file of pip's installation report. Raises `ValueError` for a package that is not a wheel."""
    lines = {}
    for item in report["install"]:
        name, version = item["metadata"]["name"], item["metadata"]["version"]
        if name == "fednode":
            continue
        if not item["download_info"]["url"].endswith(".whl"):
            raise ValueError(f"{name} {version} has no wheel for this machine; choose a version that has one")
        sha256 = item["download_info"]["archive_info"]["hashes"]["sha256"]
        lines[name.lower()] = f"{name}=={version} --hash=sha256:{sha256}"
    return HEAD + "".join(lines[name] + "\n" for name in sorted(lines))


def main() -> int:
    """Ask pip what it would install, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that pyproject.toml allows")
    upgrade = parser.parse_args().upgrade
    pinned = {} if upgrade or not LOCK.exists() else versions(LOCK.read_text(encoding="ascii"))
    with tempfile.TemporaryDirectory() as folder:
        pins, report = Path(folder) / "pins.txt", Path(folder) / "report.json"
        pins.write_text("".join(f"{name}=={version}\n" for name, version in pinned.items()), encoding="ascii")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--report", str(report), "--constraint", str(pins), "--editable", f"{ROOT}[dev]"]
        subprocess.run(command, check=True)
        text = locked(json.loads(report.read_text(encoding="utf-8")))
    LOCK.write_text(text, encoding="ascii")
    print(f"{LOCK.name}: {len(versions(text))} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
