"""Values of a cache folder that cannot be read here and now, and limits that change while it is used."""

import math
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from kit.clocks import FakeClock
from kit.folders import held, opened, value_files

from fednode.cache import MISSING, FileBackend, Limits, TooLarge, WhenFull
from fednode.cache.files.format import FileHeader
from fednode.cache.values.codec import encode_counted
from fednode.errors import StoreError


def test_what_was_written_and_cannot_be_understood_is_a_miss_that_stays(tmp_path: Path) -> None:
    value = b"FNv9 of a later version"
    header = FileHeader("key", 7, math.inf, math.inf, len(value), 1, True, sha256(value).digest())
    path = tmp_path / header.name
    path.write_bytes(header.pack() + value)
    with opened(tmp_path) as backend:
        for _ in range(2):
            assert backend.get("key") is MISSING and backend.get_many(["key"]) == {}
        assert (backend.usage().damaged, backend.usage().pinned_entries, path.exists()) == (0, 1, True)


def test_what_this_process_lacks_destroys_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    with opened(tmp_path) as backend:
        backend.pin("key", torch.arange(3.0))
        backend.pin("other", b"v")

        def no_memory(*_: object, **__: object) -> None:
            raise RuntimeError("not enough memory")

        with monkeypatch.context() as patch:
            patch.setattr(torch, "empty", no_memory)
            with pytest.raises(RuntimeError, match="memory"):
                backend.get("key")
        assert (backend.usage().damaged, held(backend)[0], len(value_files(tmp_path))) == (0, 2, 2)


def test_lower_value_bytes_evict_what_is_larger_and_no_pin(tmp_path: Path) -> None:
    def filled(folder: Path, when_full: WhenFull) -> FileBackend:
        backend = opened(folder, limits=Limits(9, 100, 20), when_full=when_full)
        backend.set("large", bytes(20), None)
        backend.set("small", bytes(5), None)
        backend.pin("pinned", bytes(20))
        return backend

    lower = Limits(9, 100, 10)
    for when_full, there in ((WhenFull.EVICT, ["pinned", "small"]), (WhenFull.REFUSE, ["large", "pinned", "small"])):
        with filled(tmp_path / f"tuned {when_full}", when_full) as backend:
            backend.tune(lower)
            assert sorted(backend.keys()) == there and backend.limits == lower
            with pytest.raises(TooLarge):
                backend.set("new", bytes(11), None)
            backend.tune(Limits(9, 50, 20))
            backend.set("new", bytes(5), None)
        filled(tmp_path / f"{when_full}", when_full).close()
        with opened(tmp_path / f"{when_full}", limits=lower, when_full=when_full) as backend:
            assert sorted(backend.keys()) == there


def test_a_value_that_was_counted_under_higher_limits_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as backend:

        def tuned_meanwhile(value: Any, most: int) -> tuple[bytes, int]:
            answer = encode_counted(value, most)
            backend.tune(Limits(9, 100, 5))
            return answer

        monkeypatch.setattr("fednode.cache.files.backend.encode_counted", tuned_meanwhile)
        with pytest.raises(TooLarge, match="6 bytes"):
            backend.set("key", b"123456", None)
        assert (backend.usage().refusals, value_files(tmp_path)) == (1, [])


def test_a_closed_folder_is_free_though_a_child_holds_its_descriptor(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    # what a fork without our hooks leaves in a child: the same open file
    other = os.dup(backend._folder._descriptor)
    try:
        backend.close()
        with opened(tmp_path) as again:
            assert list(again.keys()) == []
    finally:
        os.close(other)


def test_a_tuning_that_the_disk_refuses_changes_no_limits(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    with FileBackend(folder, FakeClock(), Limits(9, 90, 10), WhenFull.EVICT) as cache:
        cache.set("a", b"0", None)
        cache.set("b", b"0", None)
        folder.rename(tmp_path / "away")
        folder.mkdir()
        with pytest.raises(StoreError, match="moved or replaced"):
            cache.tune(Limits(1, 90, 10))
        assert cache.limits == Limits(9, 90, 10)
