"""Formats numbers, names and times for people, the same way everywhere."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from fednode.reports.run_record import DeltaPrice, GroupPrice, NamedReason

LOOSER = "a looser bound, which does not count against the budget"
_NO_BREAK = "\N{NO-BREAK SPACE}"


def printable(text: str) -> str:
    """`text` with a mark in place of each character that does not print, such as control and direction marks."""
    return "".join(sign if sign.isprintable() or sign == _NO_BREAK else "\N{REPLACEMENT CHARACTER}" for sign in text)


def plain(text: str) -> str:
    """`text` with ordinary spaces in place of no-break ones, for a terminal."""
    return text.replace(_NO_BREAK, " ")


def number(value: float, digits: int = 4, *, zeros: bool = False) -> str:
    """`value` rounded to `digits` significant digits, with commas in thousands; 1e-5 for very small values.

    `zeros` keeps trailing zeros, so that the numbers of a column line up.
    """
    text = _written(value, digits, ROUND_HALF_EVEN)
    return text if zeros else _trimmed(text)


def bound(value: float, digits: int = 4, *, zeros: bool = False) -> str:
    """As `number`, but rounded up: a cost or an upper bound must not read as less."""
    text = _written(value, digits, ROUND_CEILING)
    return text if zeros else _trimmed(text)


def left(limit: float, spent: float) -> str:
    """`limit` less `bound(spent)`, rounded down, at least 0: the two as written never add up to more than `limit`."""
    rest = Decimal(repr(float(limit))) - Decimal(bound(spent).replace(",", ""))
    return _trimmed(_written(max(float(rest), 0.0), 4, ROUND_FLOOR))


def _written(value: float, digits: int, rounding: str) -> str:
    exact = Decimal(repr(float(value)))
    if exact == 0:
        return "0"
    exponent = exact.adjusted()
    if -4 < exponent < 12:
        return f"{exact.quantize(Decimal(1).scaleb(min(exponent - digits + 1, 0)), rounding):,f}"
    mantissa = exact.scaleb(-exponent).quantize(Decimal(1).scaleb(1 - digits), rounding)
    if mantissa.adjusted() > 0:
        # rounding made 10 of 9.9999
        return _written(float(f"{mantissa:f}e{exponent}"), digits, rounding)
    return f"{_trimmed(f'{mantissa:f}')}e{exponent}"


def _trimmed(text: str) -> str:
    if "e" in text:
        return text
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float) -> str:
    """A share from 0 to 1 as a percentage with one decimal."""
    return f"{100 * share:.1f}{_NO_BREAK}%"


def percent_bound(share: float) -> str:
    """A share from 0 to 1 as a percentage with one decimal, rounded up."""
    return f"{_trimmed(str((100 * Decimal(repr(float(share)))).quantize(Decimal('0.1'), ROUND_CEILING)))}{_NO_BREAK}%"


def size(count: float) -> str:
    """Bytes in the largest decimal unit of which there is at least 1."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.{2 if count < 10 * scale else 1}f}{_NO_BREAK}{unit}"
    return f"{count:.0f}{_NO_BREAK}B"


def duration(seconds: float) -> str:
    """Seconds, or minutes and seconds, or hours and minutes."""
    if seconds < 100:
        return f"{seconds:.1f}{_NO_BREAK}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 100:
        return f"{minutes}{_NO_BREAK}min {rest}{_NO_BREAK}s"
    return f"{minutes // 60}{_NO_BREAK}h {minutes % 60}{_NO_BREAK}min"


def moment(seconds: float) -> str:
    """A time in UTC, to the second."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def plural(count: int, noun: str) -> str:
    """A count with its noun: 1 round, 2 rounds."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def maybe(price: float | None) -> str:
    """An epsilon, rounded up, or that there is none."""
    return "no finite epsilon" if price is None else f"epsilon {bound(price)}"


def row(entry: DeltaPrice | GroupPrice) -> str:
    """One price with what it is for."""
    at = f"delta {number(entry.delta)}" if isinstance(entry, DeltaPrice) else str(entry.size)
    return f"{at}: {maybe(entry.epsilon)}"


def reasons(entries: Sequence[NamedReason]) -> str:
    """The names, each with its reason, separated by commas."""
    return ", ".join(f"{entry.name} ({entry.reason})" for entry in entries)
