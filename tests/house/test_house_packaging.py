"""What is installed is what was written here, pinned, and under names that nobody else has."""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from setuptools import find_packages

from scripts.lock import locked, versions

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
    pins = versions((ROOT / "requirements.lock").read_text())
    pinned = {plain(name) for name in pins}
    extras = PROJECT["project"]["optional-dependencies"]
    asked = [*PROJECT["project"]["dependencies"], *(one for extra in extras.values() for one in extra)]
    assert {plain(re.match(r"[\w.-]+", one).group()) for one in asked} - pinned == {"fednode"}
    assert pins["torch"] == "2.13.0+cpu"


HASH = "ab" * 32


def report_of(name="x-Y", version="1.2", url="a/x_y-1.2-py3-none-any.whl"):
    item = {"metadata": {"name": name, "version": version}, "download_info": {"url": url}}
    item["download_info"]["archive_info"] = {"hashes": {"sha256": HASH}}
    return item


def test_the_lock_lists_versions_and_hashes_of_wheels():
    own = {"metadata": {"name": "fednode", "version": "0"}, "download_info": {"url": "file:///x"}}
    text = locked({"install": [report_of(), own, report_of("B", "2.0+cpu")]})
    assert text.splitlines()[2:] == [f"B==2.0+cpu --hash=sha256:{HASH}", f"x-Y==1.2 --hash=sha256:{HASH}"]
    assert versions(text) == {"B": "2.0+cpu", "x-Y": "1.2"}
    with pytest.raises(ValueError):
        locked({"install": [report_of(url="a/x-1.2.tar.gz")]})


@pytest.mark.parametrize("line", ["x==1", "x>=1 --hash=sha256:" + HASH, f"x==1 --hash=md5:{HASH}", "x @ file:///y"])
def test_a_line_without_version_and_hash_is_no_lock(line):
    with pytest.raises(ValueError):
        versions(line)


@pytest.mark.thorough
def test_the_list_of_what_is_installed_is_cyclonedx(tmp_path):
    pytest.importorskip("cyclonedx_py")
    made = tmp_path / "sbom.json"
    options = ["--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", "--of", "JSON", "-o", str(made)]
    subprocess.run([sys.executable, "-m", "cyclonedx_py", "environment", *options, sys.executable], check=True)
    listed = json.loads(made.read_text())
    assert listed["bomFormat"] == "CycloneDX" and listed["metadata"]["component"]["name"] == "fednode"
    purls = {one.get("purl") for one in listed["components"]}
    assert f"pkg:pypi/numpy@{version('numpy')}" in purls and f"pkg:pypi/cryptography@{version('cryptography')}" in purls


CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]


@pytest.mark.parametrize(
    "fault", ["from fednode.cli import main", "import torch", "import benchmarks", "import tenseal"]
)
def test_the_import_contracts_find_a_planted_breach(tmp_path, fault):
    """A small copy of the house, with one arrow that runs up."""
    for name in (*FOLDERS, "benchmarks", "fednode_crypto.hazmat", *layers(), *forbidden()):
        write_module(tmp_path, name, "")
    write_module(tmp_path, "fednode.cli", "def main(): ...\n")
    # the imports that the contracts make an exception for have to be there
    for contract in CONTRACTS:
        for importer, imported in (line.split(" -> ") for line in contract.get("ignore_imports", ())):
            write_module(tmp_path, importer, f"import {imported}\n")
    assert lint_imports(tmp_path) == 0
    write_module(tmp_path, "fednode.cache", fault + "\n")
    assert lint_imports(tmp_path) == 1


@pytest.mark.parametrize(("part", "broken"), [("accountant", 0), ("mechanism", 0), ("ledger", 1), ("calibrate", 1)])
def test_clients_may_import_the_accountant_and_not_the_ledger(tmp_path, part, broken):
    for name in (*FOLDERS, "benchmarks", "fednode_crypto.hazmat", *layers(), *forbidden()):
        write_module(tmp_path, name, "")
    for contract in CONTRACTS:
        for importer, imported in (line.split(" -> ") for line in contract.get("ignore_imports", ())):
            write_module(tmp_path, importer, f"import {imported}\n")
    write_module(tmp_path, f"fednode.privacy.{part}", "")
    write_module(tmp_path, "fednode_clients.client", f"import fednode.privacy.{part}\n")
    assert lint_imports(tmp_path) == broken


def forbidden():
    named = {name for one in CONTRACTS for name in one.get("forbidden_modules", ())}
    return sorted(name for name in named if name.startswith("fednode."))


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
