"""`MemoryBackend`: the kit under both policies, limits, order of eviction, a state machine against a dict."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kit.backend import BackendKit
from kit.clocks import FakeClock

from fednode.cache import MISSING, Limits, MemoryBackend, StoreFull, Usage, WhenFull
from fednode.errors import ConfigError

SMALL = Limits(entries=3, total_bytes=10, value_bytes=6)


class TestEvictingMemory(BackendKit):
    def make(self, clock: FakeClock, limits: Limits) -> MemoryBackend:
        return MemoryBackend(clock, limits)


class TestRefusingMemory(BackendKit):
    def make(self, clock: FakeClock, limits: Limits) -> MemoryBackend:
        return MemoryBackend(clock, limits, WhenFull.REFUSE)


@pytest.mark.parametrize("limits", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 5, 6), (-1, 1, 1)])
def test_limits_that_cannot_work_are_refused(limits: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match="cache limit"):
        Limits(*limits)


def test_the_least_recently_used_entry_goes_first() -> None:
    backend = MemoryBackend(FakeClock(), SMALL)
    for key in "abc":
        backend.set(key, b"1", None)
    backend.get("a")
    backend.set("d", b"1", None)
    assert [key for key in "abcd" if backend.get(key) is not MISSING] == ["a", "c", "d"]


def test_the_key_just_written_is_never_the_victim() -> None:
    backend = MemoryBackend(FakeClock(), SMALL)
    backend.set("a", b"1", None)
    backend.set("b", b"123456", None)
    backend.set("a", b"123456", None)
    assert (backend.get("a"), backend.get("b")) == (b"123456", MISSING)
    assert backend.usage() == Usage(1, 6)


def test_an_expired_entry_makes_room_before_a_live_one() -> None:
    clock = FakeClock()
    backend = MemoryBackend(clock, SMALL)
    backend.set("live", b"1", None)
    backend.set("dead", b"1", 1.0)
    backend.set("late", b"1", 5.0)
    backend.get("dead")
    clock.sleep(2.0)
    backend.set("new", b"1", None)
    assert [backend.get(key) for key in ("live", "dead", "late", "new")] == [b"1", MISSING, b"1", b"1"]


def test_refusing_keeps_everything_and_says_what_is_in_use() -> None:
    backend = MemoryBackend(FakeClock(), SMALL, WhenFull.REFUSE)
    for key in "abc":
        backend.set(key, key.encode(), None)
    with pytest.raises(StoreFull, match="3 of 3 entries"):
        backend.set("d", b"d", None)
    backend.set("a", b"again", None)
    with pytest.raises(StoreFull, match="7 of 10 bytes"):
        backend.set("b", b"12345", None)
    assert [backend.get(key) for key in "abcd"] == [b"again", b"b", b"c", MISSING]


def test_refusing_counts_an_overwritten_value_once() -> None:
    backend = MemoryBackend(FakeClock(), SMALL, WhenFull.REFUSE)
    backend.set("a", b"123456", None)
    backend.set("b", b"1234", None)
    backend.set("a", b"654321", None)
    assert (backend.get("a"), backend.usage()) == (b"654321", Usage(2, 10))


def test_refusing_takes_room_from_the_expired() -> None:
    clock = FakeClock()
    backend = MemoryBackend(clock, Limits(1, 1, 1), WhenFull.REFUSE)
    backend.set("a", b"1", 1.0)
    clock.sleep(1.0)
    backend.set("b", b"2", None)
    assert backend.get("b") == b"2"


def test_overwriting_for_ever_does_not_grow_the_heap() -> None:
    backend = MemoryBackend(FakeClock(), SMALL)
    for turn in range(5_000):
        backend.set("key", b"%d" % (turn % 9), 1_000.0)
    assert len(backend._expiries) < 200
    assert backend.usage() == Usage(1, 1)


class MemoryAgainstDict(RuleBasedStateMachine):
    """The model: an ordered dict of (value, expiry), oldest use first, searched where the code is clever."""

    keys = st.sampled_from("abcd")
    values = st.sampled_from([b"", b"1", b"22", b"4444", b"55555", b"666666"])
    ttls = st.none() | st.integers(1, 5).map(float)

    @initialize(when_full=st.sampled_from(WhenFull))
    def start(self, when_full: WhenFull) -> None:
        self.clock = FakeClock()
        self.when_full = when_full
        self.backend = MemoryBackend(self.clock, SMALL, when_full)
        self.model: dict[str, tuple[bytes, float]] = {}

    def live(self) -> dict[str, tuple[bytes, float]]:
        return {key: entry for key, entry in self.model.items() if entry[1] > self.clock.now()}

    def fits(self, entries: dict[str, tuple[bytes, float]]) -> bool:
        return len(entries) <= SMALL.entries and sum(len(value) for value, _ in entries.values()) <= SMALL.total_bytes

    @rule(key=keys, value=values)
    def keep(self, key: str, value: bytes) -> None:
        self.set_and_compare(key, value, None)

    @rule(key=keys, value=values, ttl=ttls)
    def set(self, key: str, value: bytes, ttl: float | None) -> None:
        self.set_and_compare(key, value, ttl)

    def set_and_compare(self, key: str, value: bytes, ttl: float | None) -> None:
        wanted = self.live()
        wanted.pop(key, None)
        wanted[key] = (value, float("inf") if ttl is None else self.clock.now() + ttl)
        if self.when_full is WhenFull.REFUSE and not self.fits(wanted):
            with pytest.raises(StoreFull):
                self.backend.set(key, value, ttl)
            return
        self.backend.set(key, value, ttl)
        while not self.fits(wanted):
            del wanted[next(iter(wanted))]
        self.model = wanted

    @rule(key=keys)
    def get(self, key: str) -> None:
        live = self.live()
        if key not in live:
            assert self.backend.get(key) is MISSING
            return
        assert self.backend.get(key) == live[key][0]
        self.model[key] = self.model.pop(key)

    @rule(key=keys)
    def delete(self, key: str) -> None:
        assert self.backend.delete(key) is (key in self.live())
        self.model.pop(key, None)

    @rule()
    def sweep(self) -> None:
        before = self.backend.usage().entries
        live = self.live()
        assert self.backend.sweep() == before - len(live)
        assert self.backend.usage() == Usage(len(live), sum(len(value) for value, _ in live.values()))

    @rule()
    def clear(self) -> None:
        self.backend.clear()
        self.model = {}

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds: int) -> None:
        self.clock.sleep(float(seconds))

    @invariant()
    def limits_hold(self) -> None:
        usage = self.backend.usage()
        assert usage.entries <= SMALL.entries
        assert usage.bytes <= SMALL.total_bytes
        assert usage.entries >= len(self.live())


TestMemoryAgainstDict = MemoryAgainstDict.TestCase
TestMemoryAgainstDict.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
