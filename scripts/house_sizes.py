"""Limits of size: what does not fit into a head at once is split."""

import ast
from collections.abc import Iterator

from scripts.house_source import Finding, Function, Source

BODY_LINES = 50
FILE_LINES = 500
PARAMETERS = 5
EXEMPTION = "# noqa: PLR0913 - "


def short_bodies(sources: list[Source]) -> Iterator[Finding]:
    """A function body has at most 50 lines, its docstring apart."""
    for source in sources:
        for function in source.functions():
            length = body_length(function)
            if length > BODY_LINES:
                yield Finding(
                    source.path,
                    function.lineno,
                    f"{function.name} has a body of {length} lines, over {BODY_LINES}: split it",
                )


def body_length(function: Function) -> int:
    body = function.body
    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        body = body[1:]
    if not body:
        return 0
    return (body[-1].end_lineno or body[-1].lineno) - min(_first_line(body[0]), body[0].lineno) + 1


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min((decorator.lineno for decorator in decorators), default=node.lineno)


def short_files(sources: list[Source]) -> Iterator[Finding]:
    """A file has at most 500 lines."""
    for source in sources:
        length = len(source.text.splitlines())
        if length > FILE_LINES:
            yield Finding(source.path, FILE_LINES + 1, f"the file has {length} lines, over {FILE_LINES}: split it")


def few_parameters(sources: list[Source]) -> Iterator[Finding]:
    """A function takes at most five positional parameters, self and cls apart; tests take their fixtures.

    A signature that somebody else laid down is marked as ruff wants it marked: `# noqa: PLR0913 - why`.
    """
    for source in sources:
        if source.is_test:
            continue
        lines = source.text.splitlines()
        for function in source.functions():
            if EXEMPTION in lines[function.lineno - 1]:
                continue
            count = len([one for one in _positional(function) if one not in {"self", "cls"}])
            if count > PARAMETERS:
                yield Finding(
                    source.path,
                    function.lineno,
                    f"{function.name} takes {count} positional parameters, over {PARAMETERS}: pass one frozen value",
                )


def _positional(function: Function) -> list[str]:
    return [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
