"""A key folder whose tasks are closed for good: nothing of them is answered, a new one is taken."""

import shutil
from pathlib import Path

import pytest
from kit.cohort import TASK, FakeCohort, Size

from fednode.errors import PeerFault, StoreError
from fednode.protocol.envelope import Envelope
from fednode.protocol.requests import TaskCard, ask_frame, key_request
from fednode_clients.keyfolder.audit_log import RECORD_HEAD
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.retire import Retired, retire
from fednode_clients.keyfolder.state_files import hashed
from fednode_crypto.identity import SigningKey

SIZES = {"bfv": Size(clients=3, holders=3), "ring": Size(clients=3, holders=3, dimension=4, scheme="ring")}
OWN = {"identity.json", "enrolment.pub"}


@pytest.fixture(params=SIZES)
def cohort(tmp_path, request):
    made = FakeCohort(tmp_path, SIZES[request.param])
    assert made.begun().run_round(1).cause == ""
    return made


def reason(cohort: FakeCohort, name: str, request) -> str:
    said = Envelope.from_bytes(cohort.speak(name, request), 1 << 26, 1 << 26)
    return said.about.text("reason", 64) if said.head.kind == "refusal" else ""


def asked(cohort: FakeCohort, name: str) -> list:
    found = [request for member, request in cohort.sent if member == name]
    assert len(found) >= 2
    return found


def give(cohort: FakeCohort, name: str, task: str) -> None:
    """A new boxed task."""
    card = TaskCard(task, cohort.cohort, SIZES["ring"].sum_params())
    one = cohort.client(name) if name.startswith("client") else cohort.holder(name)
    assert one.take_task(ask_frame("task", task, card.parts())).head.kind == "ready"


@pytest.mark.parametrize("name", ["client-1", "holder-1"])
@pytest.mark.parametrize("restarted", [False, True])
def test_every_request_of_a_closed_task_is_refused_and_a_new_task_is_taken(cohort, name, restarted):
    folder, requests = cohort.folder(name), asked(cohort, name)
    assert retire(folder) == Retired(1, ())
    if restarted:
        cohort.restart(name)
    assert {reason(cohort, name, request) for request in requests if request.call == "train" or name[0] == "h"} == {
        "retired"
    }
    # nothing is left that could open or repeat anything, and the record can be looked at
    assert [file.name for file in (folder.path / "state").iterdir()] == [hashed(RECORD_HEAD)]
    assert [entry["rounds"] for entry in folder.audit_log.entries()] == [1] * (name == "client-1")
    assert (folder.path / "record-1.jsonl").read_bytes().count(b"\n") >= 1
    if cohort.size.scheme == "ring":
        give(cohort, name, "task-2")
    assert retire(folder, ["task-7"]).closed == 1 + (cohort.size.scheme == "ring")


def test_identity_and_trust_alone_are_a_member_and_know_no_task(cohort):
    for name in ("client-1", "holder-1"):
        path = cohort.folder(name).path
        for kept in path.iterdir():
            if kept.name not in OWN:
                shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
        cohort.restart(name)
        # the task that was forgotten is named by hand
        assert retire(KeyFolder.open(path)) == Retired(0, ()) and retire(KeyFolder.open(path), [TASK]).closed == 1
        task = next(request for request in asked(cohort, name))
        assert reason(cohort, name, task) == "retired"
        if cohort.size.scheme == "ring":
            give(cohort, name, "task-2")


def test_a_damaged_record_still_names_its_tasks(tmp_path):
    folder = KeyFolder.create(tmp_path / "keys", "holder-1", SigningKey.generate().public)
    for verb in ("joined", "confirmed", "opened"):
        folder.audit_log.append({verb: f"task of {verb}", "round": 1})
    record = folder.path / "record.jsonl"
    record.write_bytes(b'not JSON\n7\n{"opened":8}\n' + record.read_bytes() + b'{"joined":"torn"')
    with pytest.raises(StoreError):
        folder.audit_log.entries()
    assert retire(folder).closed == 3
    for verb in ("joined", "confirmed", "opened"):
        with pytest.raises(PeerFault, match="retired"):
            folder.tasks.require_open(f"task of {verb}")
    folder.tasks.require_open("another")
    folder.audit_log.append({"joined": "another", "round": 1})
    lost, _ = folder.audit_log.entries()
    assert lost == {"joined": None, "cost": None}


@pytest.mark.parametrize("verb", ["unlink", "replace"])
def test_what_a_crash_leaves_stays_closed_and_is_finished_by_the_next_call(cohort, monkeypatch, verb):
    folder, working = cohort.folder("holder-1"), getattr(Path, verb)

    def full(path, *arguments, **named):
        if path.parent.name == "state" or "record" in path.name:
            raise OSError(5, "Input/output error")
        return working(path, *arguments, **named)

    with monkeypatch.context() as broken:
        broken.setattr(Path, verb, full)
        with pytest.raises(StoreError, match="Input/output error"):
            retire(folder)
    cohort.restart("holder-1")
    assert {reason(cohort, "holder-1", request) for request in asked(cohort, "holder-1")} <= {
        "retired",
        "member-storage",
    }
    assert retire(folder).closed == 0
    assert [file.name for file in (folder.path / "state").iterdir()] == [hashed(RECORD_HEAD)]


def test_a_mark_that_cannot_be_read_is_no_permission(tmp_path, monkeypatch):
    folder = KeyFolder.create(tmp_path / "keys", "holder-1", SigningKey.generate().public)

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", denied)
    with pytest.raises(StoreError, match="Permission denied"):
        folder.tasks.require_open(TASK)


def test_a_named_task_that_the_folder_does_not_know_is_closed_and_said(cohort):
    folder = cohort.folder("client-1")
    assert retire(folder, ["tsak-1", TASK, "run-7", "tsak-1"]) == Retired(3, ("tsak-1", "run-7"))
    for task in (TASK, "tsak-1", "run-7"):
        with pytest.raises(PeerFault, match="retired"):
            folder.tasks.require_open(task)
    # known by now, as is what the folder took before
    assert retire(folder, [TASK, "run-7"]) == Retired(0, ())


def test_a_retired_holder_gives_no_key_for_a_later_round(cohort):
    retire(cohort.folder("holder-1"))
    if cohort.scheme.boxed:
        with pytest.raises(PeerFault, match="retired"):
            cohort.holder("holder-1").handle(key_request(TASK, 2))
