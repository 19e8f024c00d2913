"""Files as the house rules read them, and what a broken rule looks like."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SKIPPED = {".git", ".venv", ".hypothesis", "__pycache__", "build", "dist", "runs", "bench-results", "sbom.json"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: where, and what mends it."""

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

    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))


def text_files(root: Path) -> list[Path]:
    """Every file of the project that a person wrote, whatever its kind; binary files are left out."""
    return sorted(path for path in _walk(root) if b"\0" not in path.read_bytes()[:4096])


def python_files(root: Path) -> list[Source]:
    texts = {path: path.read_text(encoding="utf-8") for path in text_files(root) if path.suffix == ".py"}
    return [Source(path.relative_to(root), text, ast.parse(text, str(path))) for path, text in texts.items()]


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name in SKIPPED or path.name.endswith(("_cache", ".egg-info")):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        elif path.is_file():
            yield path


def dotted_name(node: ast.AST) -> str:
    """`pytest.raises` of the expression that spells it; an empty string for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted_name(node.value)
        return f"{head}.{node.attr}" if head else ""
    return ""
