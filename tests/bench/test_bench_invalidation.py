"""The invalidation row over real sockets and processes: what it counts, and that it checks what it measures."""

import socket
import threading

import pytest

from benchmarks.cache import invalidation, limits
from benchmarks.cache.sharer import ECHO, PARCEL, REPLY, receive, send, serve
from benchmarks.harness.windows import Spread
from fednode.cache.coherence.round_directory import Parcel, pack


def test_the_row_answers_what_is_judged():
    answer = invalidation.work({"batches": 5})
    assert set(answer["spreads"]) == {limits.BATCH, limits.ROUND_TRIP, limits.ONE_BY_ONE}
    found = {name: Spread.from_dict(spread) for name, spread in answer["spreads"].items()}
    assert all(spread.windows == 5 and spread.low > 0 for spread in found.values())
    assert found[limits.ONE_BY_ONE].middle > found[limits.BATCH].middle
    assert answer["bytes_back"] == REPLY.size and 64 // 8 < answer["bytes_out"] < 1_024


@pytest.fixture
def node():
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(theirs,))
    thread.start()
    yield ours
    ours.close()
    thread.join()
    theirs.close()


def test_a_sharer_answers_echoes_without_a_look_and_parcels_once_taken(node):
    send(node, ECHO + b"anything at all")
    assert REPLY.unpack(receive(node)) == (ECHO, 0)
    send(node, PARCEL + pack(Parcel(7, 0, 0, 0b11)))
    assert REPLY.unpack(receive(node)) == (PARCEL, 7)
    send(node, PARCEL + pack(Parcel(6, 0b11, 0, 0)))
    assert REPLY.unpack(receive(node)) == (PARCEL, 7)
