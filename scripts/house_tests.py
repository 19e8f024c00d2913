"""Rules for tests: each asserts something, none sleeps."""

import ast
from collections.abc import Iterator

from scripts.house_source import Finding, Function, Source, dotted_name, imported_names

ASSERTING_CALLS = {"pytest.raises", "pytest.warns", "raises", "warns", "run_state_machine_as_test"}
ASSERTING_STEMS = ("check_", "must_", "verify_")
SLEEPS = {"time.sleep", "asyncio.sleep", "anyio.sleep"}


def every_test_asserts(sources: list[Source]) -> Iterator[Finding]:
    """Every test function has an assertion that can fail, an expected error, or a kit's check."""
    for source in sources:
        if not source.is_test:
            continue
        for function in source.functions():
            if function.name.startswith("test") and not _asserts(function):
                words = (
                    f"{function.name} asserts nothing: use assert, pytest.raises or a kit's check_*, must_*, verify_*"
                )
                yield Finding(source.path, function.lineno, words)


def _asserts(function: Function) -> bool:
    return any(_is_assertion(node) for node in ast.walk(function))


def _is_assertion(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return not isinstance(node.test, ast.Constant) and not _is_full_tuple(node.test)
    if isinstance(node, ast.Call):
        name = dotted_name(node.func)
        last = name.rpartition(".")[2]
        return name in ASSERTING_CALLS or last in ASSERTING_CALLS or last.startswith(ASSERTING_STEMS)
    return False


def _is_full_tuple(node: ast.expr) -> bool:
    # `assert (x, "message")` always holds
    return isinstance(node, ast.Tuple) and bool(node.elts)


def no_test_sleeps(sources: list[Source]) -> Iterator[Finding]:
    """No test waits for real time: it takes a FakeClock, an event or a bounded poll of its own."""
    for source in sources:
        if not source.is_test:
            continue
        for line, name in imported_names(source.tree):
            if name in SLEEPS:
                yield Finding(source.path, line, f"imports {name}: use kit.clocks.FakeClock")
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and dotted_name(node.func) in SLEEPS:
                yield Finding(source.path, node.lineno, f"calls {dotted_name(node.func)}: use kit.clocks.FakeClock")
