"""Files that a crash left half written in a key folder are removed by the next exclusive user, and nothing else is."""

import re
import threading
from pathlib import Path

import pytest

from fednode.disk.temp_files import sweep_temp_files
from fednode_clients.keyfolder.exclusive import exclusive
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.retire import retire
from fednode_crypto.identity import SigningKey


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def folder(tmp_path: Path) -> KeyFolder:
    return KeyFolder.create(tmp_path / "keys", "holder-1", SigningKey.generate().public)


def leave(folder: KeyFolder, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """A process that is killed while it writes a share, the mark of a task and that of a closed one."""

    def dead(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as last:
        last.setattr(Path, "replace", dead)
        last.setattr(Path, "unlink", dead)
        writes = (
            lambda: retire(folder, "1"),
            lambda: folder.tasks.admit("1", 3),
            lambda: folder.state.put("share/1", b"secret"),
        )
        for write in writes:
            with pytest.raises(Killed):
                write()
    return halves(folder)


def halves(folder: KeyFolder) -> set[str]:
    return {path.parent.name for path in folder.path.rglob("*") if path.name.startswith(".")}


def test_what_a_crash_left_is_gone_once_somebody_is_alone(folder: KeyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.state.put("share/2", b"kept")
    folder.audit_log.append({"round": 1})
    assert leave(folder, monkeypatch) == {"state", "tasks", "retired"}
    before = {path for path in folder.path.rglob("*") if not path.name.startswith(".")}
    with exclusive(KeyFolder.open(folder.path)):
        assert halves(folder) == set()
    assert {path for path in folder.path.rglob("*") if not path.name.startswith(".")} == before
    assert (
        folder.state.get("share/2") == b"kept"
        and folder.state.get("share/1") is None
        and len(folder.audit_log.entries()) == 1
    )


def test_what_another_writes_just_now_stays(folder: KeyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients keep tasks and copies without an exclusive lock: its owner must leave their files alone."""
    written, go, replace = threading.Event(), threading.Event(), Path.replace

    def slow(path: Path, target: Path) -> Path:
        written.set()
        assert go.wait(60)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", slow)
    writer = threading.Thread(target=lambda: KeyFolder.open(folder.path).state.put("copy", b"a chunk"))
    writer.start()
    try:
        assert written.wait(60)
        with exclusive(folder):
            assert halves(folder) == {"state"}
    finally:
        go.set()
        writer.join()
    assert folder.state.get("copy") == b"a chunk" and halves(folder) == set()


def test_only_files_aside_are_swept_and_a_folder_that_is_not_there_is_none(tmp_path: Path) -> None:
    name = "0123456789" * 4
    for kept in (name, f".{name}", f".{name}.0123456", f".{name}.0123456g", f".x{name[1:]}.01234567", ".keep"):
        (tmp_path / kept).touch()
    before = set(tmp_path.iterdir())
    (tmp_path / f".{name}.01234567").touch()
    sweep_temp_files(tmp_path, re.compile("[0-9]{40}"))
    assert set(tmp_path.iterdir()) == before
    sweep_temp_files(tmp_path / "nowhere", re.compile(".*"))


def test_what_cannot_be_removed_keeps_nobody_from_working(folder: KeyFolder) -> None:
    aside = folder.path / "state" / f".{'0' * 40}.01234567"
    aside.mkdir()
    with exclusive(folder):
        folder.state.put("share/1", b"kept")
    assert folder.state.get("share/1") == b"kept" and aside.exists()
