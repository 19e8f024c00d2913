"""What is installed is what was written here, pinned, and under names that nobody else has."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from setuptools import find_packages

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = {"fednode": ".", "fednode_clients": "clients", "fednode_crypto": "crypto", "fednode_study": "experiments"}


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(("name", "folder"), FOLDERS.items())
def test_each_package_comes_from_this_tree(name, folder):
    origin = importlib.util.find_spec(name).origin
    assert Path(origin).resolve() == (ROOT / folder / name / "__init__.py").resolve()


def test_an_installation_adds_four_names_and_no_other():
    table = PROJECT["tool"]["setuptools"]["packages"]["find"]
    found = {
        name.split(".")[0]
        for where in table["where"]
        for name in find_packages(str(ROOT / where), include=table["include"])
    }
    assert found == set(FOLDERS)


def test_every_package_says_that_it_is_typed():
    data = PROJECT["tool"]["setuptools"]["package-data"]
    for name, folder in FOLDERS.items():
        assert data[name][0] == "py.typed" and (ROOT / folder / name / "py.typed").exists()


def test_everything_that_is_asked_for_is_pinned():
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
    )
    pinned = {plain(name) for name in pins}
    extras = PROJECT["project"]["optional-dependencies"]
    asked = [*PROJECT["project"]["dependencies"], *(one for extra in extras.values() for one in extra)]
    assert {plain(re.match(r"[\w.-]+", one).group()) for one in asked} - pinned == {"fednode"}
    assert pins["torch"] == "2.13.0"
    assert [version for version in pins.values() if not re.fullmatch(r"[0-9][0-9a-z.]*", version)] == []


CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]


@pytest.mark.parametrize(
    "fault", ["from fednode.cli import main", "import torch", "import benchmarks", "import tenseal"]
)
def test_the_import_contracts_find_a_planted_breach(tmp_path, fault):
    """A small copy of the house, with one arrow that runs up."""
    for name in (*FOLDERS, "benchmarks", "fednode_crypto.hazmat", *layers()):
        write_module(tmp_path, name, "")
    write_module(tmp_path, "fednode.cli", "def main(): ...\n")
    # the imports that the contracts make an exception for have to be there
    for contract in CONTRACTS:
        for importer, imported in (line.split(" -> ") for line in contract.get("ignore_imports", ())):
            write_module(tmp_path, importer, f"import {imported}\n")
    assert lint_imports(tmp_path) == 0
    write_module(tmp_path, "fednode.cache", fault + "\n")
    assert lint_imports(tmp_path) == 1


def write_module(root, name, text):
    """Write a module as a package, below packages."""
    first, *rest = name.split(".")
    path = root / FOLDERS.get(first, ".") / first
    for part in ("", *rest):
        path = path / part
        path.mkdir(parents=True, exist_ok=True)
        (path / "__init__.py").touch()
    (path / "__init__.py").write_text(text)


def layers():
    rows = next(one for one in CONTRACTS if one["type"] == "layers")["layers"]
    return [name.strip(" ()") for row in rows for name in row.split("|")]


def lint_imports(folder):
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    code = (
        "import sys; sys.path[:0] = ['.', 'clients', 'crypto', 'experiments']; "
        "from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    )
    return subprocess.run([sys.executable, "-P", "-c", code], cwd=folder, capture_output=True, check=False).returncode
