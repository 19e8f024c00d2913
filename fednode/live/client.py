"""The other end: find a run that is running, ask it, take nothing on trust."""

import socket
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from fednode.errors import ConfigError, DataError, PeerFault
from fednode.live import unix_socket as place
from fednode.live.messages import MOST_ANSWERED, MOST_ASKED, line, parsed, raise_refusal
from fednode.live.schema import found_in, keys_in, knobs_in, made_in, piece_in
from fednode.live.server import SOCKET_NAME
from fednode.live.stats import StoreStats
from fednode.reasons import Reason

RUNS: Final = Path("runs")
_SECONDS: Final = 15.0
_FORM: Final = 1 << 16
"""Bytes that a value's file may have beyond what escapes in text make of it."""

_Read = TypeVar("_Read")


def live_runs(run: Path | None = None, runs: Path = RUNS) -> list[Path]:
    """The folders of runs that are running: `run` alone, or all under `runs`, the newest first; at least one.

    Raises `DataError`.
    """
    if run is not None:
        if not place.answers(run / SOCKET_NAME):
            raise DataError(f"no node is running in {run}; name the folder of a run that has not ended")
        return [run]
    found = sorted(runs.glob(f"*/{SOCKET_NAME}"), key=_age, reverse=True)
    running = [path.parent for path in found if place.answers(path)]
    if not running:
        raise DataError(f"no run under {runs} is running; name the folder of a run that has not ended")
    return running


def _age(path: Path) -> tuple[float, str]:
    try:
        return path.lstat().st_mtime, path.parent.name
    except OSError:
        return 0.0, path.parent.name


class LiveNode:
    """A connection to a running node. Raises what the node refuses with, `DataError` where it is gone or talks
    nonsense."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._rest = b""
        try:
            self._socket = place.connect(run / SOCKET_NAME, _SECONDS)
        except OSError as error:
            raise DataError(f"no node answers in {run}: {error.strerror or error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, do: str, **given: object) -> dict[str, Any]:
        """The answer to one request, without its `ok`."""
        request = line({"do": do, **given})
        if len(request) > MOST_ASKED:
            raise ConfigError(f"a request has at most {MOST_ASKED} bytes, this one {len(request)}: give a shorter key")
        try:
            self._socket.sendall(request)
            answer = parsed(self._line())
            raise_refusal(answer)
        except (OSError, PeerFault) as error:
            raise DataError(f"the node in {self._run} gave no proper answer: {_reason(error)}") from error
        return answer

    def stats(self) -> tuple[str, dict[str, StoreStats]]:
        """The run's id, and the numbers of each store."""
        return self._read(_stats_in, self.ask("stats"))

    def found(self, key: str, store: str = "") -> list[dict[str, Any]]:
        """What is under `key` in each store that has it, or in this one: its facts, each of them checked."""
        return self._read(found_in, self.ask("get", key=key, store=store))

    def keys(self, prefix: str, limit: int, store: str = "") -> tuple[list[tuple[str, str]], bool]:
        """Store and key of up to `limit` keys, and whether there are more."""
        return self._read(keys_in, self.ask("keys", prefix=prefix, limit=limit, store=store))

    def knobs(self) -> tuple[list[list[Any]], list[str]]:
        """Store, name, value, meaning and span of all that may be changed, and the stores where nothing may."""
        return self._read(knobs_in, self.ask("knobs"))

    def tune(self, changes: Sequence[tuple[str, str, float]]) -> list[list[Any]]:
        """Make these changes, all or none: store, name, old and new number of each."""
        return self._read(made_in, self.ask("tune", changes=changes))

    def fetch(self, found: Mapping[str, Any], key: str) -> bytes:
        """The file of a value that `found` told of, whole and with the digest it was said to have.

        No more is taken than a value of the size that was told can come to.
        """
        data, whole = bytearray(), -1
        while len(data) != whole:
            answer = self.ask("fetch", store=found["store"], key=key, digest=found["digest"], offset=len(data))
            size, piece = self._read(piece_in, answer)
            if whole < 0 and size <= 6 * found["size"] + _FORM:
                whole = size
            if size != whole or len(data) + len(piece) > whole or (not piece and len(data) < whole):
                raise DataError("the value that comes is not of the size that the node told; ask again")
            data += piece
        if sha256(data).hexdigest() != found["digest"]:
            raise DataError("what arrived is not what the node said it would send; ask again")
        return bytes(data)

    def _read(self, reader: Callable[[Mapping[str, Any]], _Read], answer: Mapping[str, Any]) -> _Read:
        try:
            return reader(answer)
        except PeerFault as fault:
            raise DataError(f"the node in {self._run} gave no proper answer: {fault.detail}") from fault

    def _line(self) -> bytes:
        parts, size = [self._rest], len(self._rest)
        while b"\n" not in parts[-1]:
            if size > MOST_ANSWERED:
                raise PeerFault(Reason.MALFORMED, "an answer without an end")
            received = self._socket.recv(1 << 16)
            if not received:
                raise PeerFault(Reason.MALFORMED, "it hung up")
            parts.append(received)
            size += len(received)
        answer, _, self._rest = b"".join(parts).partition(b"\n")
        return answer


def _stats_in(answer: Mapping[str, Any]) -> tuple[str, dict[str, StoreStats]]:
    run, stores = answer.get("run"), answer.get("stores")
    if not isinstance(run, str) or not isinstance(stores, dict):
        raise PeerFault(Reason.MALFORMED, "numbers without a run or without stores")
    return run, {name: StoreStats.of(found) for name, found in stores.items()}


def _reason(error: OSError | PeerFault) -> str:
    if isinstance(error, PeerFault):
        return error.detail
    return "it took too long" if isinstance(error, socket.timeout) else error.strerror or str(error)
