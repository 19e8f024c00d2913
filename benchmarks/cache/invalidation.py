"""Row `invalidation`: the copies of 7 sharers, each a process behind a Unix socket, with acknowledgements.

Compared with one bare round trip: as many bytes out to all seven and as many back over the same sockets, which nobody
acts on; and with the same keys one by one.
"""

import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from benchmarks.cache.sharer import ECHO, PARCEL, REPLY, receive, send
from benchmarks.harness.windows import Side, in_turn, spreads_to_json
from fednode.cache.round_directory import Parcel, RoundDirectory, pack
from fednode.clock import Clock, SystemClock

BATCH: Final = "a batch of 64 keys"
ROUND_TRIP: Final = "one round trip with all"
ONE_BY_ONE: Final = "64 keys one by one"
SHARERS: Final = 7
KEYS: Final = 64
KNOWN: Final = 1_024
"""Keys that the directory knows and each sharer holds, a gigabyte in pieces of a megabyte; a batch writes 64."""

_LEASE: Final = 3_600.0


def work(batches: int) -> dict[str, Any]:
    """Answer the seconds that each side takes over `batches` windows, and the bytes of one message out and back.

    Raises RuntimeError where a sharer does not acknowledge what it was sent.
    """
    clock = SystemClock()
    with _sharers() as peers:
        node = _Node(clock, peers)
        sides = [
            Side(BATCH, node.batch, before=node.share),
            Side(ROUND_TRIP, node.round_trip, before=node.share),
            Side(ONE_BY_ONE, node.one_by_one, before=node.share),
        ]
        spreads = in_turn(clock, sides, batches)
    return {"spreads": spreads_to_json(spreads), "bytes_out": len(node.echo), "bytes_back": REPLY.size}


@contextmanager
def _sharers() -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        peers = []
        for _ in range(SHARERS):
            ours, theirs = socket.socketpair()
            stack.callback(_started(theirs).wait)
            peers.append(stack.enter_context(ours))
        yield peers


def _started(theirs: socket.socket) -> subprocess.Popen[bytes]:
    with theirs:
        return subprocess.Popen(  # noqa: S603 # nosec B603 # (our own interpreter and program)
            [sys.executable, "-m", "benchmarks.cache.sharer", str(theirs.fileno())], pass_fds=[theirs.fileno()]
        )


class _Node:
    """The writer: every key is shared by all at the start of each window."""

    def __init__(self, clock: Clock, peers: Sequence[socket.socket]) -> None:
        self._clock = clock
        self._peers = {f"sharer-{number}": peer for number, peer in enumerate(peers)}
        keys = tuple(f"chunk-{number}" for number in range(KNOWN))
        self._directory = RoundDirectory.of(keys, _LEASE)
        written = keys[KNOWN // 2 : KNOWN // 2 + KEYS]
        self._written = self._directory.bits(written)
        self._each = [self._directory.bits([key]) for key in written]
        self.echo = ECHO + pack(Parcel(1, self._written, 0, 0))
        self.share()

    def share(self) -> None:
        """Bring all sharers up to date with everything."""
        self._deliver(None)

    def batch(self) -> None:
        """Write 64 keys and have every copy of them dropped."""
        self._write(self._written)

    def one_by_one(self) -> None:
        """Write the same keys, each once the one before is dropped everywhere."""
        for key in self._each:
            self._write(key)

    def round_trip(self) -> None:
        """Send the bytes of a batch to all, and wait for as many answers."""
        for peer in self._peers.values():
            send(peer, self.echo)
        for peer in self._peers.values():
            if len(receive(peer)) != REPLY.size:
                raise RuntimeError("a sharer did not answer an echo: its process has ended")

    def _write(self, keys: int) -> None:
        self._directory, news = self._directory.write(keys)
        if len(news) != SHARERS:
            raise RuntimeError(f"{len(news)} sharers hold what {SHARERS} should: the row measures nothing")
        self._deliver(0)
        if self._directory.waiting():
            raise RuntimeError("copies are left after all sharers have acknowledged")

    def _deliver(self, keys: int | None) -> None:
        self._directory, parcels = self._directory.offer(self._peers, self._clock.now(), keys)
        for name, parcel in parcels.items():
            send(self._peers[name], PARCEL + pack(parcel))
        replies = {}
        for name, peer in self._peers.items():
            data = receive(peer)
            if len(data) != REPLY.size:
                raise RuntimeError(f"{name} did not answer a parcel: its process has ended")
            replies[name] = REPLY.unpack(data)[1]
        self._directory = self._directory.acknowledge(replies, self._clock.now())
