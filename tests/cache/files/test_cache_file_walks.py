"""`FileBackend` passes the kit and, with tight limits and reopenings, the walk."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from kit.cache.backend import BackendKit
from kit.cache.backend_machine import TIGHT, BackendMachine
from kit.clocks import FakeClock
from kit.folders import opened, value_files

from fednode.cache import FileBackend, Limits, WhenFull


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


class FileMachine(BackendMachine):
    """The walk, and between two steps the folder may be closed and opened after a while by another process."""

    limits = TIGHT

    def make(self, clock: FakeClock, limits: Limits) -> FileBackend:
        self.folder = tempfile.TemporaryDirectory()
        return self.opened(clock)

    def opened(self, clock: FakeClock) -> FileBackend:
        when_full = WhenFull.EVICT if self.evicts else WhenFull.REFUSE
        return opened(Path(self.folder.name), clock, self.limits, when_full)

    def discard(self, backend: object) -> None:
        assert isinstance(backend, FileBackend)
        backend.close()
        self.folder.cleanup()

    @rule(seconds=st.integers(0, 2), monotonic=st.integers(0, 10_000))
    def reopen(self, seconds: int, monotonic: int) -> None:
        assert isinstance(self.backend, FileBackend)
        self.backend.close()
        moved = monotonic - self.clock.now() - seconds
        self.clock = FakeClock(float(monotonic), self.clock.time() + seconds)
        self.model = {key: held._replace(expires_at=held.expires_at + moved) for key, held in self.model.items()}
        self.backend = self.opened(self.clock)
        assert self.backend.usage().entries == len(self.live())

    @invariant()
    def the_files_are_those_that_count(self) -> None:
        assert self.backend.usage().entries == len(value_files(Path(self.folder.name)))


class RefusingFileMachine(FileMachine):
    evicts = False


TestFileMachine, TestRefusingFileMachine = FileMachine.TestCase, RefusingFileMachine.TestCase
TestFileMachine.settings = TestRefusingFileMachine.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None
)
