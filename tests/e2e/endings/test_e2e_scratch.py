"""Folders with names that anybody can foresee are believed only if they are ours; what a killed engine left goes."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from kit.smallrun import small_settings

from fednode.assemble import flower_engine
from fednode.assemble.flower_engine import SCRATCH
from fednode.assemble.serve import simulated_keys
from fednode.disk.locked_folder import remove_abandoned, temporary_folder, temporary_folder_at
from fednode.disk.private_folder import make_private
from fednode.errors import ConfigError, StoreError
from fednode_clients.membership import NodeContext, key_folder, shared_root

RUN = {"clients": 2, "holders": 2}
FAULTS = {
    "link": "is not a folder",
    "file": "is not a folder",
    "theirs": "belongs to another user",
    "open": "is open to other users",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def planted(kind: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What another user may have put where a run's keys are to lie."""
    shared = place / f"fednode-{os.getuid()}"
    if kind == "link":
        (place / "elsewhere").mkdir(mode=0o700)
        shared.symlink_to(place / "elsewhere")
    elif kind == "file":
        shared.touch(0o600)
    else:
        shared.mkdir(mode=0o700)
    if kind == "open":
        shared.chmod(0o750)
    if kind == "theirs":
        found = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: found + 1)
        shared.rename(place / f"fednode-{found + 1}")
        shared = place / f"fednode-{found + 1}"
    return shared


@pytest.mark.parametrize("kind", FAULTS)
def test_a_foreseeable_folder_that_is_not_ours_alone_is_refused_by_node_and_members(
    place: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    shared = planted(kind, place, monkeypatch)
    expected = f"{shared} {FAULTS[kind]}"
    with pytest.raises(ConfigError, match=expected), simulated_keys(7, RUN):
        pytest.fail("keys were made")
    with pytest.raises(ConfigError, match=expected):
        key_folder(NodeContext(7, {"partition-id": 0}, RUN))
    # whoever names a folder is not asked for this one
    assert key_folder(NodeContext(7, {"partition-id": 0}, {**RUN, "key-root": "/own"})) == Path("/own/client-1")
    with simulated_keys(7, {**RUN, "key-root": str(place / "own" / "keys")}) as keys:
        assert keys.stat().st_mode & 0o777 == 0o700 and keys.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_it_is_made_for_this_user_alone_and_both_find_the_same(place: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with simulated_keys(7, RUN) as keys:
            (keys / "client-1").mkdir()
            shared = shared_root(RUN)
            assert shared is not None and keys.parent == shared
            assert {path.stat().st_mode & 0o777 for path in (keys, shared)} == {0o700}
            assert key_folder(NodeContext(7, {"partition-id": 0}, RUN)) == keys / "client-1"
        assert not keys.exists() and shared.exists()
    finally:
        os.umask(before)


def test_keys_of_killed_runs_in_it_go_and_those_of_living_ones_stay(place: Path) -> None:
    shared = place / f"fednode-{os.getuid()}"
    make_private(shared)
    (shared / "dead" / "client-1").mkdir(parents=True)
    with simulated_keys(7, RUN) as keys, simulated_keys(8, RUN):
        assert sorted(path.name for path in shared.iterdir()) == ["7", "8"]
        with pytest.raises(ConfigError, match="in use by another run"), simulated_keys(7, RUN):
            pass
        assert keys.exists()


def test_a_folder_with_something_in_it_is_never_taken_and_so_never_removed(place: Path) -> None:
    (place / "mine").mkdir()
    (place / "mine" / "letter").write_text("dear")
    with pytest.raises(ConfigError, match="not empty"), temporary_folder_at(place / "mine"):
        pass
    assert (place / "mine" / "letter").read_text() == "dear"
    with (
        pytest.raises(StoreError, match="could not make and lock"),
        temporary_folder_at(place / "mine" / "letter" / "keys"),
    ):
        pass


@pytest.fixture
def engine(place: Path) -> tuple[Path, subprocess.Popen[bytes]]:
    """What a killed submitter leaves: a scratch folder that nobody holds, and a part of the engine that runs on."""
    scratch = place / f"{SCRATCH}killed"
    (scratch / "flower").mkdir(parents=True)
    environ = os.environ | {"FLWR_HOME": str(scratch / "flower")}
    return scratch, subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environ)


def swept_by_a_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on the engine that ends before it submits anything."""

    def refuse(*_: object) -> None:
        raise StoreError("not submitted")

    monkeypatch.setattr(flower_engine, "_start_superlink", refuse)
    monkeypatch.setattr(flower_engine, "_check", lambda _: None)
    from fednode.observer import Observer, StopFlag

    settings = small_settings(folder, engine="flower")
    with pytest.raises(StoreError, match="not submitted"):
        flower_engine.run_on_flower(settings, Observer(), StopFlag())


def test_the_home_of_a_killed_engine_goes_and_what_runs_in_it(
    engine: tuple[Path, subprocess.Popen[bytes]], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, process = engine
    with process, temporary_folder(SCRATCH) as living:
        swept_by_a_run(place, monkeypatch)
        assert process.wait(60) != 0
        # its own is gone as well, and another run's is not
        assert list(place.glob(f"{SCRATCH}*")) == [living]
        assert not scratch.exists()


def test_an_engine_whose_run_goes_on_without_its_submitter_is_left_alone(
    engine: tuple[Path, subprocess.Popen[bytes]], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, process = engine
    with process:
        with simulated_keys(7, {**RUN, "key-root": str(scratch / "keys")}):
            swept_by_a_run(place, monkeypatch)
            assert (scratch / "flower").exists() and process.poll() is None
        remove_abandoned(SCRATCH, inner="keys")
        assert not scratch.exists()
        process.communicate(b"\n")
