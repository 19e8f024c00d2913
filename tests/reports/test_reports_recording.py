"""From a session to the record: faults as they are written, what a lying node could break, and the number of words."""

from pathlib import Path

import pytest
from kit.clocks import FakeClock

from fednode.assemble.planning import plan_run
from fednode.assemble.recording import run_record
from fednode.assemble.session import Session, Tools
from fednode.errors import FednodeError, TooFewSurvivors
from fednode.observer import SilentObserver, StopFlag
from fednode.reports import RunRecord, parse_report, render_json
from fednode.settings import RunSettings
from fednode_crypto import scheme


def recorded(folder: Path, error: FednodeError | None = None, **settings: object) -> RunRecord:
    plan = plan_run(RunSettings.model_validate({"rounds": 1, **settings}))
    session = Session(plan, "a-run", folder, SilentObserver(), Tools(FakeClock(), scheme, StopFlag()))
    return run_record(session, error)


def test_faults_are_recorded_as_they_are_written(tmp_path: Path) -> None:
    record = recorded(tmp_path, faults=["garbage@1:client-04", "dead@1-:holder-1"])
    assert record.settings["faults"] == ["garbage@1:client-04", "dead@1-:holder-1"]
    assert record.injected == ("garbage@1:client-04", "dead@1-:holder-1")
    assert parse_report(render_json(record)) == record


@pytest.mark.parametrize("name", ["bfv", "ring"])
def test_what_only_an_honest_node_keeps_is_said_so(tmp_path: Path, name: str) -> None:
    record = recorded(tmp_path, scheme=name)
    weak = [claim.what for claim in record.claims.verified if "only for a node that follows the protocol" in claim.how]
    both = ["No sum of fewer than 15 updates was opened", "What was opened is the exact sum"]
    assert weak == (both if name == "bfv" else [])


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "No survivor gives its noise away"),
        (1, "At most 1 survivor gives its noise away"),
        (2, "At most 2 survivors give their noise away"),
    ],
)
def test_colluders_are_counted_in_words_that_agree(tmp_path: Path, count: int, words: str) -> None:
    record = recorded(tmp_path, assumed_colluders=count)
    assert words in [claim.what for claim in record.claims.assumed]


def test_the_outcome_counts_rounds_in_words_that_agree(tmp_path: Path) -> None:
    assert recorded(tmp_path).outcome_sentence == "the only round was released"
    assert recorded(tmp_path, rounds=3).outcome_sentence == "all 3 rounds were released"
    failed = recorded(tmp_path, TooFewSurvivors("13 updates arrived"))
    assert failed.outcome_sentence == "no round was released; 13 updates arrived"
