"""A random walk of any backend against a dict, on a clock that a test moves.

    class MyMachine(BackendMachine):
        def make(self, clock, limits): return MyBackend(clock, limits)

    TestMyMachine = MyMachine.TestCase
    TestMyMachine.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)

The model is a dict that is searched where the code is clever. `limits` may be tight: then `evicts` says whether what is
unpinned makes way (which of it, only the backend knows: the model then asks) or the newcomer is refused. A backend that
divides its limits needs wide ones here, or one part.
"""

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kit.cache.backend import same
from kit.clocks import FakeClock

from fednode.cache import MISSING, CacheBackend, Limits, StoreFull, TooLarge
from fednode.cache.values.freeze import size_of

WIDE = Limits(entries=1_000, total_bytes=1 << 20, value_bytes=1 << 16)
TIGHT = Limits(entries=4, total_bytes=100, value_bytes=60)

KEYS = st.sampled_from(["a", "b", "c", "p/a", "p/b", "p/c"])
VALUES = st.sampled_from(
    [None, 0, b"", b"1", bytes(20), bytes(40), bytes(60), "text", [1, [2]], {"k": b"v"}]
) | st.builds(np.arange, st.integers(0, 7))
TOO_LARGE = bytes(1 << 17)


class Held(NamedTuple):
    value: Any
    expires_at: float
    pinned: bool

    @property
    def size(self) -> int:
        return size_of(self.value)


class BackendMachine(RuleBasedStateMachine):
    limits: ClassVar[Limits] = WIDE
    evicts: ClassVar[bool] = True
    second: ClassVar[float] = 1.0
    """Seconds that the walk's second takes."""

    def make(self, clock: FakeClock, limits: Limits) -> CacheBackend:
        raise AssertionError("a machine says how its backend is made")

    def discard(self, backend: CacheBackend) -> None:
        """Called once the walk is over."""

    @initialize()
    def start(self) -> None:
        self.clock = FakeClock()
        self.backend = self.make(self.clock, self.limits)
        self.model: dict[str, Held] = {}

    def teardown(self) -> None:
        if hasattr(self, "backend"):
            self.discard(self.backend)

    def live(self) -> dict[str, Held]:
        return {key: held for key, held in self.model.items() if held.expires_at > self.clock.now()}

    def fits(self, entries: dict[str, Held]) -> bool:
        total = sum(held.size for held in entries.values())
        return len(entries) <= self.limits.entries and total <= self.limits.total_bytes

    def store(self, key: str, value: Any, ttl: float | None, *, pinned: bool) -> bool:
        """Store on both sides and compare; whether it was taken."""
        wanted = self.live() | {key: Held(value, math.inf if ttl is None else self.clock.now() + ttl, pinned)}
        stays = {other: held for other, held in wanted.items() if not self.evicts or held.pinned or other == key}
        error = TooLarge if wanted[key].size > self.limits.value_bytes else None if self.fits(stays) else StoreFull
        if error is not None:
            with pytest.raises(error):
                self.put(key, value, ttl, pinned=pinned)
            return False
        self.put(key, value, ttl, pinned=pinned)
        self.accept(wanted, stays)
        return True

    def put(self, key: str, value: Any, ttl: float | None, *, pinned: bool) -> None:
        if pinned:
            self.backend.pin(key, value)
        else:
            self.backend.set(key, value, ttl)

    def accept(self, wanted: dict[str, Held], stays: dict[str, Held]) -> None:
        """Nothing goes as long as all fits; otherwise some of what may go has gone."""
        if self.fits(wanted):
            self.model = wanted
            return
        kept = set(self.backend.keys())
        assert stays.keys() <= kept <= wanted.keys()
        self.model = {key: held for key, held in wanted.items() if key in kept}

    @rule(key=KEYS, value=VALUES, ttl=st.none() | st.integers(1, 5).map(float))
    def set(self, key: str, value: Any, ttl: float | None) -> None:
        self.store(key, value, None if ttl is None else ttl * self.second, pinned=False)

    @rule(key=KEYS, value=VALUES)
    def pin(self, key: str, value: Any) -> None:
        self.store(key, value, None, pinned=True)

    @rule(key=KEYS)
    def set_too_large(self, key: str) -> None:
        assert not self.store(key, TOO_LARGE, None, pinned=False)

    @rule(keys=st.lists(KEYS, max_size=5))
    def get_many(self, keys: list[str]) -> None:
        live, found = self.live(), self.backend.get_many(keys)
        assert list(found) == [key for key in dict.fromkeys(keys) if key in live]
        assert all(same(found[key], live[key].value) for key in found)

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        live = self.live()
        got = self.backend.get(key)
        assert same(got, live[key].value) if key in live else got is MISSING

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        assert self.backend.delete(key) is (key in self.live())
        self.model.pop(key, None)

    @rule()
    def sweep(self) -> None:
        before = self.backend.usage().entries
        assert self.backend.sweep() == before - len(self.live())
        assert self.backend.usage().entries == len(self.live())
        self.model = self.live()

    @rule()
    def clear(self) -> None:
        self.backend.clear()
        self.model = {}

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds: int) -> None:
        self.clock.sleep(seconds * self.second)

    @invariant()
    def the_keys_are_those_of_the_model(self) -> None:
        live = self.live()
        assert sorted(self.backend.keys()) == sorted(live)
        assert sorted(self.backend.keys("p/")) == sorted(key for key in live if key.startswith("p/"))

    @invariant()
    def limits_hold_and_pins_are_counted(self) -> None:
        usage, live = self.backend.usage(), self.live()
        pinned = [held.size for held in live.values() if held.pinned]
        assert len(live) <= usage.entries <= self.limits.entries
        assert sum(held.size for held in live.values()) <= usage.bytes <= self.limits.total_bytes
        assert (usage.pinned_entries, usage.pinned_bytes) == (len(pinned), sum(pinned))
