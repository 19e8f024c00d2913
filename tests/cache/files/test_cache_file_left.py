"""Files of a cache folder that could not be removed never count, and nobody else gets into the folder."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.clocks import FakeClock
from kit.folders import failing, held, opened, value_files

from fednode.cache import MISSING, FileBackend, Limits, WhenFull
from fednode.disk import atomic as files
from fednode.errors import StoreError


@contextlib.contextmanager
def unremovable(*names: str) -> Iterator[None]:
    """Files of these names cannot be removed; others can."""
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name in names:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        unlink(path, missing_ok=missing_ok)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        yield


@pytest.mark.parametrize("ending", ["delete", "clear", "expiry", "eviction", "damage"])
@pytest.mark.parametrize("reopened", [False, True])
def test_an_overwritten_file_that_stays_never_comes_back(tmp_path: Path, ending: str, reopened: bool) -> None:
    clock = FakeClock()
    when_full = WhenFull.EVICT if ending == "eviction" else WhenFull.REFUSE
    backend = opened(tmp_path, clock, Limits(1, 100, 100), when_full)
    backend.set("key", b"old", None)
    old = value_files(tmp_path)[0].name
    with unremovable(old):
        backend.set("key", b"new", 5.0 if ending == "expiry" else None)
        if reopened:
            backend.close()
            backend = opened(tmp_path, clock, Limits(1, 100, 100), when_full)
        assert backend.get("key") == b"new" and held(backend) == (1, 3)
        # what cannot be done now is refused, and the value in force stays in force
        clock.sleep(10.0 if ending == "expiry" else 0.0)
        with pytest.raises(StoreError, match="could not remove"):
            ended(backend, tmp_path, ending)
        backend.close()
        backend = opened(tmp_path, clock, Limits(1, 100, 100), when_full) if ending != "expiry" else backend
        assert ending == "expiry" or backend.get("key") == (MISSING if ending == "damage" else b"new")
        backend.close()
    with opened(tmp_path, clock, Limits(1, 100, 100), when_full) as backend:
        if ending not in ("damage", "expiry"):
            ended(backend, tmp_path, ending)
        assert backend.get("key") is MISSING
    with opened(tmp_path, clock, Limits(1, 100, 100), when_full) as backend:
        assert backend.get("key") is MISSING and not any(path.name == old for path in value_files(tmp_path))


def ended(backend: FileBackend, folder: Path, how: str) -> None:
    if how == "delete":
        backend.delete("key")
    elif how == "clear":
        backend.clear()
    elif how == "expiry":
        backend.sweep()
    elif how == "eviction":
        backend.set("other", b"value", None)
    else:
        value_files(folder)[-1].write_bytes(b"damaged")
        backend.get("key")


def test_a_new_value_is_above_every_file_that_stayed(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    backend.set("key", b"old", None)
    backend.set("key", b"new", None)
    path = value_files(tmp_path)[0]
    path.write_bytes(b"damaged")
    backend.close()
    with unremovable(path.name):
        with opened(tmp_path) as backend:
            assert backend.get("key") is MISSING and backend.usage().damaged == 1
            backend.set("key", b"newest", None)
        with opened(tmp_path) as backend:
            assert backend.get("key") == b"newest"
    with opened(tmp_path) as backend:
        assert backend.get("key") == b"newest" and len(value_files(tmp_path)) == 1


@pytest.mark.parametrize("old", [b"old", None])
def test_a_set_that_failed_and_could_not_be_taken_back_never_counts(tmp_path: Path, old: bytes | None) -> None:
    backend = opened(tmp_path)
    if old is not None:
        backend.set("key", old, None)
    names: list[str] = []

    def fail(folder: Path) -> None:
        names.append(value_files(folder)[-1].name)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with failing(Path, "unlink", errno.EROFS), pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "sync_folder", fail)
        with pytest.raises(StoreError):
            backend.set("key", b"never was", None)
    expected = MISSING if old is None else old
    assert len(names) == 1 and backend.get("key") == expected
    with unremovable(names[0]):
        for _ in range(2):
            backend.close()
            backend = opened(tmp_path)
            assert backend.get("key") == expected and backend.usage().damaged == 0
        backend.set("key", b"newest", None)
        backend.close()
    with opened(tmp_path) as backend:
        assert backend.get("key") == b"newest" and backend.usage().damaged == 0
        assert [path.name == names[0] for path in value_files(tmp_path)] == [False]


def test_whatever_is_deleted_in_a_folder_in_use_lets_nobody_else_in(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    backend.set("key", b"v", None)
    for path in tmp_path.iterdir():
        path.unlink()
    (tmp_path / "lock").touch()
    with pytest.raises(StoreError, match="in use by another process"):
        opened(tmp_path)
    backend.set("key", b"again", None)
    assert backend.get("key") == b"again"


@pytest.mark.parametrize("replaced", [True, False])
def test_a_folder_that_was_moved_or_replaced_is_refused_in_one_sentence(tmp_path: Path, replaced: bool) -> None:
    folder, away = tmp_path / "cache", tmp_path / "away"
    backend = opened(folder)
    backend.set("key", b"mine", None)
    folder.rename(away)
    expected = "moved or replaced while it was in use; put it back" if replaced else "could not find"
    if replaced:
        second = opened(folder)
        second.set("key", b"theirs", None)
    for ask in (lambda: backend.set("key", b"v", None), lambda: backend.pin("other", b"v"), backend.clear):
        with pytest.raises(StoreError, match=expected):
            ask()
    with pytest.raises(StoreError, match=expected):
        backend.delete("key")
    if replaced:
        assert second.get("key") == b"theirs" and len(value_files(folder)) == 1
        second.close()
        shutil.rmtree(folder)
    away.rename(folder)
    backend.set("key", b"back", None)
    assert backend.get("key") == b"back"
