"""A key holder installs `fednode[holder]`: no torch, no scikit-learn, no matplotlib, and all of its work."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from kit.holder_work import FORBIDDEN

from scripts.lock import versions

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "tests" / "kit" / "holder_work.py"
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "fednode", "clients", "crypto", "experiments")


def work(python: str, folder: Path) -> str:
    """What the holder's work prints under this Python; fails where the work does."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [python, str(WORK), str(folder)], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_holder_needs_nothing_that_only_clients_and_the_node_need(tmp_path: Path) -> None:
    said = work(sys.executable, tmp_path)
    assert "['box-key', 'boxes', 'confirm', 'open', 'task']" in said


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_fresh_installation_for_a_holder(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        source.mkdir(exist_ok=True)
        copy(ROOT / name, source / name)
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    pins = tmp_path / "pins.txt"
    locked = versions((ROOT / "requirements.lock").read_text())
    pins.write_text("".join(f"{name}=={version}\n" for name, version in locked.items()))
    install = [python, "-m", "pip", "install", "-q", "-c", str(pins), ".[holder]"]
    subprocess.run(install, cwd=source, check=True)
    there = f"import importlib.util as u; print([n for n in {sorted(FORBIDDEN - {'fednode_study'})} if u.find_spec(n)])"
    found = subprocess.run([python, "-c", there], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"
    (tmp_path / "work").mkdir()
    assert "'open'" in work(python, tmp_path / "work")
    run = [str(tmp_path / "venv" / "bin" / "fednode"), "run", "--out", str(tmp_path / "run")]
    refused = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "fednode[run]" in refused.stderr
