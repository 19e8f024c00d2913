"""`FileBackend`: pins, damage, failing disks, killed processes, memory, updates."""

import errno
import os
import resource
import stat
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.clocks import FakeClock
from kit.folders import failing, held, opened, value_files

from fednode.cache import MISSING, Closed, Limits, StoreFull, WhenFull
from fednode.cache.values.codec import encode
from fednode.disk import atomic as files
from fednode.errors import StoreError
from fednode.stores import UpdateLost, UpdateStore

MEGABYTES_3 = 3_000_000
WHOLE = 120 + len(encode(b"sealed update"))


@pytest.fixture(autouse=True, scope="module")
def lazy_disk() -> Iterator[None]:
    """Nothing here cuts the power: syncing for real would only make a slow disk's tests slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.mark.parametrize("when_full", WhenFull)
def test_a_pin_outlives_a_restart_as_pinned_and_is_never_evicted(tmp_path: Path, when_full: WhenFull) -> None:
    with opened(tmp_path, limits=Limits(3, 10, 6), when_full=when_full) as backend:
        backend.set("unpinned", b"1", None)
        backend.pin("a", b"22")
        backend.pin("b", b"22")
    lower = Limits(2, 4, 4)
    with opened(tmp_path, limits=lower, when_full=when_full) as backend:
        usage = backend.usage()
        assert (usage.pinned_entries, usage.pinned_bytes) == (2, 4)
        assert (backend.get("unpinned") is MISSING) is (when_full is WhenFull.EVICT)
        with pytest.raises(StoreFull):
            backend.set("c", b"3", None)
        assert (backend.get("a"), backend.get("b"), backend.usage().refusals) == (b"22", b"22", 1)
        backend.delete("unpinned")
        backend.set("b", b"2", None)
    with opened(tmp_path, limits=lower, when_full=when_full) as backend:
        assert (backend.usage().pinned_entries, backend.get("b")) == (1, b"2")


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    with opened(tmp_path, limits=Limits(3, 10, 6), when_full=WhenFull.EVICT) as backend:
        for key in "abc":
            backend.set(key, b"1", None)
        assert (backend.get("a"), backend.get_many("b")) == (b"1", {"b": b"1"})
        backend.set("d", b"1", None)
        assert (sorted(backend.keys()), backend.usage().evictions) == (["a", "b", "d"], 1)


def test_a_refused_set_evicts_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, limits=Limits(3, 10, 6), when_full=WhenFull.EVICT) as backend:
        backend.pin("pinned", b"55555")
        backend.set("other", b"1", None)
        with pytest.raises(StoreFull):
            backend.set("new", b"666666", None)
        assert (backend.get("other"), backend.usage().evictions) == (b"1", 0)


def test_values_outlive_the_process_in_private_files_whose_names_tell_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "cache"
    with opened(folder) as backend:
        folder.chmod(0o755)
        backend.set("update/task/1/ann", b"sealed", None)
        backend.set("\ud800", b"no text", None)
    with opened(folder) as backend:
        assert (backend.get("update/task/1/ann"), backend.get("\ud800")) == (b"sealed", b"no text")
        assert (held(backend), backend.usage().damaged) == ((2, 13), 0)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert not any("ann" in path.name for path in folder.iterdir())


def test_a_restart_does_not_stop_the_wall_clock(tmp_path: Path) -> None:
    with opened(tmp_path, FakeClock(start=9_000.0, wall=500.0)) as backend:
        backend.set("short", b"1", 10.0)
        backend.set("long", b"2", 30.0)
    clock = FakeClock(start=3.0, wall=515.0)
    with opened(tmp_path, clock) as backend:
        assert (backend.get("short"), backend.get("long"), backend.usage().entries) == (MISSING, b"2", 1)
        clock.sleep(15.0)
        assert backend.get("long") is MISSING


def test_a_wall_clock_that_jumps_changes_no_life_while_open_and_adds_one_ttl_at_most(tmp_path: Path) -> None:
    clock = FakeClock(wall=1e9)
    with opened(tmp_path, clock) as backend:
        backend.set("key", b"v", 10.0)
        clock._wall += 1e6
        assert backend.get("key") == b"v"
    clock = FakeClock(wall=0.0)
    with opened(tmp_path, clock) as backend:
        clock.sleep(9.0)
        assert backend.get("key") == b"v"
        clock.sleep(1.0)
        assert backend.get("key") is MISSING


def damages(content: bytes) -> list[bytes]:
    flips = [content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :] for at in range(len(content))]
    return [*flips, *(content[:at] for at in range(0, len(content), 5)), content[:-1], content + b"\0"]


@pytest.mark.parametrize("reopened", [False, True])
def test_every_truncated_or_flipped_file_is_a_miss_that_is_removed_and_counted(tmp_path: Path, reopened: bool) -> None:
    backend = opened(tmp_path)
    backend.set("other", b"whole", None)
    for turn in range(len(damages(bytes(WHOLE)))):
        backend.set("key", b"sealed update", 5.0)
        path = value_files(tmp_path)[1]
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(damages(content)[turn])
        if reopened:
            backend.close()
            backend = opened(tmp_path)
        assert backend.get("key") is MISSING
        assert (backend.usage().damaged, held(backend)) == (1 if reopened else turn + 1, (1, 5))
        assert len(value_files(tmp_path)) == 1
    assert (backend.get("other"), len(content)) == (b"whole", WHOLE)


def test_a_file_that_was_moved_to_another_name_or_deleted_is_a_miss(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    for key in "abc":
        backend.set(key, key.encode(), None)
    first, second, third = value_files(tmp_path)
    second.write_bytes(first.read_bytes())
    third.unlink()
    assert [backend.get(key) for key in "abc"] == [b"a", MISSING, MISSING]
    assert (backend.usage().damaged, held(backend)) == (2, (1, 1))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_under_a_value_s_name_are_removed_at_opening(junk: bytes, magic: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / f"{'ab' * 32}.{'f' * 16}").write_bytes((b"FNvalue2" if magic else b"") + junk)
        with opened(folder) as backend:
            assert backend.usage().damaged == (magic or junk != b"FNwithdrawn")
            assert (held(backend), value_files(folder)) == ((0, 0), [])
            backend.set("key", b"v", None)
            assert backend.get("key") == b"v"


def test_leftovers_go_at_opening_and_strangers_stay(tmp_path: Path) -> None:
    with opened(tmp_path) as backend:
        backend.set("key", b"v", None)
    name = value_files(tmp_path)[0].name
    (tmp_path / f".{name}.0123abcd").write_bytes(b"half")
    strangers = [tmp_path / "notes.txt", tmp_path / f"{name}.bak", tmp_path / f".{name}"]
    for path in strangers:
        path.write_text("mine")
    (tmp_path / f"{'0' * 64}.{'0' * 16}").mkdir()
    with opened(tmp_path) as backend:
        assert (backend.get("key"), backend.usage().damaged, backend.usage().entries) == (b"v", 0, 1)
        backend.clear()
    assert all(path.read_text() == "mine" for path in strangers)
    assert len(value_files(tmp_path)) == 4


@pytest.mark.parametrize(("when_full", "kept"), [(WhenFull.EVICT, "bc"), (WhenFull.REFUSE, "abc")])
def test_lower_limits_evict_the_oldest_or_refuse_the_next(tmp_path: Path, when_full: WhenFull, kept: str) -> None:
    with opened(tmp_path) as backend:
        for key in "abc":
            backend.set(key, b"1", None)
        backend.get("a")
    with opened(tmp_path, limits=Limits(2, 10, 6), when_full=when_full) as backend:
        assert "".join(key for key in "abc" if backend.get(key) is not MISSING) == kept
        if when_full is WhenFull.REFUSE:
            with pytest.raises(StoreFull, match="3 of 2 entries"):
                backend.set("d", b"1", None)


def test_a_closed_cache_says_so(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    backend.close()
    backend.close()
    for call in (lambda: backend.get("a"), lambda: backend.set("a", b"", None), backend.sweep, backend.clear):
        with pytest.raises(Closed, match=f"{tmp_path} is closed; open it again"):
            call()
    assert value_files(tmp_path) == []


def test_a_value_is_on_the_disk_before_it_counts_and_readers_do_not_wait_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = opened(tmp_path)
    backend.set("key", b"old", None)
    steps: list[str] = []
    replace = os.replace

    def note_sync(descriptor: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        assert backend.get("key") == b"old"

    def note_rename(*names: Path) -> None:
        steps.append("rename")
        replace(*names)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_rename)
    backend.set("key", b"new", None)
    assert steps == ["file", "rename", "folder"]
    assert backend.get("key") == b"new"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize(("owner", "call"), [(os, "open"), (os, "fsync"), (os, "replace"), (files, "sync_folder")])
def test_a_disk_that_fails_while_writing_leaves_the_old_value(
    tmp_path: Path, owner: object, call: str, code: int
) -> None:
    backend = opened(tmp_path, limits=Limits(2, 6, 6), when_full=WhenFull.EVICT)
    backend.set("key", b"old", None)
    backend.set("victim", b"222", None)
    refusal = pytest.raises(StoreError, match=rf"could not write .*{os.strerror(code)}; free some space")
    with failing(owner, call, code), refusal:
        backend.set("key", b"longer", None)
    assert (backend.get("key"), held(backend), len(value_files(tmp_path))) == (b"old", (1, 3), 1)
    backend.close()
    with opened(tmp_path) as backend:
        assert (backend.get("key"), backend.usage().damaged) == (b"old", 0)
        backend.set("key", b"new", None)
        assert backend.get("key") == b"new"


def test_a_disk_that_fails_while_reading_or_deleting_loses_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    backend = opened(tmp_path, clock)
    backend.set("key", b"v", 10.0)
    for owner, call in ((os, "open"), (os, "fstat")):
        refusal = pytest.raises(StoreError, match=r"could not read .*Input/output error; check the disk")
        with failing(owner, call, errno.EIO), refusal:
            backend.get("key")
    clock.sleep(10.0)
    for verb in (backend.sweep, backend.clear):
        with failing(Path, "unlink", errno.EROFS), pytest.raises(StoreError, match="could not remove"):
            verb()
    assert (backend.usage().damaged, held(backend), backend.sweep()) == (0, (1, 1), 1)


def test_a_folder_that_cannot_be_had_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cache private"):
        opened(tmp_path / "file" / "cache")


def in_a_process(script: str, *arguments: object) -> str:
    """What the script says, its traceback included."""
    command = [sys.executable, "-c", PREAMBLE + script, *map(str, arguments)]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    return run.stdout + run.stderr


PREAMBLE = """
import itertools, os, sys
from pathlib import Path
from fednode.cache import FileBackend, Limits, WhenFull
from fednode.stores import UpdateStore
from fednode.clock import SystemClock

