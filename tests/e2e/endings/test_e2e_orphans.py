"""Keys of a run that was killed do not outlive the next run; those of a run that is on stay, wherever it runs."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from kit.crypto.plainsum import InsecurePlainSum
from kit.smallrun import small_run

from fednode.assemble.inprocess_run import KEYS
from fednode.assemble.session import Environment
from fednode.disk import locked_folder as held
from fednode.disk.locked_folder import remove_abandoned, temporary_folder
from fednode.errors import StoreError

HOLDING = f"""
import sys
from fednode.disk.locked_folder import temporary_folder
with temporary_folder({KEYS!r}) as folder:
    (folder / "client-1").mkdir()
    (folder / "client-1" / "identity.json").write_text("a key")
    print(folder, flush=True)
    sys.stdin.read()
"""
SWEEPING = f"from fednode.disk.locked_folder import remove_abandoned; remove_abandoned({KEYS!r})"
NAMESPACE = ["unshare", "--user", "--map-root-user", "--pid", "--mount-proc", "--fork"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A temporary folder of our own, for this process and those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return tmp_path


@pytest.fixture
def holder(place):
    """Another process that holds a folder of keys."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        yield process, folder
        process.communicate()


def test_keys_of_a_process_that_is_on_stay_and_those_of_a_killed_one_go(holder):
    process, folder = holder
    remove_abandoned(KEYS)
    assert (folder / "client-1" / "identity.json").exists()
    process.kill()
    process.wait()
    assert (folder / "client-1" / "identity.json").exists()
    remove_abandoned(KEYS)
    assert not folder.exists()


def test_a_sweep_in_another_pid_namespace_leaves_keys_in_use_alone(holder):
    if shutil.which("unshare") is None or subprocess.run([*NAMESPACE, "true"], check=False).returncode:
        pytest.skip("this machine lets nobody make a pid namespace")
    process, folder = holder
    subprocess.run([*NAMESPACE, sys.executable, "-c", SWEEPING], check=True)
    assert (folder / "client-1" / "identity.json").exists()
    process.kill()
    process.wait()
    subprocess.run([*NAMESPACE, sys.executable, "-c", SWEEPING], check=True)
    assert not folder.exists()


def test_a_folder_ends_with_its_block_also_by_an_exception(place):
    with pytest.raises(KeyError), temporary_folder(KEYS) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        raise KeyError
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("moment", ["before the lock", "while it is swept", "between opening and locking"])
def test_a_sweep_at_the_making_of_a_folder_costs_another_folder_and_no_key(place, monkeypatch, moment):
    first: list[Path] = []
    made, flock, sweeper = tempfile.mkdtemp, fcntl.flock, []

    def making(prefix):
        folder = Path(made(prefix=prefix))
        if not first and moment != "between opening and locking":
            if moment == "before the lock":
                remove_abandoned(KEYS)
            else:
                sweeper.append(held._lock(folder))
            assert folder.exists() == (moment == "while it is swept")
        first.append(folder)
        return str(folder)

    def locking(descriptor, how):
        if moment == "between opening and locking" and len(first) == 1 and not sweeper:
            sweeper.append(None)
            remove_abandoned(KEYS)
            assert not first[0].exists()
        flock(descriptor, how)

    monkeypatch.setattr(tempfile, "mkdtemp", making)
    monkeypatch.setattr(fcntl, "flock", locking)
    with temporary_folder(KEYS) as folder:
        assert [folder] == first[1:]
        remove_abandoned(KEYS)
        assert folder.exists()


def test_what_is_not_ours_or_not_a_folder_stays(place, monkeypatch):
    (place / f"{KEYS}file").write_text("not a folder")
    (place / "elsewhere" / "keys").mkdir(parents=True)
    (place / f"{KEYS}link").symlink_to(place / "elsewhere")
    remove_abandoned(KEYS)
    (place / f"{KEYS}theirs").mkdir()
    monkeypatch.setattr("os.getuid", lambda: os.geteuid() + 1)
    remove_abandoned(KEYS)
    monkeypatch.undo()
    names = {path.name for path in place.iterdir()}
    assert names == {f"{KEYS}file", "elsewhere", f"{KEYS}link", f"{KEYS}theirs"}
    assert (place / "elsewhere" / "keys").exists()


def test_a_temporary_folder_that_takes_nothing_is_named(place, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(place / "absent"))
    with pytest.raises(StoreError, match="TMPDIR"), temporary_folder(KEYS):
        pass


def test_a_run_sweeps_what_a_killed_run_left_and_not_what_another_uses(holder, place):
    _, folder = holder
    orphan = place / f"{KEYS}orphan"
    (orphan / "client-1").mkdir(parents=True)
    small_run(place, Environment(schemes=lambda _: InsecurePlainSum()), rounds=1)
    assert folder.exists() and not orphan.exists()
    assert [path for path in place.glob(f"{KEYS}*") if path != folder] == []
