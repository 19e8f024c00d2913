"""A line is there whole when the call returns, or it is not there at all."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.disk import atomic as files
from fednode.disk.atomic import append_line
from fednode.errors import StoreError

LINES = st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), min_size=1, max_size=6)
HALF_A_LINE = """
import resource, sys
from pathlib import Path
from fednode.errors import StoreError
from fednode.disk.atomic import append_line
path, room = Path(sys.argv[1]), int(sys.argv[2])
append_line(path, b"first")
resource.setrlimit(resource.RLIMIT_FSIZE, (6 + room, 6 + room))
try:
    append_line(path, b"second")
    print("written")
except StoreError as error:
    print(error)
"""


@settings(max_examples=25, deadline=None)
@given(LINES)
def test_lines_stand_in_the_order_in_which_they_came(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "record"
    for line in lines:
        append_line(path, line)
    assert path.read_bytes() == b"".join(line + b"\n" for line in lines)


def test_a_new_file_is_private(tmp_path):
    umask = os.umask(0)
    try:
        append_line(tmp_path / "record", b"line")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "record").stat().st_mode) == 0o600


@pytest.mark.parametrize("room", range(7))
def test_half_a_line_is_taken_back(tmp_path, room):
    path = tmp_path / "record"
    done = subprocess.run(
        [sys.executable, "-B", "-c", HALF_A_LINE, str(path), str(room)], capture_output=True, text=True, check=True
    )
    assert "could not append to" in done.stdout and "start again" in done.stdout
    assert path.read_bytes() == b"first\n"


def test_a_line_that_just_fits_is_written(tmp_path):
    path = tmp_path / "record"
    done = subprocess.run(
        [sys.executable, "-B", "-c", HALF_A_LINE, str(path), "7"], capture_output=True, text=True, check=True
    )
    assert (done.stdout, path.read_bytes()) == ("written\n", b"first\nsecond\n")


def test_a_full_disk_is_an_error_with_its_reason(tmp_path):
    (tmp_path / "record").symlink_to("/dev/full")
    with pytest.raises(StoreError, match="No space left on device; free some space and start again"):
        append_line(tmp_path / "record", b"line")


@pytest.mark.parametrize("place", ["folder", "absent/record", "file/record"])
def test_a_place_that_cannot_be_written_is_an_error(tmp_path, place):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"kept\n")
    with pytest.raises(StoreError, match="could not append to"):
        append_line(tmp_path / place, b"line")
    assert (tmp_path / "file").read_bytes() == b"kept\n" and sorted(tmp_path.iterdir())[0].name == "file"


@pytest.mark.parametrize("torn", [b"t", b"torn", b"t" * 4_095, b"t" * 4_096, b"t" * 4_097, b"t" * 9_000])
@pytest.mark.parametrize("before", [b"", b"one\n", b"one\n\ntwo\n", b"o" * 5_000 + b"\n"], ids=len)
def test_what_a_crash_left_of_a_line_does_not_spoil_the_next(tmp_path, before, torn):
    path = tmp_path / "record"
    path.write_bytes(before + torn)
    append_line(path, b"next")
    assert path.read_bytes() == before + b"next\n"


@pytest.mark.parametrize("step", ["fsync", "sync_folder"])
def test_a_line_that_did_not_reach_the_disk_is_taken_back(tmp_path, monkeypatch, step):
    def refused(_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(files.os if step == "fsync" else files, step, refused)
    with pytest.raises(StoreError, match="Input/output error"):
        append_line(tmp_path / "record", b"line")
    assert (tmp_path / "record").read_bytes() == b""


def test_the_line_and_a_new_files_name_are_on_the_disk_before_it_returns(tmp_path, monkeypatch):
    synced, sync = [], os.fsync

    def watched(descriptor):
        synced.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    append_line(tmp_path / "record", b"one")
    append_line(tmp_path / "record", b"two")
    assert synced == ["file", "folder", "file"]


@pytest.mark.parametrize("line", [b"a\nb", b"\n", b"a\n"])
def test_two_lines_are_not_one(tmp_path, line):
    with pytest.raises(ValueError, match="newline"):
        append_line(Path(tmp_path) / "record", line)
    assert list(tmp_path.iterdir()) == []
