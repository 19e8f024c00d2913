"""Python files as the house rules read them: path, text, tree; and what a broken rule looks like."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SKIPPED = {".git", ".venv", ".hypothesis", "__pycache__", "build", "dist", "runs"}
PACKAGES = {
    "fednode": Path("fednode"),
    "fednode_clients": Path("clients"),
    "fednode_crypto": Path("crypto"),
    "fednode_study": Path("experiments"),
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule, where it is broken and what would mend it."""

    path: Path
    line: int
    words: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.words}"


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file; `path` is relative to the root of the project."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def is_test(self) -> bool:
        return self.path.parts[0] == "tests"

    @property
    def is_shipped(self) -> bool:
        """Whether it is part of an installed package: the product, or the study that is installed with it."""
        return self.path.parts[0] in {"fednode", "clients", "crypto"} or self.path.parts[1:2] == ("fednode_study",)

    def functions(self) -> Iterator[Function]:
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))


def read_source(root: Path, path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    return Source(path.relative_to(root), text, ast.parse(text, str(path)))


def text_files(root: Path) -> list[Path]:
    """Every file of the project that a person wrote, whatever its kind; binary files are left out."""
    return sorted(path for path in _walk(root) if b"\0" not in path.read_bytes()[:4096])


def python_files(root: Path) -> list[Source]:
    return [read_source(root, path) for path in text_files(root) if path.suffix == ".py"]


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name in SKIPPED or path.name.endswith(("_cache", ".egg-info")):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        elif path.is_file():
            yield path


def dotted_name(node: ast.expr) -> str:
    """`time.sleep` of the expression that spells it, or an empty string for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted_name(node.value)
        return f"{head}.{node.attr}" if head else ""
    return ""


def imported_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything a file imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
