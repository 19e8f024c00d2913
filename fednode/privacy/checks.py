"""Numbers that may enter the accounting: finite, of the right type, in range. NaN must never reach a comparison."""

import math


def whole(name: str, value: object, low: int, high: int) -> int:
    """`value`, a whole number in [low, high]; a bool, a float or a numpy number is refused with ValueError."""
    if type(value) is not int:
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{name} must lie between {low} and {high}, not {value}")
    return value


def real(name: str, value: object) -> float:
    """`value` as a finite float; NaN, an infinity, a bool or another type is refused with ValueError."""
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
    """`value` as a finite float above zero, or ValueError."""
    number = real(name, value)
    if number <= 0.0:
        raise ValueError(f"{name} must be above 0, not {value!r}")
    return number


def probability(name: str, value: object) -> float:
    """`value` as a float in (0, 1), or ValueError."""
    number = positive(name, value)
    if number >= 1.0:
        raise ValueError(f"{name} must be below 1, not {value!r}")
    return number


def words(name: str, value: object) -> str:
    """`value`, one line of text that is not blank, or ValueError."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError(f"{name} must be one line of text, not {value!r}")
    return value


def exact_keys(name: str, data: object, keys: frozenset[str]) -> dict[str, object]:
    """`data`, a mapping with exactly these keys, or ValueError that names the odd ones."""
    if not isinstance(data, dict):
        raise ValueError(f"{name} must be an object, not {type(data).__name__}")
    if data.keys() != keys:
        odd = ", ".join(sorted(map(str, data.keys() ^ keys)))
        raise ValueError(f"{name} lacks fields or has unknown ones: {odd}")
    return data
