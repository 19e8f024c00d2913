"""`FileBackend` passes the kit, and walks: against a dict with reopenings, and the kit's with tight limits."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kit.cache.backend import BackendKit
from kit.cache.backend_machine import TIGHT, BackendMachine
from kit.clocks import FakeClock
from kit.folders import held, opened, value_files

from fednode.cache import MISSING, FileBackend, Limits, StoreFull, WhenFull

SMALL = Limits(entries=3, total_bytes=10, value_bytes=6)


@pytest.fixture(autouse=True, scope="module")
def lazy_disk() -> Iterator[None]:
    """Nothing here cuts the power: syncing for real would only make a slow disk's tests slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


class TestFileBackend(BackendKit):
    @pytest.fixture(autouse=True, params=WhenFull)
    def folders(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[None]:
        self.root, self.when_full, self.made = tmp_path, request.param, list[FileBackend]()
        yield
        for backend in self.made:
            backend.close()

    def make(self, clock: FakeClock, limits: Limits) -> FileBackend:
        self.made.append(opened(self.root / str(len(self.made)), clock, limits, self.when_full))
        return self.made[-1]


class FileAgainstDict(RuleBasedStateMachine):
    """The model: a dict of (value, wall expiry, number of the write), oldest use first; reopening forgets uses."""

    keys = st.sampled_from("abcd")
    values = st.sampled_from([b"", b"1", b"22", b"4444", b"55555", b"666666"])
    ttls = st.none() | st.integers(1, 5).map(float)

    @initialize(when_full=st.sampled_from(WhenFull))
    def start(self, when_full: WhenFull) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FakeClock()
        self.when_full = when_full
        self.backend = opened(Path(self.folder.name), self.clock, SMALL, when_full)
        self.model: dict[str, tuple[bytes, float, int]] = {}
        self.writes = 0

    def teardown(self) -> None:
        self.backend.close()
        self.folder.cleanup()

    def live(self) -> dict[str, tuple[bytes, float, int]]:
        return {key: entry for key, entry in self.model.items() if entry[1] > self.clock.time()}

    def fits(self, entries: dict[str, tuple[bytes, float, int]]) -> bool:
        total = sum(len(value) for value, _, _ in entries.values())
        return len(entries) <= SMALL.entries and total <= SMALL.total_bytes

    @rule(key=keys, value=values, ttl=ttls)
    def set(self, key: str, value: bytes, ttl: float | None) -> None:
        wanted = self.live()
        wanted.pop(key, None)
        self.writes += 1
        wanted[key] = (value, float("inf") if ttl is None else self.clock.time() + ttl, self.writes)
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
        assert self.backend.sweep() == before - len(self.live())
        self.holds_the_living_alone()

    @rule()
    def clear(self) -> None:
        self.backend.clear()
        self.model = {}

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds: int) -> None:
        self.clock.sleep(float(seconds))

    @rule(seconds=st.integers(0, 2), monotonic=st.integers(0, 10_000))
    def reopen(self, seconds: int, monotonic: int) -> None:
        self.backend.close()
        self.clock = FakeClock(float(monotonic), self.clock.time() + seconds)
        self.backend = opened(Path(self.folder.name), self.clock, SMALL, self.when_full)
        self.model = dict(sorted(self.live().items(), key=lambda item: item[1][2]))
        self.holds_the_living_alone()

    def holds_the_living_alone(self) -> None:
        live = self.live()
        assert held(self.backend) == (len(live), sum(len(value) for value, _, _ in live.values()))

    @invariant()
    def limits_hold(self) -> None:
        usage = self.backend.usage()
        assert (usage.entries <= SMALL.entries, usage.bytes <= SMALL.total_bytes) == (True, True)
        assert usage.entries == len(value_files(Path(self.folder.name))) >= len(self.live())


TestFileAgainstDict = FileAgainstDict.TestCase
TestFileAgainstDict.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class TightFileMachine(BackendMachine):
    limits = TIGHT

    def make(self, clock: FakeClock, limits: Limits) -> FileBackend:
        self.folder = tempfile.TemporaryDirectory()
        when_full = WhenFull.EVICT if self.evicts else WhenFull.REFUSE
        return opened(Path(self.folder.name), clock, limits, when_full)

    def discard(self, backend: object) -> None:
        assert isinstance(backend, FileBackend)
        backend.close()
        self.folder.cleanup()


class RefusingFileMachine(TightFileMachine):
    evicts = False


TestTightFileMachine = TightFileMachine.TestCase
TestRefusingFileMachine = RefusingFileMachine.TestCase
TestTightFileMachine.settings = TestRefusingFileMachine.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None
)
