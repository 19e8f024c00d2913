"""Who may import what, beyond the layers that import-linter holds; and what an installation may put on the path."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from scripts.house_source import PACKAGES, Finding, Source, dotted_name, imported_names

FILES_ALLOWED = {"flwr": 6, "tenseal": 1, "opacus": 1}
ONE_DOOR = {"redis": Path("fednode/cache/redis/client.py")}
CLOCK_FILE = Path("fednode/clock.py")
CLOCKS = {"time.time", "time.monotonic", "time.perf_counter", "time.sleep", "datetime.datetime.now", "datetime.now"}
GLOBAL_RANDOM_OK = {
    "Random",
    "SystemRandom",
    "default_rng",
    "Generator",
    "SeedSequence",
    "PCG64",
    "Philox",
    "BitGenerator",
}


def narrow_doors(sources: list[Source]) -> Iterator[Finding]:
    """Flower is imported in at most six shipped files, TenSEAL and Opacus in one each."""
    for package, allowed in FILES_ALLOWED.items():
        users = {
            source.path: line for source in sources if source.is_shipped for line in _lines_importing(source, package)
        }
        if len(users) > allowed:
            names = ", ".join(str(path) for path in users)
            first = next(iter(users))
            yield Finding(first, users[first], f"{package} is imported in {len(users)} files, over {allowed}: {names}")


def one_door(sources: list[Source]) -> Iterator[Finding]:
    """A package with one door is imported there by the product and nowhere else."""
    for package, door in ONE_DOOR.items():
        for source in sources:
            if source.is_shipped and source.path != door:
                for line in _lines_importing(source, package):
                    yield Finding(source.path, line, f"{package} is imported in {door} alone: use what that gives")


def _lines_importing(source: Source, package: str) -> list[int]:
    return [line for line, name in imported_names(source.tree) if name.split(".")[0] == package]


def clocks_are_arguments(sources: list[Source]) -> Iterator[Finding]:
    """Shipped code reads the time from a Clock that it was given; only clock.py reads the machine's."""
    for source in sources:
        if not source.is_shipped or source.path == CLOCK_FILE:
            continue
        called = [(node.lineno, dotted_name(node.func)) for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
        for line, name in (*called, *imported_names(source.tree)):
            if name in CLOCKS and name != "datetime.datetime":
                yield Finding(source.path, line, f"uses {name}: take a fednode.clock.Clock")


def randomness_is_an_argument(sources: list[Source]) -> Iterator[Finding]:
    """Shipped code draws from a generator that it was given, never from the global ones."""
    for source in sources:
        if not source.is_shipped:
            continue
        called = [(node.lineno, dotted_name(node.func)) for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
        for line, name in (*called, *imported_names(source.tree)):
            module, _, function = name.rpartition(".")
            if module in {"random", "np.random", "numpy.random"} and function not in GLOBAL_RANDOM_OK:
                yield Finding(source.path, line, f"{name} draws from the global generator: take an Rng")


def unique_import_names(root: Path) -> Iterator[Finding]:
    """An installation adds fednode, fednode_clients, fednode_crypto and fednode_study, and no other importable name.

    PyPI has packages that install exactly `clients` and `crypto`: one of them would silently take ours over.
    """
    for folder in ("clients", "crypto", "tests", "experiments", "scripts"):
        marker = root / folder / "__init__.py"
        if marker.exists():
            yield Finding(marker.relative_to(root), 1, f"makes `{folder}` importable as a package: delete it")
    tables = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    wanted = {name: place.joinpath(name).as_posix().removeprefix("./") for name, place in PACKAGES.items()}
    wanted["fednode"] = "fednode"
    if tables.get("package-dir") != wanted:
        yield Finding(Path("pyproject.toml"), 1, f"tool.setuptools.package-dir is not {wanted}")
    if tables["packages"]["find"].get("include") != ["fednode*"]:
        yield Finding(Path("pyproject.toml"), 1, "tool.setuptools.packages.find.include is not ['fednode*']")
