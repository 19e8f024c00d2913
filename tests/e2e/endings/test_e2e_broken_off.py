"""Whatever breaks a run off after a charge: the round is in the report, and nothing there is said that is not so."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.crypto.plainsum import InsecurePlainSum
from kit.smallrun import report_of, small_settings

from fednode.assemble import session
from fednode.assemble.inprocess_run import run_inproc
from fednode.assemble.session import Environment
from fednode.driver import driver, holders
from fednode.driver.downloads import Download, Downloads
from fednode.errors import FednodeError, PeerFault, StoreError
from fednode.live import LiveView
from fednode.observer import Observer, StopFlag
from fednode.privacy import Ledger, epsilon
from fednode.privacy.chain import replay
from fednode.privacy.journal import Journal
from fednode.reports import parse_report
from fednode.server import GridChannel
from fednode.stores import ParameterStore, UpdateStore
from fednode_study.experiment import Experiment

PLAIN = Environment(schemes=lambda _: InsecurePlainSum())
ERRORS = [StoreError("No space left on device"), KeyboardInterrupt(), ZeroDivisionError("my-card-4929")]


@dataclass(frozen=True)
class Place:
    """Something that a run calls after a charge; `after` has it do its work before it breaks."""

    owner: object
    name: str
    after: bool = False

    def __str__(self):
        return getattr(self.owner, "__name__", "").rpartition(".")[2] + f".{self.name}" + "+" * self.after

    def breaks(self, monkeypatch, root, charges, error):
        """From the moment on that the ledger holds so many charges, the first call raises."""
        honest, raised = getattr(self.owner, self.name), []

        def call(*given, **named):
            done = honest(*given, **named) if self.after else None
            if not raised and charged(root) >= charges:
                raised.append(error)
                raise error
            return done if self.after else honest(*given, **named)

        monkeypatch.setattr(self.owner, self.name, call)
        return raised


PLACES = [
    Place(Journal, "append", after=True),
    Place(Ledger, "charge", after=True),
    Place(holders, "open_requests"),
    Place(GridChannel, "send"),
    Place(GridChannel, "receive"),
    Place(GridChannel, "receive", after=True),
    Place(holders, "read_opening"),
    Place(holders, "combine_answers"),
    Place(holders, "combine_answers", after=True),
    Place(Download, "certify"),
    Place(UpdateStore, "consume"),
    Place(UpdateStore, "consume", after=True),
    Place(Downloads, "publish"),
    Place(ParameterStore, "write"),
    Place(ParameterStore, "write", after=True),
    Place(ParameterStore, "read"),
    Place(driver.Driver, "run_round", after=True),
    Place(Experiment, "save"),
    Place(Experiment, "save", after=True),
    Place(Experiment, "hits"),
    Place(session.Session, "_note_round"),
    Place(session.Session, "_note_round", after=True),
    Place(Observer, "round_done"),
    Place(LiveView, "__exit__", after=True),
    Place(Ledger, "close", after=True),
]
RING_PLACES = [Place(driver, "close_round"), Place(driver, "close_round", after=True), Place(holders, "read_opening")]


def charged(root: Path) -> int:
    files = list(root.glob("runs/*/ledger.jsonl"))
    return max(0, files[0].read_bytes().count(b"\n") - 1) if files else 0


def run_broken(root, inside=PLAIN, **changes):
    """The folder of a run that ends as it may."""
    try:
        result = run_inproc(small_settings(root, **changes), Observer(), StopFlag(), inside)
        assert result.error is None or isinstance(result.error, FednodeError)
    except (KeyboardInterrupt, ZeroDivisionError):
        pass
    (folder,) = (root / "runs").glob("2*")
    return folder


def check_told(folder: Path) -> dict:
    """All that was charged is in the report, with its price, and what it claims is so. Returns the report."""
    report, history = report_of(folder), replay((folder / "ledger.jsonl").read_bytes(), "ledger").history
    record = parse_report((folder / "report.json").read_bytes())
    charges = [entry.charge for entry in history.entries]
    rows = {entry.round: entry for entry in record.rounds}
    assert [entry.round for entry in record.charged] == [charge.round_number for charge in charges]
    for charge in charges:
        row = rows[charge.round_number]
        assert set(row.survivors) == set(charge.survivors) and row.epsilon_after == charge.epsilon_after
        told = [told for told in record.deviations if told.startswith(f"Round {row.round} ")]
        assert row.released or f"Round {row.round} was charged all the same." in told
        assert row.accuracy is not None or told
    assert record.trust.ledger_head == history.head
    assert record.guarantee.epsilon == (epsilon([c.event for c in charges], record.guarantee.delta) if charges else 0)
    assert (record.guarantee.attack_tpr > 0.01) == (record.guarantee.renyi > 0) == bool(charges)
    check_claims(record, charges)
    assert (folder / "model.safetensors").is_file() <= bool(record.released)
    assert "my-card-4929" not in (folder / "report.html").read_text() + str(report)
    return report


def check_claims(record, charges):
    claims = {claim.what for claim in record.claims.verified}
    released, survivors = bool(record.released), any(entry.survivors for entry in record.rounds)
    assert ("No sum was opened" in claims) == (not charges)
    assert ("The charge was on disk before the holders were asked" in claims) == bool(charges)
    assert ("No model was released" in claims) == (bool(charges) and not released)
    assert bool({"What was opened is the exact sum", "What was opened is no junk"} & claims) == released
    assert ("Every update in a sum came from an enrolled client" in claims) == survivors


def each_place():
    """Every place with one error, in turn; those between the charge and the release with all of them."""
    for index, place in enumerate(PLACES):
        for error in ERRORS if place.owner is holders else ERRORS[index % 3 :][:1]:
            yield pytest.param(place, error, id=f"{place} {type(error).__name__}")


@pytest.mark.parametrize(("place", "error"), list(each_place()))
def test_a_charged_round_is_told_of_wherever_the_run_breaks_off(tmp_path, monkeypatch, place, error):
    raised = place.breaks(monkeypatch, tmp_path, 1, error)
    folder = run_broken(tmp_path, rounds=1)
    monkeypatch.undo()
    assert raised and charged(tmp_path) == 1
    check_told(folder)


@pytest.mark.parametrize("place", RING_PLACES, ids=str)
@pytest.mark.parametrize("error", ERRORS[:2], ids=lambda error: type(error).__name__)
def test_the_same_where_a_holder_has_to_be_told_that_the_round_is_over(tmp_path, monkeypatch, place, error):
    honest = holders.read_opening

    def read(reply, *about):
        if reply.sender == "holder-3":
            raise PeerFault("no-answer")
        return honest(reply, *about)

    monkeypatch.setattr(holders, "read_opening", read)
    raised = place.breaks(monkeypatch, tmp_path, 1, error)
    folder = run_broken(tmp_path, Environment(), rounds=1)
    monkeypatch.undo()
    assert raised and charged(tmp_path) == 1
    check_told(folder)


@pytest.mark.parametrize("place", [PLACES[0], PLACES[10], PLACES[17]], ids=str)
def test_the_second_of_three_rounds_is_told_of_too(tmp_path, monkeypatch, place):
    place.breaks(monkeypatch, tmp_path, 2, ERRORS[0])
    folder = run_broken(tmp_path, rounds=3)
    monkeypatch.undo()
    report = check_told(folder)
    assert charged(tmp_path) == 2 and [entry["round"] for entry in report["rounds"]] == [1, 2]


def test_a_run_that_nothing_breaks_has_nothing_to_confess(tmp_path):
    report = check_told(run_broken(tmp_path))
    assert report["outcome"] == "finished" and report["deviations"] == []


def test_a_folder_in_the_models_place(tmp_path):
    class Full(Observer):
        def writing_to(self, folder):
            (folder / "model.safetensors").mkdir()

    result = run_inproc(small_settings(tmp_path), Full(), StopFlag(), PLAIN)
    report = check_told(result.folder)
    assert type(result.error) is StoreError and report["outcome"] == "disk-refused"
    assert "Round 1 was released, but its model was not saved." in report["deviations"]
    assert report["trust"]["model_digest"] == "no model was saved"


@pytest.mark.parametrize("name", ["report.html", "report.json"])
def test_a_report_that_cannot_be_written_is_not_there(tmp_path, name):
    class Full(Observer):
        def writing_to(self, folder):
            (folder / name).mkdir()

    with pytest.raises(StoreError, match=name):
        run_inproc(small_settings(tmp_path, rounds=1), Full(), StopFlag(), PLAIN)
    assert not list(tmp_path.glob("runs/*/report.json/*")) and charged(tmp_path) == 1


def test_where_the_report_cannot_be_written_either_the_first_error_is_told(tmp_path, monkeypatch):
    class Full(Observer):
        def writing_to(self, folder):
            (folder / "report.json").mkdir()

    Place(Experiment, "hits").breaks(monkeypatch, tmp_path, 1, ERRORS[2])
    with pytest.raises(ZeroDivisionError):
        run_inproc(small_settings(tmp_path, rounds=1), Full(), StopFlag(), PLAIN)
    (log,) = tmp_path.glob("runs/*/run.log")
    assert "no report could be written" in log.read_text()
