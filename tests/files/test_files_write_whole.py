"""A file is whole or absent, whatever the disk does; nothing is left beside it."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.disk import atomic as files
from fednode.disk.atomic import write_whole
from fednode.errors import StoreError

FULL = Path("/dev/full")


def mode_of(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def listed(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def under_a_file_size_limit(code: str, limit: int, *arguments) -> list[str]:
    """Run `code` in a process that can make no file longer than `limit` bytes; what it printed."""
    limited = f"import resource, sys\nresource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n{code}"
    done = subprocess.run(
        [sys.executable, "-B", "-c", limited, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@settings(max_examples=25, deadline=None)
@given(st.binary(max_size=5_000), st.binary(max_size=50))
def test_what_was_written_last_is_what_is_there(tmp_path_factory, first, second):
    folder = tmp_path_factory.mktemp("whole")
    for data in (first, second):
        write_whole(folder / "x", data)
        assert (folder / "x").read_bytes() == data
    assert listed(folder) == ["x"]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640, 0o400])
def test_the_mode_is_the_one_asked_for_from_the_first_byte(tmp_path, monkeypatch, mode):
    seen, rename = [], Path.replace

    def watched(self, target):
        seen.append(mode_of(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    (tmp_path / "x").write_bytes(b"old")
    (tmp_path / "x").chmod(0o666)
    umask = os.umask(0o022)
    try:
        write_whole(tmp_path / "x", b"new", mode)
    finally:
        os.umask(umask)
    assert seen == [mode] and mode_of(tmp_path / "x") == mode


def test_a_secret_stays_private_under_any_umask(tmp_path):
    umask = os.umask(0)
    try:
        write_whole(tmp_path / "x", b"secret", 0o600)
    finally:
        os.umask(umask)
    assert mode_of(tmp_path / "x") == 0o600


def test_a_folder_in_the_place_of_the_file_is_an_error_and_leaves_nothing(tmp_path):
    (tmp_path / "x" / "inside").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"could not write .*x: .*; free some space or choose another folder"):
        write_whole(tmp_path / "x", b"data")
    assert listed(tmp_path) == ["x"] and listed(tmp_path / "x") == ["inside"]


def test_a_folder_that_is_missing_is_to_be_made(tmp_path):
    with pytest.raises(StoreError, match="make the folder first"):
        write_whole(tmp_path / "absent" / "x", b"data")
    assert listed(tmp_path) == []


@pytest.mark.parametrize("place", ["file/x", "absent/x", "file/deeper/x"])
def test_a_folder_that_is_none_is_an_error(tmp_path, place):
    (tmp_path / "file").write_bytes(b"kept")
    with pytest.raises(StoreError, match="could not write"):
        write_whole(tmp_path / place, b"data")
    assert listed(tmp_path) == ["file"] and (tmp_path / "file").read_bytes() == b"kept"


def test_a_name_that_no_disk_takes_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="name too long"):
        write_whole(tmp_path / ("x" * 250), b"data")
    assert listed(tmp_path) == []


def test_a_disk_that_takes_only_a_part_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "x").write_bytes(b"old")
    said = under_a_file_size_limit(
        "from pathlib import Path\nfrom fednode.errors import StoreError\nfrom fednode.disk.atomic import write_whole\n"
        "for name in ('x', 'new'):\n"
        "    for size in (101, 100_000):\n"
        "        try:\n            write_whole(Path(sys.argv[1]) / name, bytes(size))\n"
        "        except StoreError as error:\n            print(error)\n"
        "write_whole(Path(sys.argv[1]) / 'fits', bytes(100))\n",
        100,
        tmp_path,
    )
    assert len(said) == 4 and all("File too large; free some space" in line for line in said)
    assert listed(tmp_path) == ["fits", "x"]
    assert (tmp_path / "x").read_bytes() == b"old" and (tmp_path / "fits").read_bytes() == bytes(100)


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path, monkeypatch):
    opened = os.open

    def open_on_a_full_disk(path, flags, mode=0o777):
        # the file aside gets its name on a healthy disk and its bytes on a full one
        if not flags & os.O_CREAT:
            return opened(path, flags, mode)
        os.close(opened(path, flags, mode))
        return opened(FULL, os.O_WRONLY)

    (tmp_path / "x").write_bytes(b"old")
    monkeypatch.setattr(os, "open", open_on_a_full_disk)
    with pytest.raises(StoreError, match="No space left on device"):
        write_whole(tmp_path / "x", bytes(10))
    assert listed(tmp_path) == ["x"] and (tmp_path / "x").read_bytes() == b"old"


def test_a_stop_in_the_middle_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    def stopped(descriptor):
        raise KeyboardInterrupt

    (tmp_path / "x").write_bytes(b"old")
    monkeypatch.setattr(files.os, "fsync", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "x", b"new")
    assert listed(tmp_path) == ["x"] and (tmp_path / "x").read_bytes() == b"old"


def test_file_and_folder_are_both_on_the_disk_before_it_returns(tmp_path, monkeypatch):
    synced, sync, rename = [], os.fsync, Path.replace

    def watched(descriptor):
        synced.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def renamed(self, target):
        synced.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", watched)
    monkeypatch.setattr(Path, "replace", renamed)
    write_whole(tmp_path / "x", b"data")
    assert synced == ["file", "rename", "folder"]


def test_a_link_is_replaced_and_what_it_points_to_is_left_alone(tmp_path):
    (tmp_path / "target").write_bytes(b"target")
    (tmp_path / "x").symlink_to(tmp_path / "target")
    write_whole(tmp_path / "x", b"new")
    assert not (tmp_path / "x").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"target" and (tmp_path / "x").read_bytes() == b"new"
