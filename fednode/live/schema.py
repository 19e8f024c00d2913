"""What a node answered, held against what it may say before anything is shown or added up: nothing is taken on trust.

Each reader raises `PeerFault("malformed")`.
"""

import base64
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from fednode.errors import PeerFault
from fednode.reasons import Reason

MOST_COUNT: Final = 1 << 63
"""No number of bytes, entries or events is larger."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_SIDES: Final = 64


def is_count(value: object) -> bool:
    """Whether it is a whole number from 0 to `MOST_COUNT`; True is none."""
    return type(value) is int and 0 <= value <= MOST_COUNT


def is_number(value: object) -> bool:
    """Whether it is a number that a float can hold."""
    try:
        return type(value) in (int, float) and math.isfinite(float(value))  # type: ignore[arg-type]
    except OverflowError:
        return False


def found_in(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `get` found: one at least."""
    found = answer.get("found")
    if not isinstance(found, list) or not found or not all(map(_is_found, found)):
        raise PeerFault(Reason.MALFORMED, "what it says of a value is not what this version knows")
    return found


def keys_in(answer: Mapping[str, Any]) -> tuple[list[tuple[str, str]], bool]:
    """Store and key of each, and whether there are more."""
    rows, more = _rows(answer.get("keys"), (_is_text, _is_text)), answer.get("more")
    if type(more) is not bool:
        raise PeerFault(Reason.MALFORMED, "it does not say whether there are more keys")
    return [(store, key) for store, key in rows], more


def knobs_in(answer: Mapping[str, Any]) -> tuple[list[list[Any]], list[str]]:
    """Store, name, value, meaning and span of what may be changed; the stores where nothing may."""
    fixed = answer.get("fixed")
    if not isinstance(fixed, list) or not all(map(_is_text, fixed)):
        raise PeerFault(Reason.MALFORMED, "it does not say in which stores nothing can be changed")
    return _rows(answer.get("knobs"), (_is_text, _is_text, is_number, _is_text, _is_text)), fixed


def made_in(answer: Mapping[str, Any]) -> list[list[Any]]:
    """Store, name, old and new number of each change that was made."""
    return _rows(answer.get("made"), (_is_text, _is_text, is_number, is_number))


def piece_in(answer: Mapping[str, Any]) -> tuple[int, bytes]:
    """The bytes that the whole file has, and the next ones of it."""
    size, data = answer.get("bytes"), answer.get("data")
    try:
        piece = base64.b64decode(data, validate=True) if isinstance(data, str) else None
    except ValueError:
        piece = None
    if piece is None or not isinstance(size, int) or not is_count(size):
        raise PeerFault(Reason.MALFORMED, "it sent a value in a form that cannot be read")
    return size, piece


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_found(found: object) -> bool:
    if not isinstance(found, dict):
        return False
    texts = all(_is_text(found.get(name)) for name in ("store", "kind", "digest"))
    known = {"dtype", "shape", "ttl_left", "version"} <= found.keys()
    return (
        texts
        and known
        and bool(_DIGEST.fullmatch(found["digest"]))
        and type(found.get("sealed")) is bool
        and is_count(found.get("size"))
        and (found["dtype"] is None or _is_text(found["dtype"]))
        and (found["shape"] is None or _is_shape(found["shape"]))
        and (found["ttl_left"] is None or is_number(found["ttl_left"]))
        and (found["version"] is None or is_count(found["version"]))
    )


def _is_shape(shape: object) -> bool:
    return isinstance(shape, list) and len(shape) <= _SIDES and all(map(is_count, shape))


def _rows(found: object, columns: tuple[Any, ...]) -> list[list[Any]]:
    if not isinstance(found, list) or not all(isinstance(row, list) and len(row) == len(columns) for row in found):
        raise PeerFault(Reason.MALFORMED, "a table without its columns")
    if not all(fits(cell) for row in found for fits, cell in zip(columns, row, strict=True)):
        raise PeerFault(Reason.MALFORMED, "a table with cells that are none of its columns")
    return found
