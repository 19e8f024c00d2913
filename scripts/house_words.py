"""Words that do not belong into the project: somebody's machine, a registry's host, a promise to do it later."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from scripts.house_source import Finding, Source, text_files

# written in two halves, so that this file does not hold what it forbids
_HOSTS = tuple(
    rf"{name}\.{end}"
    for name, end in (
        ("pypi", "org"),
        ("python" + "hosted", "org"),
        ("npm" + "js", "(?:org|com)"),
        ("golang", "org"),
        ("crates", "io"),
        ("debian", "org"),
    )
)
FORBIDDEN = (
    (re.compile(r"(?<![\w.~$})-])/(?:home|root|tmp|work|Users)(?:/\w|\b(?![/\w.]))"), "the path of somebody's machine"),
    (re.compile(r"\b(?:" + "|".join(_HOSTS) + r")\b"), "the host of a package registry"),
)
LATER = re.compile(r"\b(?:TODO|FIXME|XXX)\b|raise NotImplementedError")
OWN = {Path("scripts/house_words.py"), Path("tests/house/test_house_words.py")}
EMPTY_NAMES = ("Manager", "Helper", "Helpers", "Util", "Utils", "Base", "Impl")


def no_forbidden_words(root: Path) -> Iterator[Finding]:
    """No file names a path of somebody's machine or the host of a package registry."""
    for path in text_files(root):
        place = path.relative_to(root)
        if place in OWN:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            for pattern, what in FORBIDDEN:
                found = pattern.search(line)
                if found:
                    yield Finding(place, number, f"{found.group()!r} is {what}")


def nothing_for_later(sources: list[Source]) -> Iterator[Finding]:
    """What is in the tree is done: no notes to oneself, no functions that only promise."""
    for source in sources:
        if source.path in OWN:
            continue
        for number, line in enumerate(source.text.splitlines(), start=1):
            found = LATER.search(line)
            if found:
                yield Finding(source.path, number, f"{found.group()!r} promises something: do it, or file an issue")


def names_say_something(sources: list[Source]) -> Iterator[Finding]:
    """No class is called a manager, a helper, a util, a base or an impl."""
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef) and node.name.endswith(EMPTY_NAMES):
                yield Finding(
                    source.path, node.lineno, f"class {node.name}: the last word says nothing, name what it does"
                )
