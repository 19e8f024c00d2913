"""The wire of the live view: one JSON object a line, each of bounded size; refusals as answers."""

import json
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

_SENTENCE: Final = 2_000

_CAUSES: Final[Mapping[str, type[FednodeError]]] = {"config": ConfigError, "data": DataError, "store": StoreError}


def line(message: Mapping[str, Any]) -> bytes:
    """`message` as a line; whatever is not ASCII is escaped, lone surrogates too."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def parsed(data: bytes) -> dict[str, Any]:
    """The object in a line. Raises `PeerFault("malformed")`."""
    try:
        found = json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise PeerFault(Reason.MALFORMED, "the line is not JSON") from error
    if not isinstance(found, dict):
        raise PeerFault(Reason.MALFORMED, "the line is not a JSON object")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def refusal(error: Exception) -> dict[str, Any]:
    """The answer to a request that failed with `error`."""
    cause = next((name for name, kind in _CAUSES.items() if isinstance(error, kind)), "failed")
    if isinstance(error, FednodeError):
        return {"ok": False, "cause": cause, "error": str(error)[:_SENTENCE]}
    return {"ok": False, "cause": cause, "error": f"the node could not answer ({type(error).__name__})"}


def raise_refusal(answer: Mapping[str, Any]) -> None:
    """Raise the error that a refusal names. Raises `PeerFault("malformed")` for what is neither answer nor refusal."""
    if answer.get("ok") is True:
        return
    sentence = answer.get("error")
    if answer.get("ok") is not False or not isinstance(sentence, str):
        raise PeerFault(Reason.MALFORMED, "neither an answer nor a refusal")
    raise _CAUSES.get(str(answer.get("cause")), StoreError)(one_line(sentence, _SENTENCE))
