"""Checks of numbers before they enter the accounting: finite, of the right type, in range. NaN is always refused."""

import math


def whole(name: str, value: object, low: int, high: int) -> int:
    """Return `value`, an int in [low, high]. ValueError for another number or type, also bool and numpy numbers."""
    if type(value) is not int:
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{name} must lie between {low} and {high}, not {value}")
    return value


def real(name: str, value: object) -> float:
    """Return `value` as a finite float. ValueError for NaN, infinity, a bool or another type."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, not {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, not {value!r}")
    return number


def positive(name: str, value: object) -> float:
    """Return `value` as a finite float above zero, or raise ValueError."""
    number = real(name, value)
    if number <= 0.0:
        raise ValueError(f"{name} must be above 0, not {value!r}")
    return number


def probability(name: str, value: object) -> float:
    """Return `value` as a float in (0, 1), or raise ValueError."""
    number = positive(name, value)
    if number >= 1.0:
        raise ValueError(f"{name} must be below 1, not {value!r}")
    return number


def words(name: str, value: object) -> str:
    """Return `value`, one line of text that is not blank, or raise ValueError."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError(f"{name} must be one line of text, not {value!r}")
    return value


def exact_keys(name: str, data: object, keys: frozenset[str]) -> dict[str, object]:
    """Return `data`, a mapping with exactly these keys, or raise ValueError with the missing and unknown ones."""
    if not isinstance(data, dict):
        raise ValueError(f"{name} must be an object, not {type(data).__name__}")
    if data.keys() != keys:
        odd = ", ".join(sorted(map(str, data.keys() ^ keys)))
        raise ValueError(f"{name} lacks fields or has unknown ones: {odd}")
    return data
