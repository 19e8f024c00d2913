"""Requests and answers: one JSON object a line, each of bounded size."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from fednode.errors import ConfigError, DataError, FednodeError, PeerFault, StoreError, one_line
from fednode.reasons import Reason

MOST_ASKED: Final = 16 << 10
"""Bytes of a request, its newline included."""
MOST_ANSWERED: Final = 1 << 20
"""Bytes of an answer, its newline included."""
PIECE: Final = 256 << 10
"""Bytes of a value in one answer."""
MOST_KEYS: Final = 10_000
"""Keys in one answer; fewer where they are long."""

_WORDS: Final = 2_000

_CAUSES: Final[Mapping[str, type[FednodeError]]] = {"config": ConfigError, "data": DataError, "store": StoreError}


def line(message: Mapping[str, Any]) -> bytes:
    """`message` as a line; whatever is not ASCII is escaped, lone surrogates too."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def parsed(data: bytes) -> dict[str, Any]:
    """The object in a line. Raises `PeerFault("malformed")`."""
    try:
        found = json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise PeerFault(Reason.MALFORMED, "a line that is no JSON") from error
    if not isinstance(found, dict):
        raise PeerFault(Reason.MALFORMED, "a line that is no JSON object")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number here")


def refusal(error: Exception) -> dict[str, Any]:
    """The answer that says why there is none."""
    cause = next((name for name, kind in _CAUSES.items() if isinstance(error, kind)), "failed")
    if isinstance(error, FednodeError):
        return {"ok": False, "cause": cause, "error": str(error)[:_WORDS]}
    return {"ok": False, "cause": cause, "error": f"the node could not answer ({type(error).__name__})"}


def raise_refusal(answer: Mapping[str, Any]) -> None:
    """Raise what an answer says went wrong, if it does. Raises `PeerFault("malformed")` for no answer at all."""
    if answer.get("ok") is True:
        return
    words = answer.get("error")
    if answer.get("ok") is not False or not isinstance(words, str):
        raise PeerFault(Reason.MALFORMED, "an answer that says neither yes nor no")
    raise _CAUSES.get(str(answer.get("cause")), StoreError)(one_line(words, _WORDS))


def text(request: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A string of a request. Raises `ConfigError`."""
    value = request.get(name, default)
    if not isinstance(value, str):
        raise ConfigError(f"the request needs {name}, as text")
    return value


def count(request: Mapping[str, Any], name: str, default: int) -> int:
    """A whole number of a request, 0 or above. Raises `ConfigError`."""
    value = request.get(name, default)
    if type(value) is not int or value < 0:
        raise ConfigError(f"the request needs {name}, as a whole number from 0")
    return value


def changes(request: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """The changes of a request: store, name, finite number. Raises `ConfigError`."""
    found = request.get("changes")
    if not isinstance(found, list) or not found or not all(isinstance(one, list) and len(one) == 3 for one in found):
        raise ConfigError("the request needs changes, each a store, a name and a number")
    return [(_named(store), _named(name), _finite(value)) for store, name, value in found]


def _named(found: object) -> str:
    if not isinstance(found, str) or not found:
        raise ConfigError("a change needs the names of a store and of what to change, as text")
    return found


def _finite(value: Any) -> float:
    try:
        found = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        found = math.nan
    if not math.isfinite(found):
        raise ConfigError("a change needs a finite number")
    return found
