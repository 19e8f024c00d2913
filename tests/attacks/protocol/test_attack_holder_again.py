"""A holder asked again: after a restart, for another roster, twice at the same moment, for the keys of the past.

Attacker: a lying node that restarts a holder's process (not its disk) at will, or gets its key folder after the round.
Success: one honest holder answers for two rosters of a round, or a box of a past round opens. It fails: the record is
on disk before the answer leaves, one process at a time uses a key folder, and key and boxes of a round are destroyed
when it is opened. A record lost or restored by itself does not match state/: the holder only destroys its key. A folder
restored as a whole is safe after `fednode keys retire`. Control: holders whose folders are restored to before their
answer answer twice, which gives one client's update (docs/threats.md); without the lock two processes both answer.
"""

import shutil
import threading
from contextlib import nullcontext, suppress
from itertools import product

import numpy as np
import pytest
from kit import cohort as kit
from kit.crypto.attacker import LyingNode, Refused, reason_of
from kit.marks import MARKED

from fednode.errors import PeerFault, StoreError
from fednode.protocol.boxkeys import box_context, box_name
from fednode.protocol.requests import close_request, frame_kind, key_request, roster_part, spec_frame
from fednode_clients.holder.holder import Holder
from fednode_clients.keyfolder.exclusive import exclusive
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.retire import retire
from fednode_clients.keyfolder.state_files import StateFiles
from fednode_crypto import Tampered
from fednode_crypto.identity import open_box


def wanted(node: LyingNode, names) -> bytes:
    return node.sum_of(names).request()


def test_the_same_question_gets_the_same_bytes_and_another_roster_nothing(node):
    everybody, rest = node.names, node.names[1:]
    for holder in node.holders:
        first = node.opened_by(holder, everybody, wanted(node, everybody))
        for _ in range(2):
            node.cohort.restart(holder)
            assert node.opened_by(holder, everybody, wanted(node, everybody)) == first
            for names in (rest, everybody[::-1]):
                with pytest.raises(Refused, match="already-opened"):
                    node.opened_by(holder, names, wanted(node, names))


def test_a_lost_answer_is_not_made_again(node):
    node.opened_by("holder-1", node.names, wanted(node, node.names))
    node.cohort.folder("holder-1").state.drop(f"answer/{kit.TASK}")
    node.cohort.restart("holder-1")
    with pytest.raises(Refused, match="already-opened"):
        node.opened_by("holder-1", node.names, wanted(node, node.names))


def test_a_crash_before_the_answer_is_kept_still_counts_as_opened(node, monkeypatch):
    kept = StateFiles.put

    def dying(folder, name, data):
        if name.startswith("answer/"):
            raise RuntimeError("the process ends here")
        kept(folder, name, data)

    with monkeypatch.context() as dead:
        dead.setattr("fednode_clients.keyfolder.folder.StateFiles.put", dying)
        with pytest.raises(RuntimeError):
            node.opened_by("holder-1", node.names, wanted(node, node.names))
    node.cohort.restart("holder-1")
    for names in (node.names, node.names[1:]):
        with pytest.raises(Refused, match="already-opened"):
            node.opened_by("holder-1", names, wanted(node, names))


# --- at the same moment


