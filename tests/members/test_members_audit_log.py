"""A record and its head: a line that is gone is noticed, one that a crash left without its head counts."""

import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.cohort import FakeCohort, Size

from fednode.driver import Request
from fednode.errors import StoreError
from fednode.protocol.envelope import Envelope
from fednode.protocol.requests import read_roster, read_spec, roster_part, spec_frame
from fednode_clients.keyfolder.audit_log import RECORD_HEAD, AuditLog, head_of, lags
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.retire import retire
from fednode_clients.keyfolder.state_files import StateFiles
from fednode_crypto.identity import SigningKey

ROOT = SigningKey.generate().public
LINES = [b'{"round":%d}\n' % number for number in range(5)]


@pytest.fixture
def folder(tmp_path):
    made = KeyFolder.create(tmp_path / "keys", "holder-1", ROOT)
    for number in range(3):
        made.audit_log.append({"round": number})
    return made


def earlier(folder: KeyFolder, name: str) -> None:
    """Put one file or folder back to what it was two lines ago."""
    older = KeyFolder.create(folder.path.parent / "older", "holder-1", ROOT)
    older.audit_log.append({"round": 0})
    place = folder.path / name
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    (older.path / name).rename(place)


LOSSES = {
    "the record lost": lambda folder: (folder.path / "record.jsonl").unlink(),
    "the record emptied": lambda folder: (folder.path / "record.jsonl").write_bytes(b""),
    "the last line lost": lambda folder: (folder.path / "record.jsonl").write_bytes(b"".join(LINES[:2])),
    "the first line lost": lambda folder: (folder.path / "record.jsonl").write_bytes(b"".join(LINES[1:3])),
    "a line changed": lambda folder: (folder.path / "record.jsonl").write_bytes(b"".join(LINES[:2] + LINES[3:4])),
    "the record put back": lambda folder: earlier(folder, "record.jsonl"),
    "the state put back": lambda folder: earlier(folder, "state"),
    "the state lost": lambda folder: shutil.rmtree(folder.path / "state"),
    "the head lost": lambda folder: folder.state.drop(RECORD_HEAD),
    "the head damaged": lambda folder: folder.state.put(RECORD_HEAD, b"\x01" * 40),
    "the head cut short": lambda folder: folder.state.put(RECORD_HEAD, b""),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_whatever_is_lost_or_put_back_by_itself_silences_the_member(folder, loss):
    loss(folder)
    again = KeyFolder.open(folder.path)
    for ask in (again.audit_log.entries, lambda: again.audit_log.append({"round": 9})):
        with pytest.raises(StoreError) as told:
            ask()
        assert "must not answer in any task" in str(told.value) and "fednode keys retire" in str(told.value)
    # nothing that is written makes it whole again
    with pytest.raises(StoreError):
        again.audit_log.entries()


def test_a_line_counts_from_when_it_is_on_the_disk(folder, monkeypatch):
    with monkeypatch.context() as dead:
        dead.setattr(StateFiles, "put", lambda *_: (_ for _ in ()).throw(StoreError("the disk is full")))
        with pytest.raises(StoreError, match="full"):
            folder.audit_log.append({"round": 3})
        # and no second one before the first has its head
        with pytest.raises(StoreError, match="full"):
            folder.audit_log.append({"round": 4})
        assert [entry["round"] for entry in folder.audit_log.entries()] == [0, 1, 2, 3]
    folder.audit_log.append({"round": 4})
    assert [entry["round"] for entry in KeyFolder.open(folder.path).audit_log.entries()] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["boxes", "confirm", "open", "box-key"])
def test_no_answer_rests_on_a_line_that_the_head_does_not_know(tmp_path, monkeypatch, kind):
    """A holder's disk is full when it would write the head; asked again it must write it, or say nothing."""
    cohort = FakeCohort(tmp_path, Size(scheme="ring"))
    put, said = StateFiles.put, []

    def full(self, name, data):
        if name == RECORD_HEAD:
            raise StoreError("could not write: No space left on device")
        put(self, name, data)

    def conduct(cohort, name, request):
        with monkeypatch.context() as disk:
            disk.setattr(StateFiles, "put", full)
            # a line of its own, and then whatever it is asked next
            with pytest.raises(StoreError):
                cohort.folder(name).audit_log.append({"confirmed": "another", "round": 1})
            said.append(Envelope.from_bytes(cohort.speak(name, request), 1 << 20).about.raw().get("reason"))
        cohort.restart(name)
        frame = cohort.speak(name, request)
        folder = cohort.folder(name)
        lines = (folder.path / "record.jsonl").read_bytes()
        # whatever was answered: a record that is put back to before it does not fit any more
        assert lags(folder.state.get(RECORD_HEAD), lines) is False
        assert lags(folder.state.get(RECORD_HEAD), lines[: lines[:-1].rfind(b"\n") + 1]) is None
        return [frame]

    cohort.tell("holder-1", conduct, kind)
    assert cohort.begun().run_round(1).cause == "" and said == ["member-storage"]


