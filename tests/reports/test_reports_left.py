"""`fednode report`: from the report of a run, or from what a killed run left."""

import json
import shutil
from pathlib import Path

import pytest
from kit.smallrun import report_of, small_run

from fednode.assemble.report_facts import UNFINISHED, record_left
from fednode.assemble.rounds import NOTES_NAME
from fednode.cli import main
from fednode.errors import DataError, StoreError
from fednode.reports.figures import bound

pytestmark = pytest.mark.thorough

REPORTS = ("report.json", "report.html", "registry.yaml", "ledger.csv")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("finished"), rounds=3).folder


@pytest.fixture
def killed(finished: Path, tmp_path: Path) -> Path:
    """The folder as a kill leaves it that comes after the last round's charge and before its end was noted."""
    folder = Path(shutil.copytree(finished, tmp_path / finished.name))
    for name in REPORTS:
        (folder / name).unlink()
    notes = folder / NOTES_NAME
    notes.write_bytes(notes.read_bytes()[:-20])
    return folder


def test_a_killed_run_is_reported_with_every_round_that_was_charged(killed: Path, finished: Path) -> None:
    assert main(["report", str(killed)]) == 0
    found, whole = report_of(killed), report_of(finished)
    assert (found["outcome"], whole["outcome"]) == (UNFINISHED, "finished")
    assert found["rounds"][:2] == whole["rounds"][:2]
    last = found["rounds"][2]
    assert (last["outcome"], last["survivors"]) == ("failed", whole["rounds"][2]["survivors"])
    assert last["noise_added"] == pytest.approx(whole["rounds"][2]["noise_added"])
    assert found["guarantee"] == whole["guarantee"]
    spent = f"epsilon {bound(whole['guarantee']['epsilon'])} spent by 1 run,"
    assert (spent in whole["population"], found["population"]) == (True, "")
    assert found["trust"] == whole["trust"] | {"model_digest": whole["rounds"][1]["model_digest"]}
    assert whole["trust"]["model_digest"] == whole["rounds"][2]["model_digest"]
    assert "Round 3 was charged all the same." in found["deviations"]
    assert (killed / "report.html").read_bytes().startswith(b"<!DOCTYPE html>")


def test_a_run_killed_in_its_first_round_spent_nothing_and_verified_nothing(killed: Path) -> None:
    (killed / "ledger.jsonl").unlink()
    (killed / "ledger.head").unlink()
    (killed / "model.safetensors").unlink()
    notes = killed / NOTES_NAME
    notes.write_bytes(b"".join(notes.read_bytes().splitlines(keepends=True)[:2]))
    record, _ = record_left(killed)
    assert (record.guarantee.epsilon, record.rounds, record.trust.ledger_head) == (0.0, (), "")
    assert [claim.what for claim in record.claims.verified] == ["No sum was opened"]
    assert record.trust.model_digest == "no model was saved"


def test_a_report_is_made_again_from_the_report(finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "again"))
    before = {name: (folder / name).read_bytes() for name in REPORTS}
    (folder / "report.html").unlink()
    assert main(["report", str(folder)]) == 0
    assert {name: (folder / name).read_bytes() for name in REPORTS} == before


def test_a_report_of_a_run_without_an_end_is_made_anew(killed: Path) -> None:
    """It may have been made while the run went on."""
    main(["report", str(killed)])
    lines = (killed / NOTES_NAME).read_bytes().splitlines(keepends=True)
    (killed / NOTES_NAME).write_bytes(b"".join(lines[:3]))
    assert [one.reason is None for one in record_left(killed)[0].rounds] == [True, False, False]


def test_a_ledger_that_is_not_the_reports_is_refused(finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "cut"))
    ledger = folder / "ledger.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(StoreError, match="head"):
        record_left(folder)
    (folder / "ledger.head").unlink()
    with pytest.raises(StoreError, match="head"):
        record_left(folder)
    ledger.write_bytes(ledger.read_bytes().replace(b'"round":1', b'"round":7'))
    with pytest.raises(StoreError, match="line 2"):
        record_left(folder)


@pytest.mark.parametrize("content", [None, b"", b"{}\n{}\n", b'{"value":{}}\n{"value":{}}\n', b"\xff\n\n"])
def test_a_folder_without_notes_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / NOTES_NAME).write_bytes(content)
    with pytest.raises(DataError, match="notes"):
        record_left(tmp_path)


def test_the_notes_are_a_line_a_round(finished: Path) -> None:
    lines = [json.loads(line) for line in (finished / NOTES_NAME).read_bytes().splitlines()]
    assert [line["value"]["round"] for line in lines[2:]] == [1, 2, 3]
    assert (finished / NOTES_NAME).stat().st_mode & 0o777 == 0o600