def asked_at_once(node: LyingNode, monkeypatch, patience: float) -> list[str]:
    """Two processes of holder-1 are asked for two rosters; each waits so long for the other before it records."""
    gate, honest = threading.Barrier(2, timeout=patience), Holder._answer
    said = ["", ""]

    def together(self, *arguments):
        body = honest(self, *arguments)
        with suppress(threading.BrokenBarrierError):
            gate.wait()
        return body

    def ask(number, names):
        process = node.cohort._opened("holder-1").holder(kit.place("holder-1"))
        try:
            said[number] = process.handle(node.frame(node.heads(names), wanted(node, names))).head.kind
        except PeerFault as fault:
            said[number] = fault.reason

    monkeypatch.setattr(Holder, "_answer", together)
    rosters = (node.names, node.names[1:])
    for holder, names in product(node.holders if node.cohort.scheme.boxed else (), rosters):
        node.corrupt_confirm(holder, names)
    threads = [threading.Thread(target=ask, args=case) for case in enumerate(rosters)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(said)


def test_two_rosters_at_the_same_moment_get_one_answer(node, monkeypatch):
    assert asked_at_once(node, monkeypatch, 0.3) == ["already-opened", "answer"]
    assert len([e for e in node.cohort.folder("holder-1").audit_log.entries() if e.get("round") == 1]) == 1


def test_control_without_the_lock_both_are_answered(node, monkeypatch):
    monkeypatch.setattr("fednode_clients.holder.holder.exclusive", lambda _: nullcontext())
    assert asked_at_once(node, monkeypatch, 30.0) == ["answer", "answer"]


def test_the_lock_is_let_go_when_its_block_fails(ring):
    folder = ring.cohort.folder("holder-1")
    for _ in range(2):
        with pytest.raises(KeyError), exclusive(folder):
            raise KeyError("inside")
    shutil.rmtree(folder.path)
    with pytest.raises(StoreError, match=r"turn\.lock"), exclusive(folder):
        raise AssertionError("entered without a lock")


# --- a record that is gone

LOSSES = {
    "lost": lambda record, _: record.unlink(),
    "emptied": lambda record, _: record.write_bytes(b""),
    "put back": lambda record, before: record.write_bytes(before),
    "cut by a line": lambda record, _: record.write_bytes(record.read_bytes().rpartition(b"\n{")[0] + b"\n"),
}


def everything(node: LyingNode, names) -> dict[str, bytes]:
    """Every request that could lead a holder to a second roster or to the next round."""
    return {
        "box-key": key_request(kit.TASK, 2),
        "confirm": spec_frame("confirm", node.spec, {**MARKED, "roster": roster_part(node.heads(names))}),
        "open": node.frame(node.heads(names), wanted(node, names)),
    }


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("step", ["confirmed", "opened"])
def test_a_holder_whose_record_is_gone_takes_no_further_step(ring, loss, step):
    folder = ring.cohort.folder("holder-1")
    # a line before, so that something is left to put back
    folder.audit_log.append({"confirmed": "another", "round": 1})
    before = (folder.path / "record.jsonl").read_bytes()
    if step == "confirmed":
        ring.confirm("holder-1", ring.names)
    else:
        ring.opened_by("holder-1", ring.names)
    loss(folder.path / "record.jsonl", before)
    ring.cohort.restart("holder-1")
    frames = [frame for names in (ring.names, ring.names[1:]) for frame in everything(ring, names).values()]
    before_it = {frame_kind(request.frame): request.frame for name, request in ring.cohort.sent if name == "holder-1"}
    assert {"task", "box-key", "boxes"} <= set(before_it)
    for frame in (*frames, *(frame for kind, frame in before_it.items() if kind != "close")):
        assert reason_of(ring.cohort, "holder-1", frame) == "member-storage"
    # destroying the key is right even then
    assert reason_of(ring.cohort, "holder-1", close_request(kit.TASK, 1)) == ""


def test_a_crash_between_a_confirmation_and_the_head_of_the_record_forgets_nothing(ring, monkeypatch):
    def dying(_folder, _name, _data):
        raise RuntimeError("the process ends here")

    with monkeypatch.context() as dead:
        dead.setattr(StateFiles, "put", dying)
        with pytest.raises(RuntimeError):
            ring.confirm("holder-1", ring.names)
    ring.cohort.restart("holder-1")
    with pytest.raises(Refused, match="already-confirmed"):
        ring.confirm("holder-1", ring.names[1:])
    ring.confirm_all(ring.names)
    assert ring.opened_by("holder-1", ring.names)


def test_a_folder_that_was_put_back_and_retired_answers_for_no_roster(node):
    keys, backup = node.cohort.root / "keys", node.cohort.root / "backup"
    shutil.copytree(keys / "holder-1", backup)
    node.opened_by("holder-1", node.names, wanted(node, node.names))
    shutil.rmtree(keys / "holder-1")
    shutil.copytree(backup, keys / "holder-1")
    for retired in (1, 0):
        assert retire(KeyFolder.open(keys / "holder-1")).closed == retired
        for names in (node.names, node.names[1:]):
            for kind, frame in everything(node, names).items():
                boxes_only = kind != "open" and not node.cohort.scheme.boxed
                assert boxes_only or reason_of(node.cohort, "holder-1", frame) == "retired"
        node.cohort.restart("holder-1")


# --- keys of the past


def test_keys_and_boxes_of_an_opened_round_are_gone(ring):
    for holder in ring.holders:
        before = ring.cohort.folder(holder).state.get(f"box-key/{kit.TASK}")
        ring.opened_by(holder, ring.names)
        assert reason_of(ring.cohort, holder, key_request(kit.TASK, 1)) == "already-opened"
        kept = b"".join(file.read_bytes() for file in ring.cohort.folder(holder).path.rglob("*") if file.is_file())
        assert before[8:] not in kept and before[8:].hex().encode() not in kept


def test_whoever_gets_the_folder_after_the_round_opens_no_box(ring):
    folder = ring.cohort.folder("holder-2")
    ring.opened_by("holder-2", ring.names)
    me = ring.cohort.cohort.member("holder-2")
    for name in ring.names:
        box = ring.updates[name].attached[box_name(2)]
        with pytest.raises(Tampered):
            open_box(folder.box_key, box, box_context(ring.spec.digest(), name, me))


def test_a_round_that_is_past_gets_no_key_and_the_next_round_another(ring):
    first = ring.cohort.folder("holder-1").state.get(f"box-key/{kit.TASK}")
    assert reason_of(ring.cohort, "holder-1", key_request(kit.TASK, 2)) == ""
    later = ring.cohort.folder("holder-1").state.get(f"box-key/{kit.TASK}")
    assert later[8:] != first[8:]
    assert reason_of(ring.cohort, "holder-1", key_request(kit.TASK, 1)) == "past-round"
    with pytest.raises(Refused, match="bad-request"):
        ring.opened_by("holder-1", ring.names)


def test_control_a_restored_backup_answers_twice_and_gives_one_update(ring):
    keys, backup = ring.cohort.root / "keys", ring.cohort.root / "backup"
    shutil.copytree(keys, backup)
    sums = []
    for names in (ring.names, ring.names[1:]):
        ring.confirm_all(names)
        sums.append(ring.combined(names, ring.answers(names)))
        for holder in ring.holders:
            shutil.rmtree(keys / holder)
            shutil.copytree(backup / holder, keys / holder)
            ring.cohort.restart(holder)
    assert np.array_equal(sums[0] - sums[1], ring.cohort.plain["client-1"])
