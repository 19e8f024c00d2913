"""A ledger that is emptied or cut between two runs: what was spent would be spent again.

Attacker: whoever can write the node's disk, and takes the ledger's file and its head file back to an earlier state, or
away. Success: a round is opened that the ledger prices as if the earlier ones had never been. Control: holders that
keep no mark of the ledger open it.
"""

from dataclasses import replace

import pytest
from kit.cohort import FakeCohort, Size

from fednode.clock import SystemClock
from fednode.errors import DataError, StoreError
from fednode.privacy import Budget, Ledger
from fednode.privacy.chain import replay
from fednode.privacy.journal import ConfirmedHead, Journal, head_file
from fednode.protocol.ledger_mark import LedgerMark
from fednode.reports.ledger_check import signed_line

RING = Size(clients=4, holders=3, threshold=2, scheme="ring")


def _ledger(cohort, path):
    return Ledger.of_population(path, Budget(1e6, 1e-5), SystemClock(), cohort.task().name)


def _taken_back(path, keep):
    lines = path.read_bytes().splitlines(keepends=True)
    path.unlink()
    head_file(path).unlink()
    if keep:
        path.write_bytes(b"".join(lines[:keep]))
        history = replay(path.read_bytes(), str(path)).history
        Journal(path).confirm(ConfirmedHead(history.size, history.head))


@pytest.mark.parametrize("keep", [0, 2])
def test_no_round_is_opened_beside_a_ledger_that_lost_what_holders_saw(tmp_path, keep):
    cohort, path = FakeCohort(tmp_path / "cohort", RING), tmp_path / "records.ledger.jsonl"
    driver = cohort.begun(replace(cohort.node(), ledger=_ledger(cohort, path)))
    assert driver.run_round(1).release and driver.run_round(2).release
    _taken_back(path, keep)
    driver._node = replace(driver._node, ledger=_ledger(cohort, path))
    outcome = driver.run_round(3)
    assert outcome.release is None and outcome.cause
    assert {reason for _, reason in outcome.silent} == {"refused: another-ledger"}


def test_control_holders_without_marks_open_it(tmp_path, monkeypatch):
    monkeypatch.setattr(LedgerMark, "require_among", lambda *_: None)
    cohort, path = FakeCohort(tmp_path / "cohort", RING), tmp_path / "records.ledger.jsonl"
    driver = cohort.begun(replace(cohort.node(), ledger=_ledger(cohort, path)))
    assert driver.run_round(1).release
    _taken_back(path, 0)
    driver._node = replace(driver._node, ledger=_ledger(cohort, path))
    assert driver.run_round(2).release


def test_a_holders_record_shows_what_a_ledger_lost(tmp_path):
    cohort, path = FakeCohort(tmp_path / "cohort", RING), tmp_path / "records.ledger.jsonl"
    driver = cohort.begun(replace(cohort.node(), ledger=_ledger(cohort, path)))
    assert driver.run_round(1).release and driver.run_round(2).release
    record = cohort.folder("holder-1").path / "record.jsonl"
    assert signed_line(path, record).startswith("signed     4 marks")
    _taken_back(path, 2)
    with pytest.raises(StoreError):
        signed_line(path, record)
    with pytest.raises(DataError):
        signed_line(path, tmp_path / "nothing")