def test_a_client_whose_record_is_lost_does_not_even_repeat_an_update(tmp_path):
    cohort = FakeCohort(tmp_path, Size(scheme="ring"))
    assert cohort.begun().run_round(1).cause == ""
    (cohort.folder("client-1").path / "record.jsonl").unlink()
    cohort.restart("client-1")
    (asked,) = (request for name, request in cohort.asked("round") if name == "client-1")
    said = Envelope.from_bytes(cohort.speak("client-1", asked), 1 << 26, 1 << 26)
    assert (said.head.kind, said.about.text("reason", 64)) == ("refusal", "member-storage")


def test_a_folder_without_its_small_files_makes_room_for_them(folder):
    shutil.rmtree(folder.path / "state")
    (folder.path / "record.jsonl").unlink()
    assert folder.audit_log.entries() == []
    folder.audit_log.append({"round": 1})
    assert folder.audit_log.entries() == [{"round": 1}] and (folder.path / "state").stat().st_mode & 0o777 == 0o700


def took_a_task(folder):
    folder.audit_log.settle()
    folder.tasks.admit("task", 3)


def closed_a_task(folder):
    retire(folder, ["task"])


@pytest.mark.parametrize("marking", [took_a_task, closed_a_task])
def test_a_folder_with_marks_and_without_its_record_and_head_is_damaged(tmp_path, marking):
    folder = KeyFolder.create(tmp_path / "keys", "holder-1", ROOT)
    marking(folder)
    assert KeyFolder.open(folder.path).audit_log.entries() == folder.audit_log.entries()
    shutil.rmtree(folder.path / "state")
    (folder.path / "record.jsonl").unlink(missing_ok=True)
    for ask in (folder.audit_log.entries, folder.audit_log.settle, lambda: folder.audit_log.append({"round": 9})):
        with pytest.raises(StoreError, match="fednode keys retire"):
            ask()
    # a single line that is there by itself is no record either
    (folder.path / "record.jsonl").write_bytes(LINES[0])
    with pytest.raises(StoreError, match="fednode keys retire"):
        folder.audit_log.entries()
    retire(folder)
    assert folder.audit_log.entries() == [{"joined": None, "cost": None}]


def test_a_first_task_that_another_process_takes_meanwhile_is_no_damage(tmp_path, monkeypatch):
    folder = KeyFolder.create(tmp_path / "keys", "client-1", ROOT)
    get, other = StateFiles.get, [KeyFolder.open(folder.path)]

    def late(self, name):
        found = get(self, name)
        if other:
            took_a_task(other.pop())
        return found

    monkeypatch.setattr(StateFiles, "get", late)
    assert folder.audit_log.entries() == [] and folder.tasks.taken.exists()


def test_marks_that_cannot_be_read_are_no_permission(tmp_path):
    folder = KeyFolder.create(tmp_path / "keys", "holder-1", ROOT)
    folder.tasks.taken.write_bytes(b"")
    with pytest.raises(StoreError, match="marks"):
        folder.audit_log.entries()


def test_a_head_that_changes_while_the_record_is_read_is_read_again(folder, monkeypatch):
    """The worst order: head, two whole new lines, record."""
    read, writer = AuditLog._bytes, KeyFolder.open(folder.path).audit_log
    left = [3, 4]

    def late(self):
        while self is not writer and left:
            writer.append({"round": left.pop(0)})
        return read(self)

    monkeypatch.setattr(AuditLog, "_bytes", late)
    assert [entry["round"] for entry in folder.audit_log.entries()] == [0, 1, 2, 3, 4]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 5), st.integers(0, 5))
def test_a_head_fits_its_own_lines_and_one_more(known, there):
    head = head_of(b"".join(LINES[:known]))
    wanted = {0: False, 1: True}.get(there - known)
    assert lags(head, b"".join(LINES[:there])) is wanted
    assert lags(None, b"".join(LINES[:there])) is {0: False, 1: True}.get(there)


def test_a_second_roster_is_not_signed_where_the_record_is_put_back_after_a_full_disk(tmp_path, monkeypatch):
    cohort = FakeCohort(tmp_path, Size(scheme="ring"))
    put, said = StateFiles.put, []

    def full(self, name, data):
        if name == RECORD_HEAD:
            raise StoreError("could not write: No space left on device")
        put(self, name, data)

    def told(cohort, name, request):
        envelope = Envelope.from_bytes(cohort.speak(name, request), 1 << 20)
        return envelope.about.text("reason", 64) if envelope.head.kind == "refusal" else envelope.head.kind

    def conduct(cohort, name, request):
        record = cohort.folder(name).path / "record.jsonl"
        assert not record.exists()
        with monkeypatch.context() as disk:
            disk.setattr(StateFiles, "put", full)
            said.append(told(cohort, name, request))
        said.append(told(cohort, name, request))
        record.unlink()
        cohort.restart(name)
        spec, parts = read_spec("confirm", request.frame)
        other = {"roster": roster_part(read_roster(parts["roster"])[:-1])}
        said.append(told(cohort, name, Request("query", request.tag, spec_frame("confirm", spec, other))))
        return []

    cohort.tell("holder-1", conduct, "confirm")
    assert cohort.begun().run_round(1).cause == ""
    assert said == ["member-storage", "confirmed", "member-storage"]
