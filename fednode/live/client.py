"""The client of the live view: find a run that is running, ask it, check what it answers."""

import socket
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from pydantic import BaseModel

from fednode.errors import ConfigError, DataError, PeerFault
from fednode.live import unix_socket
from fednode.live.messages import MOST_ANSWERED, MOST_ASKED, line, parsed, raise_refusal
from fednode.live.schema import (
    FetchAnswer,
    FoundValue,
    GetAnswer,
    KeysAnswer,
    KnobsAnswer,
    StatsAnswer,
    TuneAnswer,
    read_answer,
)
from fednode.live.server import SOCKET_NAME
from fednode.live.stats import StoreStats
from fednode.reasons import Reason

RUNS: Final = Path("runs")
_SECONDS: Final = 15.0
_FORM: Final = 1 << 16
"""Bytes that a value's file may have beyond its size, escapes in text counted."""

_Answer = TypeVar("_Answer", bound=BaseModel)


def live_runs(run: Path | None = None, runs: Path = RUNS) -> list[Path]:
    """The folders of runs that are running: `run` alone, or all under `runs`, the newest first; at least one.

    Raises `DataError`.
    """
    if run is not None:
        if not unix_socket.answers(run / SOCKET_NAME):
            raise DataError(f"no node is running in {run}; name the folder of a run that has not ended")
        return [run]
    found = sorted(runs.glob(f"*/{SOCKET_NAME}"), key=_age, reverse=True)
    running = [path.parent for path in found if unix_socket.answers(path)]
    if not running:
        raise DataError(f"no run under {runs} is running; name the folder of a run that has not ended")
    return running


def _age(path: Path) -> tuple[float, str]:
    try:
        return path.lstat().st_mtime, path.parent.name
    except OSError:
        return 0.0, path.parent.name


class LiveNode:
    """A connection to a running node. Raises the node's refusals, and `DataError` without a proper answer."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._rest = b""
        try:
            self._socket = unix_socket.connect(run / SOCKET_NAME, _SECONDS)
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
        answer = self._asked(StatsAnswer, "stats")
        return answer.run, answer.stores

    def found(self, key: str, store: str = "") -> list[FoundValue]:
        """The facts of what is under `key`, in each store that has it or in this one."""
        return self._asked(GetAnswer, "get", key=key, store=store).found

    def keys(self, prefix: str, limit: int, store: str = "") -> KeysAnswer:
        """Store and key of up to `limit` keys, and whether there are more."""
        return self._asked(KeysAnswer, "keys", prefix=prefix, limit=limit, store=store)

    def knobs(self) -> KnobsAnswer:
        """All that may be changed, and the stores where nothing may."""
        return self._asked(KnobsAnswer, "knobs")

    def tune(self, changes: Sequence[tuple[str, str, float]]) -> TuneAnswer:
        """Make these changes, all or none."""
        return self._asked(TuneAnswer, "tune", changes=changes)

    def fetch(self, found: FoundValue, key: str) -> bytes:
        """The file of a value that was found, whole and with the digest that was announced.

        It takes no more bytes than a value of the announced size can have.
        """
        data, whole = bytearray(), -1
        while len(data) != whole:
            answer = self._asked(
                FetchAnswer, "fetch", store=found.store, key=key, digest=found.digest, offset=len(data)
            )
            if whole < 0 and answer.bytes <= 6 * found.size + _FORM:
                whole = answer.bytes
            too_much = len(data) + len(answer.data) > whole
            if answer.bytes != whole or too_much or (not answer.data and len(data) < whole):
                raise DataError("the value does not have the size that the node announced; ask again")
            data += answer.data
        if sha256(data).hexdigest() != found.digest:
            raise DataError("the value does not have the digest that the node announced; ask again")
        return bytes(data)

    def _asked(self, kind: type[_Answer], do: str, **given: object) -> _Answer:
        try:
            return read_answer(kind, self.ask(do, **given))
        except PeerFault as fault:
            raise DataError(f"the node in {self._run} gave no proper answer: {fault.detail}") from fault

    def _line(self) -> bytes:
        parts, size = [self._rest], len(self._rest)
        while b"\n" not in parts[-1]:
            if size > MOST_ANSWERED:
                raise PeerFault(Reason.MALFORMED, "the answer has no end")
            received = self._socket.recv(1 << 16)
            if not received:
                raise PeerFault(Reason.MALFORMED, "it hung up")
            parts.append(received)
            size += len(received)
        answer, _, self._rest = b"".join(parts).partition(b"\n")
        return answer


def _reason(error: OSError | PeerFault) -> str:
    if isinstance(error, PeerFault):
        return error.detail
    return "it took too long" if isinstance(error, socket.timeout) else error.strerror or str(error)
