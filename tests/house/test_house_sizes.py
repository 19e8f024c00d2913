"""The limits of size hold at the limit and find one more."""

import pytest
from kit.planted import places, plant

from scripts.house_sizes import few_parameters, short_bodies, short_files


def function_of(lines, docstring=0):
    words = ['    """Promise.'] + ["    more"] * (docstring - 2) + ['    """'] if docstring else []
    return "\n".join(["def f():", *words, *["    do()"] * lines]) + "\n"


@pytest.mark.parametrize(("lines", "docstring", "found"), [(50, 0, 0), (51, 0, 1), (50, 30, 0), (51, 30, 1)])
def test_a_body_has_at_most_fifty_lines_without_its_docstring(tmp_path, lines, docstring, found):
    sources = plant(tmp_path, {"fednode/x.py": function_of(lines, docstring)})
    assert len(list(short_bodies(sources))) == found


def test_a_decorated_inner_function_counts_from_its_decorator(tmp_path):
    inner = "def f():\n    @one\n" + "    @two\n" * 48 + "    def g():\n        do()\n"
    assert len(list(short_bodies(plant(tmp_path, {"fednode/x.py": inner})))) == 1


@pytest.mark.parametrize(("lines", "found"), [(500, []), (501, [("scripts/x.py", 501)])])
def test_a_file_has_at_most_five_hundred_lines(tmp_path, lines, found):
    assert places(short_files(plant(tmp_path, {"scripts/x.py": "x = 1\n" * lines}))) == found


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ("a, b, c, d, e", 0),
        ("a, b, c, d, e, f", 1),
        ("a, /, b, c, d, e, f", 1),
        ("self, a, b, c, d, e", 0),
        ("a, *, b, c, d, e, f", 0),
    ],
)
def test_at_most_five_positional_parameters(tmp_path, parameters, found):
    sources = plant(
        tmp_path,
        {"fednode/x.py": f"def f({parameters}):\n    do()\n", "tests/x.py": "def g(a, b, c, d, e, f):\n    do()\n"},
    )
    assert len(list(few_parameters(sources))) == found


def test_a_signature_that_is_somebody_elses_says_whose(tmp_path):
    text = "def f(  # noqa: PLR0913{}\n    a, b, c, d, e, f\n):\n    do()\n"
    sources = plant(
        tmp_path, {"fednode/x.py": text.format(" - the signature is theirs"), "fednode/y.py": text.format("")}
    )
    assert places(few_parameters(sources)) == [("fednode/y.py", 1)]
