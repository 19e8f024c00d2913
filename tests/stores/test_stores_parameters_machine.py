"""`ParameterStore` over a backend that fails at any call, against a plain model of what it promises."""

from itertools import count

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kit.cache.failing import FailingBackend

from fednode.cache import Limits, StoreFull
from fednode.errors import StoreError
from fednode.stores import ParameterStore

KEEP = 2
NAMES = ("a", "b", "c")
VALUES = st.tuples(*[st.integers(0, 2)] * len(NAMES))


class ParameterMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.backend = FailingBackend(Limits(500, 1 << 20, 1 << 16))
        self.backend.error = StoreFull("no room, for the test")
        self.store = ParameterStore(self.backend, "model", KEEP)
        self.written: dict[int, tuple[int, ...]] = {}
        self.last, self.broken = 0, False

    @rule(values=VALUES)
    def write(self, values: tuple[int, ...]) -> None:
        arrays = {name: np.full(4, float(value)) for name, value in zip(NAMES, values, strict=True)}
        before = self.store.versions
        try:
            version = self.store.write(arrays, {"values": list(values)})
        except StoreError:
            assert self.store.versions == before
            return
        assert version == self.last + 1
        self.last = version
        self.written[version] = values

    @rule(at=st.integers(1, 9), for_good=st.booleans())
    def break_soon(self, at: int, for_good: bool) -> None:
        """The call of this number fails, and the ones after it while `for_good`."""
        calls = count(1)
        self.backend.fails = lambda *_: (number := next(calls)) == at or (for_good and number > at)
        self.broken = True

    @rule()
    def mend(self) -> None:
        self.backend.fails, self.broken = lambda *_: False, False

    @rule()
    def crowd(self) -> None:
        """Others fill the same backend with what may go."""
        for number in range(20):
            self.backend.set(f"other/{number}", bytes(1 << 16), None)

    @precondition(lambda self: self.store.versions)
    @rule()
    def clear(self) -> None:
        self.store.clear()

    @invariant()
    def every_version_is_whole(self) -> None:
        held = self.store.versions
        assert len(held) <= KEEP and list(held) == sorted(held) and set(held) <= set(self.written)
        for version in held:
            values = self.written[version]
            arrays = self.store.read(version).arrays
            assert tuple(float(array[0]) for array in arrays.values()) == values
            assert all(len(set(array.tolist())) == 1 for array in arrays.values())
            assert self.store.metadata(version) == {"values": list(values)}
            for stored, value in zip(self.store.chunks(version), values, strict=True):
                # the version since which this chunk has had these bytes, without a break
                assert stored.version <= version
                assert all(
                    self.written[one][NAMES.index(stored.chunk.array)] == value
                    for one in self.written
                    if stored.version <= one <= version
                )
        if held and held[-1] == self.last:
            assert self.store.read().version == self.last

    @invariant()
    def nothing_is_stored_twice_or_left_behind(self) -> None:
        if self.broken:
            return
        needed = set()
        for version in self.store.versions:
            needed.add(f"parameters/model/{version}")
            needed |= {f"parameters/model/{stored.id}@{stored.version}" for stored in self.store.chunks(version)}
        assert needed <= set(self.backend.keys("parameters/"))
        if not self.store._unfreed:
            # the rest expires
            assert self.backend.usage().pinned_entries == len(needed)

    def teardown(self) -> None:
        self.mend()
        self.store.write({"a": np.zeros(1)}, {})
        self.store.clear()
        assert list(self.backend.keys("parameters/")) == []


ParameterMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestParameterMachine = ParameterMachine.TestCase
