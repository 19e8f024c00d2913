"""Every way a run can end early: one cause, one exit code, a report, a whole ledger, nothing half-written."""

from dataclasses import replace
from pathlib import Path

import pytest
from kit.crypto.plainsum import InsecurePlainSum
from kit.smallrun import InsecureLiar, report_of, small_run, small_settings

from fednode.assemble import inprocess_run as running
from fednode.assemble.inprocess_run import run_inproc
from fednode.assemble.planning import plan_task
from fednode.assemble.run_result import RunResult
from fednode.assemble.serve import node_app
from fednode.assemble.session import Environment
from fednode.clock import SystemClock
from fednode.errors import (
    BudgetExhausted,
    Interrupted,
    OpeningRejected,
    StoreError,
    TooFewHolders,
    TooFewSurvivors,
)
from fednode.inproc import InProcGrid, run_in_process
from fednode.members import member_names
from fednode.observer import Observer, StopFlag
from fednode.privacy import Budget, Ledger
from fednode.privacy.journal import Journal
from fednode.server import GridChannel
from fednode.settings import to_run_config
from fednode_clients.app import build_app
from fednode_clients.membership import MemberParts
from fednode_study import study

PLAIN = Environment(schemes=lambda _: InsecurePlainSum())
ALWAYS = {"report.html", "report.json", "registry.yaml", "run.log", "config.toml", "rounds.jsonl"}


def check_ended(result: RunResult, kind: type[Exception], outcome: str, charges: int) -> dict:
    """The error, its report, and that all that was written is whole."""
    assert type(result.error) is kind
    report = report_of(result.folder)
    assert report["outcome"] == outcome and str(result.error) in report["outcome_sentence"]
    names = {path.name for path in result.folder.iterdir()}
    released = sum(entry["outcome"] == "released" for entry in report["rounds"])
    made = {"model.safetensors"} if released else set()
    assert names == ALWAYS | {"ledger.jsonl", "ledger.head"} | made | ({"ledger.csv"} if charges else set())
    budget = Budget(report["guarantee"]["epsilon_limit"], report["guarantee"]["delta"])
    with Ledger.open(result.folder / "ledger.jsonl", budget, SystemClock(), report["run_id"]) as ledger:
        assert (len(ledger.entries), ledger.repair) == (charges, None)
        assert ledger.spent == report["guarantee"]["epsilon"]
    assert str(result.error) in (result.folder / "run.log").read_text()
    return report


def test_too_few_survivors(tmp_path):
    faults = ("lost-before-upload@2:client-1", "garbage@2:client-2")
    report = check_ended(small_run(tmp_path, PLAIN, faults=faults), TooFewSurvivors, "too-few-survivors", 1)
    assert [entry["outcome"] for entry in report["rounds"]] == ["released", "failed"]
    assert "2 of 4 updates arrived and 3 are the least" in report["rounds"][1]["reason"]


def test_two_dead_holders(tmp_path):
    faults = ("dead@2-:holder-1", "dead@2-:holder-3")
    report = check_ended(small_run(tmp_path, PLAIN, faults=faults), TooFewHolders, "too-few-holders", 2)
    assert report["rounds"][1]["holders_silent"] == ["holder-1 (no-answer)", "holder-3 (no-answer)"]
    assert "Round 2 was charged all the same." in report["deviations"]


def test_an_opening_that_fails_its_check(tmp_path):
    inside = Environment(schemes=lambda _: InsecureLiar())
    result = small_run(tmp_path, inside, faults=("dead@1:holder-3",))
    report = check_ended(result, OpeningRejected, "opening-rejected", 1)
    assert report["rounds"][0]["accuracy"] is None and "not published" in report["rounds"][0]["reason"]


def test_a_budget_that_is_spent(tmp_path, monkeypatch):
    def poorer(settings, workload):
        plan = plan_task(settings, workload)
        return replace(plan, budget=Budget(plan.budget.epsilon * 0.8, plan.budget.delta))

    monkeypatch.setattr(running, "plan_task", poorer)
    report = check_ended(small_run(tmp_path, PLAIN, rounds=2), BudgetExhausted, "budget-spent", 1)
    assert [entry["outcome"] for entry in report["rounds"]] == ["released"]
    assert report["guarantee"]["epsilon"] <= report["guarantee"]["epsilon_limit"]


