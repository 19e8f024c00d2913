"""House rules that no linter has: run `python -m scripts.house` at the root of the project."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts import house_imports, house_sizes, house_tests, house_words
from scripts.house_source import Finding, Source, python_files

SOURCE_RULES: tuple[Callable[[list[Source]], Iterator[Finding]], ...] = (
    house_tests.every_test_asserts,
    house_tests.no_test_sleeps,
    house_sizes.short_bodies,
    house_sizes.short_files,
    house_sizes.few_parameters,
    house_imports.narrow_doors,
    house_imports.one_door,
    house_imports.clocks_are_arguments,
    house_imports.randomness_is_an_argument,
    house_words.nothing_for_later,
    house_words.names_say_something,
)
TREE_RULES: tuple[Callable[[Path], Iterator[Finding]], ...] = (
    house_words.no_forbidden_words,
    house_imports.unique_import_names,
)


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
