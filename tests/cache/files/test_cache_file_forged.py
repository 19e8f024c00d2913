"""Files that fit their seal and are no values of ours, what cannot be read here and now, and limits of one moment."""

import math
import os
import struct
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from kit.cache.backend import ROOMY
from kit.clocks import FakeClock
from kit.folders import held, opened, value_files

from fednode.cache import MISSING, FileBackend, Limits, TooLarge, WhenFull
from fednode.cache.files.format import NUMBERS, FileHeader
from fednode.cache.values.codec import encode, encode_counted
from fednode.errors import StoreError

FIXED = struct.Struct("<8sQddIQQB32s")


def planted(folder: Path, value: bytes, *, number: int = 7, ttl: float = math.inf, wall: float = math.inf) -> Path:
    header = FileHeader("key", number, ttl, wall, len(value), 1, True, sha256(value).digest())
    path = folder / header.name
    path.write_bytes(header.pack() + value)
    return path


@pytest.mark.parametrize("number", [NUMBERS, (1 << 64) - 1])
@pytest.mark.parametrize("withdrawn", [False, True])
def test_a_number_that_leaves_its_followers_none_is_damage(tmp_path: Path, number: int, withdrawn: bool) -> None:
    with opened(tmp_path) as backend:
        backend.set("key", b"old", None)
    path = planted(tmp_path, encode(b"forged"), number=number)
    if withdrawn:
        path.write_bytes(b"FNwithdrawn")
    with opened(tmp_path) as backend:
        assert (backend.get("key"), backend.usage().damaged, held(backend)) == (b"old", not withdrawn, (1, 3))
        backend.set("key", b"new", None)
    with opened(tmp_path) as backend:
        assert (backend.get("key"), backend.usage().damaged, len(value_files(tmp_path))) == (b"new", 0, 1)


def test_a_folder_that_is_numbered_to_the_end_says_so(tmp_path: Path) -> None:
    planted(tmp_path, encode(b"last"), number=NUMBERS - 1)
    with opened(tmp_path) as backend:
        with pytest.raises(StoreError, match=str(tmp_path)):
            backend.set("key", b"new", None)
        assert backend.get("key") == b"last"


@pytest.mark.parametrize("life", [{"ttl": math.nan}, {"wall": math.nan}])
def test_a_life_that_is_no_number_is_damage(tmp_path: Path, life: dict[str, float]) -> None:
    planted(tmp_path, encode(b"forged"), **life)  # type: ignore[arg-type]
    with opened(tmp_path) as backend:
        assert (backend.get("key"), backend.usage().damaged, value_files(tmp_path)) == (MISSING, 1, [])


def test_a_key_that_is_no_text_is_damage(tmp_path: Path) -> None:
    value, key = encode(b"forged"), b"\xff\xfe"
    fixed = FIXED.pack(b"FNvalue2", 7, math.inf, math.inf, len(key), len(value), 1, 0, sha256(value).digest())
    path = tmp_path / f"{sha256(key).hexdigest()}.{7:016x}"
    path.write_bytes(fixed + key + sha256(fixed + key).digest() + value)
    with opened(tmp_path) as backend:
        assert (list(backend.keys()), backend.usage().damaged, value_files(tmp_path)) == ([], 1, [])


def test_what_was_written_and_cannot_be_understood_is_a_miss_that_stays(tmp_path: Path) -> None:
    path = planted(tmp_path, b"FNv9 of a later version")
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
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "torch", None)
            with pytest.raises(StoreError, match="torch"):
                backend.get("key")
        torch.set_default_device("meta")
        try:
            found: Any = backend.get("key")
        finally:
            torch.set_default_device("cpu")
        assert found.tolist() == [0.0, 1.0, 2.0] and found.device.type == "cpu"
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


@pytest.mark.parametrize("wrong", ["refuse", "EVICT", None, 0])
def test_what_to_do_when_full_is_no_guess(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(TypeError, match="when_full"):
        FileBackend(tmp_path / "f", FakeClock(), ROOMY, wrong)
    assert not (tmp_path / "f").exists()


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
