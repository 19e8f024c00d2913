"""From a session to the record: faults as they are written, what a lying node could break, and the number of words."""

from pathlib import Path

from kit.clocks import FakeClock

from fednode.assemble.claims import ONE_LIE
from fednode.assemble.planning import plan_run
from fednode.assemble.report_facts import run_record
from fednode.assemble.rounds import round_record
from fednode.assemble.serve import ArraysOnly
from fednode.assemble.session import Environment, Session
from fednode.driver import RoundOutcome
from fednode.errors import FednodeError, TooFewSurvivors
from fednode.live import Tuned
from fednode.observer import Observer, StopFlag
from fednode.reports import RunRecord, parse_report, render_json, summary_rows
from fednode.reports.page import statement
from fednode.settings import RunSettings


def session_of(folder: Path, **settings: object) -> Session:
    plan = plan_run(RunSettings.model_validate({"rounds": 1, **settings}))
    return Session(plan, folder, Observer(), StopFlag(), ArraysOnly, Environment(clock=FakeClock()))


def recorded(folder: Path, error: FednodeError | None = None, **settings: object) -> RunRecord:
    return run_record(session_of(folder, **settings), error)


def test_faults_are_recorded_as_they_are_written(tmp_path: Path) -> None:
    record = recorded(tmp_path, faults=["garbage@1:client-04", "dead@1-:holder-1"])
    assert record.settings["faults"] == ["garbage@1:client-04", "dead@1-:holder-1"]
    assert record.injected == ("garbage@1:client-04", "dead@1-:holder-1")
    assert parse_report(render_json(record)) == record


def test_a_warning_of_the_plan_is_no_deviation(tmp_path: Path) -> None:
    record = recorded(tmp_path, holders=3, threshold=2)
    assert record.deviations == ()
    (told,) = record.warnings
    assert "with 2 of 3 holders one corrupt holder is enough for a node that lies to read an update" in told
    assert [text for name, text in summary_rows(record) if name == "Warning"] == [told]
    assert recorded(tmp_path).warnings == ()


def test_what_was_tuned_on_the_way_is_recorded(tmp_path: Path) -> None:
    session = session_of(tmp_path)
    session.tuned.append(Tuned(1_700_000_000.0, "parameters", "jitter", 0.1, 0.2))
    (told,) = run_record(session, None).deviations
    assert told == "parameters.jitter of the cache was changed from 0.1 to 0.2 at 2023-11-14 22:13:20 UTC."


def test_the_record_and_its_statement_say_whose_work_the_sum_is(tmp_path: Path) -> None:
    ring, bfv = recorded(tmp_path), recorded(tmp_path, scheme="bfv")
    assert "FedNode's own arithmetic, which nobody outside has audited" in statement(ring)
    assert "ring-LWE: about 128 bits" in statement(ring) and "96 to 98 by core-SVP" in statement(ring)
    assert "TenSEAL's BFV, a standard scheme" in statement(bfv) and "95 by core-SVP" in statement(bfv)
    assert [claim.how for claim in bfv.claims.assumed if claim.what == "The node follows the protocol"] == [ONE_LIE]
    assert ONE_LIE in statement(bfv) and "joint secret key" in ONE_LIE


def test_the_outcome_counts_rounds_in_words_that_agree(tmp_path: Path) -> None:
    assert recorded(tmp_path).outcome_sentence == "the only round was released"
    assert recorded(tmp_path, rounds=2).outcome_sentence == "both rounds were released"
    assert recorded(tmp_path, rounds=3).outcome_sentence == "all 3 rounds were released"
    failed = recorded(tmp_path, TooFewSurvivors("13 updates arrived"))
    assert failed.outcome_sentence == "no round was released; 13 updates arrived"


def test_a_model_that_nobody_could_test_is_not_unfinished(tmp_path: Path) -> None:
    session = session_of(tmp_path)
    released = RoundOutcome(round=1, cause="", reason="", invited=20, survivors=("client-01",), opened=True)
    session.rounds.append(round_record(session.plan, released, None, (1.0, 1.1)))
    session.released = session.saved = session.tested = 1
    record = run_record(session, None)
    assert record.accuracies == () and record.unfinished == () and record.deviations == ()
    session.tested = 0
    record = run_record(session, None)
    assert record.unfinished == (1,) and len(record.deviations) == 1
