"""What threads and nodes see of a cache on a real server is explained; near copies show what is promised, no more."""

import itertools
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import pytest
from kit.cache.redis_server import RedisServer
from kit.clocks import FakeClock
from kit.history.history import Load, Seen, hammer, overlapping, unexplained
from kit.history.near import unexplained_near

from fednode.cache import MISSING, Limits, MemoryBackend
from fednode.cache.redis.backend import RedisBackend
from fednode.cache.redis.connections import LinkOptions
from fednode.cache.redis.records import RedisOptions
from fednode.cache.wrappers.tiered import Tiered, TierOptions

LIMITS = Limits(1_000, 1 << 20, 1 << 16)
# hours by the test's clock, seconds by the server's: what expires is what the test's clock says, on any machine
LOAD = Load(turns=40, reads=24, ttls=(None, None, 2_000.0, 5_000.0), step=250.0)
KEYS = [f"key {number}" for number in range(LOAD.keys)]
LAST = "the last write"
NAMES = itertools.count()


class Site:
    """One namespace of a server, under one clock."""

    def __init__(self, server: RedisServer, stack: ExitStack) -> None:
        self.server, self.stack, self.clock = server, stack, FakeClock()
        self.namespace = f"history{next(NAMES)}"

    def far(self) -> RedisBackend:
        options = RedisOptions(self.namespace, LIMITS, link=LinkOptions(timeout=60.0))
        return self.stack.enter_context(RedisBackend(self.server.address, options, self.clock))

    def tiered(self, near: "Told") -> Tiered:
        tiered = self.stack.enter_context(Tiered(near, self.far(), TierOptions(followed_ttl=1e5, heartbeat=60.0)))
        assert tiered.near.followed
        return tiered

    def settle(self, copies: "list[Told]") -> None:
        """Return once each node has been told of all that was written: messages come in the order of the writes."""
        writer = self.far()
        # the first may come in one message with others, of which it need not be the last
        for _ in range(2):
            for near in copies:
                near.told.clear()
            writer.set(LAST, b"", None)
            assert all(near.told.wait(60.0) for near in copies)


class Told(MemoryBackend):
    """Near copies that know when the message about the last write came."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock, LIMITS)
        self.told = threading.Event()

    def delete(self, key: str) -> bool:
        was_there = super().delete(key)
        if key == LAST:
            self.told.set()
        return was_there


def rounds_that_meet(server: RedisServer, hammered: Callable[[Site, Load], tuple[list[Seen], int]]) -> None:
    """Hammers up to ten times, until calls overlapped and near copies, if there are any, were read: a busy machine may
    let threads run one by one."""
    for seed in range(1, 11):
        with ExitStack() as stack:
            history, hits = hammered(Site(server, stack), replace(LOAD, seed=seed))
            if overlapping(history) > 50 and hits > 50:
                return
    raise AssertionError("threads never met in the cache: nothing was tested")


@pytest.mark.parametrize("nodes", [1, 2])
def test_what_threads_saw_of_a_server_is_explained(shared_server: RedisServer, nodes: int) -> None:
    def hammered(site: Site, load: Load) -> tuple[list[Seen], int]:
        first, *others = [site.far() for _ in range(nodes)]
        history = hammer(first, site.clock, load, others)
        assert unexplained(history) == []
        assert {call.node for call in history} == set(range(nodes))
        return history, len(history)

    rounds_that_meet(shared_server, hammered)


@pytest.mark.parametrize("nodes", [1, 2])
def test_near_copies_show_what_is_promised_and_agree_in_the_end(shared_server: RedisServer, nodes: int) -> None:
    def hammered(site: Site, load: Load) -> tuple[list[Seen], int]:
        copies = [Told(site.clock) for _ in range(nodes)]
        tiers = [site.tiered(near) for near in copies]
        history = hammer(tiers[0], site.clock, load, tiers[1:])
        hits = sum(tier.near.hits for tier in tiers)
        site.settle(copies)
        assert unexplained_near(history, final_reads(history, tiers, site.clock)) == []
        assert all(tier.near.followed and tier.near.falls == 0 for tier in tiers)
        return history, hits

    rounds_that_meet(shared_server, hammered)


def final_reads(history: list[Seen], nodes: list, clock: FakeClock) -> list[Seen]:
    """What each node reads of every key now, which is after all of `history`."""
    order = itertools.count(1 + max(call.end for call in history))
    found = []
    for node, cache in enumerate(nodes):
        for key in KEYS:
            start, now = next(order), clock.now()
            value = cache.get(key)
            found.append(Seen("get", key, value, start, next(order), now, clock.now(), None, node))
    return found


def test_the_checker_of_near_copies_knows_what_they_may_show_and_what_not() -> None:
    def seen(kind: str, value: object, start: int, node: int, ttl: float | None = None) -> Seen:
        return Seen(kind, "k", value, start, start + 1, float(start), float(start + 1), ttl, node)

    history = [seen("set", b"a", 1, 0), seen("get", b"a", 3, 1), seen("set", b"b", 5, 0)]
    old = [*history, seen("get", b"a", 7, 1)]
    assert unexplained(old) != [] and unexplained_near(old, []) == []
    own = [*history, seen("get", b"a", 7, 0)]
    for wrong in (own, [*history, seen("get", b"c", 7, 1)], [seen("set", b"a", 1, 0, 2.0), seen("get", b"a", 9, 1)]):
        assert len(unexplained_near(wrong, [])) == 1
    assert unexplained_near(history, [seen("get", b"a", 7, 1)]) != []
    assert unexplained_near([*history, seen("get", MISSING, 7, 1)], []) != []
