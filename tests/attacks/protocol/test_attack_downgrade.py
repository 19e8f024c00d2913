"""A ring task is followed by a bfv task: same node, same signed list of members, and one lie of bfv.

Attacker: a lying node without corrupt holders, which chooses what the next task looks like. Success: the ceremony of a
joint key, and with it one client's update, as in `test_attack_chosen_c1.py`. It fails since `schemes` of a member's
own configuration is `ring` alone: everybody refuses before anything of the task is kept. Control: members whose
`schemes` names both give one update away.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from kit.cohort import FakeCohort, Size, wide_limits
from kit.crypto.attacker import lying_node, real_cohort, reason_of

from fednode.errors import TooFewHolders
from fednode.protocol.requests import TaskCard, ask_frame
from fednode_clients.limits import MemberLimits
from fednode_crypto import scheme

RING = Size(clients=4, holders=3, threshold=3, dimension=40, scheme="ring")
BFV = replace(RING, scheme="bfv")
DEFAULT = MemberLimits(max_epsilon=math.inf)
VICTIM = "client-2"


def downgraded(root, monkeypatch, limits: MemberLimits) -> FakeCohort:
    """Members that have taken part in a round of ring; from now on the node speaks of task-2, which is bfv."""
    cohort = real_cohort(root, RING, limits)
    assert cohort.begun().run_round(1).cause == ""
    monkeypatch.setattr("kit.cohort.TASK", "task-2")
    # a node that lies keeps no ledger
    (root / "ledger.jsonl").unlink()
    (root / "ledger.head").unlink()
    cohort.size, cohort.scheme = BFV, scheme("bfv")
    cohort.sent.clear()
    for member in cohort.cohort.members:
        cohort.restart(member.name)
    return cohort


def state(cohort: FakeCohort, name: str) -> set[str]:
    path = cohort.folder(name).path
    return {file.name for part in ("state", "tasks") for file in (path / part).iterdir()}


def test_everybody_refuses_the_second_task_and_keeps_nothing_of_it(tmp_path, monkeypatch):
    cohort = downgraded(tmp_path, monkeypatch, DEFAULT)
    parts = TaskCard("task-2", cohort.cohort, BFV.sum_params()).parts()
    for member in cohort.cohort.members:
        before = state(cohort, member.name)
        for kind in ("task", "key-commit", "key-reveal", "key-join") if member.role == "holder" else ("task",):
            assert reason_of(cohort, member.name, ask_frame(kind, "task-2", parts)) in ("scheme-floor", "unknown-task")
        assert reason_of(cohort, member.name, ask_frame("task", "task-2", parts)) == "scheme-floor"
        assert state(cohort, member.name) == before


def test_no_joint_key_is_made(tmp_path, monkeypatch):
    cohort = downgraded(tmp_path, monkeypatch, DEFAULT)
    with pytest.raises(TooFewHolders, match="scheme-floor"):
        cohort.begun()
    assert not [kind for _, kind in cohort.said if kind == "key-reveal"]


def test_control_members_that_allow_bfv_give_one_update_away(tmp_path, monkeypatch):
    node = lying_node(downgraded(tmp_path, monkeypatch, wide_limits()))
    chosen = node.sum_of([VICTIM]).request()
    assert np.array_equal(node.combined([VICTIM], node.answers(node.names, chosen)), node.cohort.plain[VICTIM])
