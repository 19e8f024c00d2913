"""Cache folders of the tests' own, on disks that fail where they should."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cache.backend import ROOMY
from kit.clocks import FakeClock

from fednode.cache import FileBackend, Limits, WhenFull


def opened(
    folder: Path, clock: FakeClock | None = None, limits: Limits = ROOMY, when_full: WhenFull = WhenFull.REFUSE
) -> FileBackend:
    return FileBackend(folder, clock or FakeClock(), limits, when_full)


@contextlib.contextmanager
def failing(owner: object, call: str, code: int) -> Iterator[None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, call, fail)
        yield


def held(backend: FileBackend) -> tuple[int, int]:
    """Entries and bytes."""
    usage = backend.usage()
    return usage.entries, usage.bytes


def value_files(folder: Path) -> list[Path]:
    """Oldest first."""
    return sorted(folder.iterdir(), key=lambda path: path.name[-16:])
