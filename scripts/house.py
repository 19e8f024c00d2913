"""House rules that ruff, mypy and import-linter cannot state: run `python -m scripts.house` at the project's root."""

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.house_source import Finding, Source, dotted_name, python_files, text_files

FILE_LINES = 500
FOLDER_MODULES = 15
EMPTY_NAMES = ("Manager", "Helper", "Helpers", "Util", "Utils", "Base", "Impl")
ASSERTING_CALLS = {"raises", "warns", "run_state_machine_as_test"}
ASSERTING_STEMS = ("check_", "must_", "verify_")
PACKAGES = {
    "fednode": "fednode",
    "fednode_clients": "clients/fednode_clients",
    "fednode_crypto": "crypto/fednode_crypto",
    "fednode_study": "experiments/fednode_study",
}
# written in two halves, so that this file does not hold what it forbids
_HOSTS = ("py" + "pi.org", "python" + "hosted.org", "npm" + "js.org", "npm" + "js.com", "go" + "lang.org",
          "crates" + ".io", "de" + "bian.org")  # fmt: skip
FORBIDDEN = (
    (re.compile(r"(?<![\w.~$})-])/(?:home|root|tmp|work|Users)(?:/\w|\b(?![/\w.]))"), "the path of somebody's machine"),
    (re.compile(rf"\b(?:{'|'.join(map(re.escape, _HOSTS))})\b"), "the host of a package registry"),
)
OWN = {Path("scripts/house.py"), Path("tests/house/test_house_rules.py")}


def every_test_asserts(sources: list[Source]) -> Iterator[Finding]:
    """Every test function has an assertion that can fail, an expected error, or a kit's check."""
    for source in sources:
        for function in source.functions() if source.is_test else ():
            if function.name.startswith("test") and not any(map(_is_assertion, ast.walk(function))):
                words = (
                    f"{function.name} asserts nothing: use assert, pytest.raises or a kit's check_*, must_*, verify_*"
                )
                yield Finding(source.path, function.lineno, words)


def _is_assertion(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        # `assert (x, "message")` always holds
        always = isinstance(node.test, ast.Constant) or (isinstance(node.test, ast.Tuple) and bool(node.test.elts))
        return not always
    if isinstance(node, ast.Call):
        last = dotted_name(node.func).rpartition(".")[2]
        return last in ASSERTING_CALLS or last.startswith(ASSERTING_STEMS)
    return False


def files_of_tests_hold_tests(sources: list[Source]) -> Iterator[Finding]:
    """A file named test_*.py holds at least one test."""
    for source in sources:
        if source.is_test and source.path.name.startswith("test_"):
            tests = [function for function in source.functions() if function.name.startswith("test")]
            # Hypothesis makes a test of a state machine: `TestRound = RoundMachine.TestCase`
            machines = [node for node in ast.walk(source.tree) if dotted_name(node).endswith(".TestCase")]
            if not tests and not machines:
                yield Finding(source.path, 1, "the file holds no test: write one, or move the file to tests/kit")


def short_files(sources: list[Source]) -> Iterator[Finding]:
    """A file has at most 500 lines."""
    for source in sources:
        length = len(source.text.splitlines())
        if length > FILE_LINES:
            yield Finding(source.path, FILE_LINES + 1, f"the file has {length} lines, over {FILE_LINES}: split it")


def small_folders(sources: list[Source]) -> Iterator[Finding]:
    """A folder of the product holds at most 15 modules, its __init__.py apart."""
    modules = [source.path for source in sources if source.is_shipped and source.path.name != "__init__.py"]
    for folder, count in sorted(Counter(path.parent for path in modules).items()):
        if count > FOLDER_MODULES:
            yield Finding(folder, 1, f"the folder has {count} modules, over {FOLDER_MODULES}: give a topic its folder")


def names_say_something(sources: list[Source]) -> Iterator[Finding]:
    """No class is called a manager, a helper, a util, a base or an impl."""
    for source in sources:
        for node in source.classes():
            if node.name.endswith(EMPTY_NAMES):
                words = f"class {node.name}: the last word says nothing, name what it does"
                yield Finding(source.path, node.lineno, words)


def class_names_are_unique(sources: list[Source]) -> Iterator[Finding]:
    """No two public classes of the product share a name."""
    first: dict[str, Path] = {}
    for source in sources:
        for node in source.classes() if source.is_shipped else ():
            other = first.setdefault(node.name, source.path)
            if other != source.path and not node.name.startswith("_"):
                yield Finding(source.path, node.lineno, f"class {node.name} is also in {other}: rename one of them")


def no_forbidden_words(root: Path) -> Iterator[Finding]:
    """No file names a path of somebody's machine or the host of a package registry."""
    for path in text_files(root):
        place = path.relative_to(root)
        lines = [] if place in OWN else path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            for pattern, what in FORBIDDEN:
                found = pattern.search(line)
                if found:
                    yield Finding(place, number, f"{found.group()!r} is {what}")


def unique_import_names(root: Path) -> Iterator[Finding]:
    """An installation adds fednode, fednode_clients, fednode_crypto and fednode_study, and no other importable name.

    PyPI has packages that install exactly `clients` and `crypto`: one of them would silently take ours over.
    """
    for folder in ("clients", "crypto", "tests", "experiments", "scripts"):
        marker = root / folder / "__init__.py"
        if marker.exists():
            yield Finding(marker.relative_to(root), 1, f"makes `{folder}` importable as a package: delete it")
    tables = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    if tables.get("package-dir") != PACKAGES:
        yield Finding(Path("pyproject.toml"), 1, f"tool.setuptools.package-dir is not {PACKAGES}")
    if tables["packages"]["find"].get("include") != ["fednode*"]:
        yield Finding(Path("pyproject.toml"), 1, "tool.setuptools.packages.find.include is not ['fednode*']")


SOURCE_RULES: tuple[Callable[[list[Source]], Iterator[Finding]], ...] = (
    every_test_asserts,
    files_of_tests_hold_tests,
    short_files,
    small_folders,
    names_say_something,
    class_names_are_unique,
)
TREE_RULES: tuple[Callable[[Path], Iterator[Finding]], ...] = (no_forbidden_words, unique_import_names)


def find_all(root: Path) -> list[Finding]:
    """Every broken rule under `root`, in the order of the rules."""
    sources = python_files(root)
    found = [finding for rule in SOURCE_RULES for finding in rule(sources)]
    return found + [finding for rule in TREE_RULES for finding in rule(root)]


def main() -> int:
    """Print what is broken; 0 when nothing is."""
    try:
        findings = find_all(Path(__file__).resolve().parent.parent)
    except SyntaxError as error:
        print(f"{error.filename}:{error.lineno}: not Python {sys.version_info[0]}.{sys.version_info[1]}: {error.msg}")
        return 1
    for finding in findings:
        print(finding)
    if not findings:
        print(f"{len(SOURCE_RULES) + len(TREE_RULES)} house rules hold")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