def opened(folder):
    return FileBackend(folder, SystemClock(), Limits(10, 1 << 20, 1 << 20), WhenFull.REFUSE)
"""

KILLED = """
def dying_before(point, call):
    def wrapped(*args, **kwargs):
        if next(calls) == point:
            os._exit(9)
        return call(*args, **kwargs)
    return wrapped

def half_written(descriptor):
    os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
    os._exit(9)

def child(folder, point):
    backend = opened(folder)
    store = UpdateStore(backend, 1.0)
    store.put("task", 1, "bob", b"other")
    backend.set("key", b"old" * 9_000, None)
    for name in ("open", "fsync", "replace", "unlink"):
        setattr(os, name, dying_before(point - 1, getattr(os, name)))
    if point == 0:
        os.fsync = half_written
    if sys.argv[2] == "overwrite":
        backend.set("key", b"new" * 9_000, None)
    else:
        store.put("task", 1, "ann", b"new" * 9_000)
    os._exit(0)
calls = itertools.count()
for point in itertools.count():
    pid = os.fork()
    if pid == 0:
        child(Path(sys.argv[1]) / str(point), point)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 9:
        break
print(point)
"""


def test_a_second_process_or_a_second_opening_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    second = "opened(Path(sys.argv[1]))"
    assert "in use by another process; wait for it" in in_a_process(second, tmp_path)
    with pytest.raises(StoreError, match="in use by another process"):
        opened(tmp_path)
    backend.set("key", b"v", None)
    backend.close()
    assert in_a_process(second, tmp_path) == ""
    assert opened(tmp_path).get("key") == b"v"


@pytest.mark.parametrize(("kind", "key", "old"), [("overwrite", "key", b"old" * 9_000), ("put", "", MISSING)])
def test_a_killed_process_leaves_the_old_value_or_the_new_one(tmp_path: Path, kind: str, key: str, old: object) -> None:
    key = key or "update/task/1/ann"
    survived = int(in_a_process(KILLED, tmp_path, kind))
    seen = []
    for point in range(survived + 1):
        with opened(tmp_path / str(point)) as backend:
            seen.append(backend.get(key))
            assert (backend.get("update/task/1/bob"), backend.usage().damaged) == (b"other", 0)
            assert len(value_files(tmp_path / str(point))) == backend.usage().entries
    assert survived >= 6
    turn = seen.index(b"new" * 9_000)
    assert turn >= 4
    assert seen == [old] * turn + [b"new" * 9_000] * (survived + 1 - turn)


def test_memory_does_not_grow_with_the_values(tmp_path: Path) -> None:
    limits = Limits(50, 50 * MEGABYTES_3, MEGABYTES_3)
    backend = opened(tmp_path, limits=limits)
    store = UpdateStore(backend, retry_after=1.0)
    tracemalloc.start()
    try:
        for client in range(50):
            store.put("task", 1, f"client-{client}", bytes([client]) * MEGABYTES_3)
        for client in range(50):
            assert store.get("task", 1, f"client-{client}") == bytes([client]) * MEGABYTES_3
        backend.close()
        with opened(tmp_path, limits=limits) as backend:
            assert held(backend) == (50, 50 * MEGABYTES_3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MEGABYTES_3


@pytest.mark.parametrize("while_open", [True, False])
def test_a_pipe_in_place_of_a_value_is_a_damaged_miss_that_nobody_waits_for(tmp_path: Path, while_open: bool) -> None:
    folder = tmp_path / "f"
    backend = opened(folder)
    backend.set("key", b"value", None)
    (path,) = value_files(folder)
    path.unlink()
    os.mkfifo(path)
    if not while_open:
        backend.close()
        backend = opened(folder)
    with backend:
        assert backend.get("key") is MISSING
        # at opening, what is no file is none of ours
        assert backend.usage().damaged == while_open and held(backend) == (0, 0)
        backend.set("key", b"again", None)
        assert backend.get("key") == b"again"


def test_a_file_that_the_system_cuts_short_leaves_the_old_value(tmp_path: Path) -> None:
    backend = opened(tmp_path)
    backend.set("key", b"old", None)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(StoreError, match="too large"):
            backend.set("key", bytes(40_000), None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (backend.get("key"), len(value_files(tmp_path))) == (b"old", 1)


def test_an_update_that_the_disk_lost_has_a_name_and_one_that_it_refused_may_come_again(tmp_path: Path) -> None:
    store = UpdateStore(opened(tmp_path), retry_after=1.0)
    with failing(os, "fsync", errno.ENOSPC), pytest.raises(StoreError, match="No space left"):
        store.put("task", 1, "ann", b"sealed")
    assert (store.ids(), store.get("task", 1, "ann")) == ((), MISSING)
    store.put("task", 1, "ann", b"sealed")
    path = value_files(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UpdateLost, match="ann in round 1"):
        store.get("task", 1, "ann")