class StoppingAt(Observer):
    """Raises the flag when a round is over."""

    def __init__(self, stop: StopFlag) -> None:
        self.stop = stop

    def round_done(self, progress) -> None:
        self.stop.stop()


def test_a_stop_between_rounds(tmp_path):
    stop = StopFlag()
    result = run_inproc(small_settings(tmp_path, rounds=5), StoppingAt(stop), stop, PLAIN)
    report = check_ended(result, Interrupted, "stopped", 1)
    assert report["rounds"][0]["outcome"] == "released"


def test_a_ledger_that_is_no_file(tmp_path, monkeypatch):
    make = running.make_run_folder

    def with_full_disk(settings, clock):
        folder = make(settings, clock)
        (folder / "ledger.jsonl").symlink_to("/dev/full")
        return folder

    monkeypatch.setattr(running, "make_run_folder", with_full_disk)
    result = small_run(tmp_path, PLAIN)
    assert type(result.error) is StoreError and "no regular file" in str(result.error)
    report = report_of(result.folder)
    assert report["outcome"] == "disk-refused" and report["rounds"] == [] and report["guarantee"]["epsilon"] == 0
    assert {path.name for path in result.folder.iterdir()} == ALWAYS | {"ledger.jsonl"}


def test_a_disk_that_fills_up_between_two_rounds(tmp_path, monkeypatch):
    append, lines = Journal.append, []

    def filling(journal, line, at):
        lines.append(line)
        if len(lines) > 2:
            raise StoreError("could not write the ledger: No space left on device")
        append(journal, line, at)

    monkeypatch.setattr(Journal, "append", filling)
    result = small_run(tmp_path, PLAIN, rounds=3)
    monkeypatch.undo()
    report = check_ended(result, StoreError, "disk-refused", 1)
    assert [entry["outcome"] for entry in report["rounds"]] == ["released", "failed"]
    assert report["rounds"][1]["reason"].startswith("broken off: could not write the ledger")
    assert report["rounds"][1]["epsilon_after"] == report["rounds"][0]["epsilon_after"]


def test_a_run_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match="choose another --out"):
        small_run(tmp_path, PLAIN, out=Path(tmp_path / "file" / "runs"))
    assert (tmp_path / "file").read_text() == "not a folder"


def test_what_the_node_noticed_of_its_members_is_a_deviation(tmp_path, monkeypatch):
    honest = GridChannel._bind

    def twice(channel, node, *rest):
        honest(channel, node, *rest)
        if node == 105:
            honest(channel, node + 100, *rest)

    monkeypatch.setattr(GridChannel, "_bind", twice)
    said: list[str] = []
    observer = Observer()
    observer.phase = said.append
    result = run_inproc(small_settings(tmp_path, rounds=1), observer, StopFlag(), PLAIN)
    (told,) = report_of(result.folder)["deviations"]
    assert f"warning: {told}" in said
    assert result.error is None and told.startswith("Two nodes answer as holder-2: its key folder was copied")
    assert "nodes 105 and 205 answer as holder-2" in (result.folder / "run.log").read_text()


class Gone:
    """Standard error after whoever read it has left."""

    def write(self, _text):
        raise BrokenPipeError

    def flush(self):
        raise BrokenPipeError


def test_a_run_on_flowers_engine_goes_on_when_whoever_submitted_it_is_gone(tmp_path, monkeypatch):
    settings, keys = small_settings(tmp_path, rounds=1), tmp_path / "keys"
    config = to_run_config(settings) | {"key-root": str(keys)}
    names = member_names("client", settings.clients) + member_names("holder", settings.holders)
    grid = InProcGrid(build_app(MemberParts(), study.train), names, config)
    monkeypatch.setattr("sys.stderr", Gone())
    run_in_process(node_app(), grid, config)
    monkeypatch.undo()
    (folder,) = (tmp_path / "runs").glob("2*")
    assert report_of(folder)["outcome"] == "finished"


def test_no_keys_are_left_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    result = small_run(tmp_path, PLAIN, rounds=1, faults=("dead@1:holder-1", "dead@1:holder-2"))
    assert type(result.error) is TooFewHolders
    assert list((tmp_path / "tmp").iterdir()) == []
    written = b"".join(path.read_bytes() for path in result.folder.iterdir())
    assert b"signing_key" not in written and b"box_key" not in written
