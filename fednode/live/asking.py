"""The other end: find a run that is running, ask it, take nothing on trust."""

import base64
import socket
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

from fednode.errors import ConfigError, DataError, PeerFault
from fednode.live import place
from fednode.live.messages import MOST_ANSWERED, MOST_ASKED, line, parsed, raise_refusal
from fednode.live.serving import SOCKET_NAME
from fednode.live.stores import StoreStats

RUNS: Final = Path("runs")
_SECONDS: Final = 15.0


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
        answer = self.ask("stats")
        run, stores = answer.get("run"), answer.get("stores")
        try:
            if not isinstance(run, str) or not isinstance(stores, dict):
                raise PeerFault("malformed", "numbers without a run or without stores")
            return run, {name: StoreStats.of(found) for name, found in stores.items()}
        except PeerFault as fault:
            raise DataError(f"the node in {self._run} gave no proper answer: {fault.detail}") from fault

    def fetch(self, found: Mapping[str, Any], key: str) -> bytes:
        """The file of a value that `get` found, whole and with the digest it was said to have."""
        data, more = bytearray(), True
        while more:
            answer = self.ask("fetch", store=found["store"], key=key, digest=found["digest"], offset=len(data))
            piece = _piece(answer)
            data += piece
            more = bool(piece) and answer.get("bytes") != len(data)
        if sha256(data).hexdigest() != found["digest"]:
            raise DataError("what arrived is not what the node said it would send; ask again")
        return bytes(data)

    def _line(self) -> bytes:
        parts, size = [self._rest], len(self._rest)
        while b"\n" not in parts[-1]:
            if size > MOST_ANSWERED:
                raise PeerFault("malformed", "an answer without an end")
            received = self._socket.recv(1 << 16)
            if not received:
                raise PeerFault("malformed", "it hung up")
            parts.append(received)
            size += len(received)
        answer, _, self._rest = b"".join(parts).partition(b"\n")
        return answer


def _piece(answer: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(str(answer.get("data")), validate=True)
    except ValueError as error:
        raise DataError("the node sent a value in a form that cannot be read; ask again") from error


def _reason(error: OSError | PeerFault) -> str:
    if isinstance(error, PeerFault):
        return error.detail
    return "it took too long" if isinstance(error, socket.timeout) else error.strerror or str(error)
