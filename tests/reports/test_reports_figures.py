"""Numbers for people: nearest where they describe, rounded up where they bound."""

from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fednode.reports.figures import (
    bound,
    duration,
    left,
    moment,
    number,
    percent,
    percent_bound,
    plural,
    printable,
    size,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (7.8744, "7.874"),
        (10_003.0, "10,003"),
        (1e-5, "1e-5"),
        (0.00123456, "0.001235"),
        (2.9e-39, "2.9e-39"),
        (-1.5, "-1.5"),
        (1e15, "1e15"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(7.874, "7.874"), (7.8740001, "7.875"), (9.9999, "10"), (1.0001e-5, "1.001e-5"), (0.0, "0")]
)
def test_bounds_go_up(value: float, text: str) -> None:
    assert bound(value) == text


near_tens = st.builds(lambda exponent, off: 10.0**exponent * (1 - off), st.integers(-290, 290), st.floats(0, 1e-3))


@settings(max_examples=300, deadline=None)
@given(st.floats(1e-300, 1e300) | near_tens, st.integers(2, 8))
@example(9.9996e-7, 4)
@example(9.99996e12, 4)
def test_one_digit_stands_before_the_point_of_a_power_of_ten(value: float, digits: int) -> None:
    for text in (number(value, digits), bound(value, digits), bound(value, digits, zeros=True)):
        mantissa, power, _ = text.partition("e")
        assert not power or 1 <= Decimal(mantissa) < 10, text


@settings(max_examples=300, deadline=None)
@given(st.floats(1e-300, 1e300), st.integers(2, 8))
def test_a_bound_is_never_below_and_never_far_above(value: float, digits: int) -> None:
    written = Decimal(bound(value, digits).replace(",", ""))
    exact = Decimal(repr(value))
    assert exact <= written <= exact * (1 + Decimal(10) ** (1 - digits))


def test_what_is_left_goes_down() -> None:
    assert (bound(6.6785), left(8.0, 6.6785)) == ("6.679", "1.321")
    assert (left(8.0, 8.0), left(8.0, 7.9999), left(8.0, 8.1), left(8.0, 0.0)) == ("0", "0", "0", "8")


@settings(max_examples=300, deadline=None)
@given(st.floats(0.001, 1000.0), st.floats(0.0, 1.0))
def test_spent_and_left_as_written_never_add_up_to_more(limit: float, share: float) -> None:
    spent = Decimal(bound(limit * share).replace(",", ""))
    rest = Decimal(left(limit, limit * share).replace(",", ""))
    assert rest == 0 or spent + rest <= Decimal(repr(limit)) * (1 + Decimal("1e-15"))


@pytest.mark.parametrize(
    ("share", "near", "up"),
    [(0.856, "85.6", "85.6"), (0.2361, "23.6", "23.7"), (0.01, "1.0", "1"), (1.0, "100.0", "100")],
)
def test_percentages(share: float, near: str, up: str) -> None:
    assert (percent(share), percent_bound(share)) == (f"{near}\N{NO-BREAK SPACE}%", f"{up}\N{NO-BREAK SPACE}%")


def test_sizes_times_and_counts() -> None:
    sizes = [size(count).replace("\N{NO-BREAK SPACE}", " ") for count in (0, 999, 1_000, 98_400, 1_871_034, 2.5e9)]
    assert sizes == ["0 B", "999 B", "1.00 kB", "98.4 kB", "1.87 MB", "2.50 GB"]
    times = [duration(seconds).replace("\N{NO-BREAK SPACE}", " ") for seconds in (2.41, 99.9, 125.0, 7_322.0)]
    assert times == ["2.4 s", "99.9 s", "2 min 5 s", "2 h 2 min"]
    assert (plural(1, "round"), plural(1_200, "round")) == ("1 round", "1,200 rounds")
    assert moment(1_700_000_000.9) == "2023-11-14 22:13:20 UTC"


def test_only_what_prints_is_printed() -> None:
    assert printable("grün 中 \N{NO-BREAK SPACE}") == "grün 中 \N{NO-BREAK SPACE}"
    assert printable("\x1b\u200b\u202e\ud800\x7f\n") == "\ufffd" * 6
