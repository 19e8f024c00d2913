"""The main job, from settings to a prediction, through the commands that a person types; and its exit codes."""

import os
from pathlib import Path

import pytest
from kit.smallrun import flags_of, report_of, small_settings
from safetensors.numpy import load_file

from fednode.cli import main
from fednode.settings import RunSettings, resolve

FILES = {
    "report.html",
    "report.json",
    "registry.yaml",
    "ledger.csv",
    "model.safetensors",
    "ledger.jsonl",
    "ledger.head",
    "run.log",
    "config.toml",
    "rounds.jsonl",
}
SAYS = {"card": "card bank lost", "pay": "pay money bill", "parcel": "parcel box late"}


@pytest.fixture(scope="module")
def environment():
    """No FEDNODE_* of whoever runs the tests, and none of Flower's variables afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.environ", {name: v for name, v in os.environ.items() if not name.startswith("FEDNODE_")})
        yield patch


@pytest.fixture(scope="module")
def job(tmp_path_factory, environment) -> tuple[Path, RunSettings]:
    """A finished run's folder, and its settings."""
    settings = small_settings(tmp_path_factory.mktemp("job"), epsilon=50.0, min_noise=0.0)
    assert main(["run", *flags_of(settings)]) == 0
    (folder,) = settings.out.glob("2*")
    return folder, settings


def test_a_run_leaves_its_files_and_nothing_else(job):
    folder, _ = job
    assert {path.name for path in folder.iterdir()} == FILES


def test_the_report_has_every_round_and_what_was_spent(job):
    folder, settings = job
    report = report_of(folder)
    assert report["outcome"] == "finished" and [entry["outcome"] for entry in report["rounds"]] == ["released"] * 2
    assert 0 < report["guarantee"]["epsilon"] <= settings.epsilon == report["guarantee"]["epsilon_limit"]
    assert all(len(entry["survivors"]) == settings.clients for entry in report["rounds"])
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert report["run_id"] in page and page.rstrip().endswith("</html>")


def test_the_settings_as_resolved_read_back(job):
    folder, settings = job
    again = resolve(folder / "config.toml", {}, {})
    assert again.model_copy(update={"learning_rate": None, "grid_bits": settings.grid_bits}) == settings


def test_the_ledger_is_whole_and_priced_again(job, capsys):
    folder, _ = job
    assert main(["ledger", "verify", str(folder / "ledger.jsonl")]) == 0
    shown = capsys.readouterr().out
    assert "priced again from 2 charges" in shown and str(folder / "report.json") in shown


def test_a_ledger_that_was_changed_ends_with_code_8(job, tmp_path, capsys):
    changed = (
        (job[0] / "ledger.jsonl").read_bytes().replace(b'"round": 2', b'"round": 3').replace(b'"round":2', b'"round":3')
    )
    assert changed != (job[0] / "ledger.jsonl").read_bytes()
    (tmp_path / "ledger.jsonl").write_bytes(changed)
    assert main(["ledger", "verify", str(tmp_path / "ledger.jsonl")]) == 8
    assert "line" in capsys.readouterr().err


def test_the_model_predicts_from_text(job, capsys):
    folder, settings = job
    arrays = load_file(folder / "model.safetensors")
    assert arrays["weight"].shape == (len(SAYS), settings.features) and arrays["bias"].shape == (len(SAYS),)
    assert main(["predict", str(folder), *SAYS.values()]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == list(SAYS)


def test_a_dry_run_says_what_the_run_then_cost(job, capsys):
    folder, settings = job
    assert main(["run", "--dry-run", "--population", "others", *flags_of(settings)]) == 0
    assert f"{report_of(folder)['trust']['payload_bytes']:,} a sealed update" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"data": "missing.csv"}, 3, "missing.csv"),
        ({"faults": ("lost-before-upload@1:client-1", "garbage@1:client-2")}, 5, "2 of 4"),
        ({"faults": ("dead@1:holder-1", "dead@1:holder-2")}, 6, "holder-1"),
        ({"out": Path("/dev/full/runs")}, 8, "/dev/full/runs"),
    ],
)
def test_a_run_that_cannot_work_ends_with_its_code_and_one_sentence(
    tmp_path, environment, capsys, changes, code, named
):
    assert main(["run", *flags_of(small_settings(tmp_path, rounds=1, **changes))]) == code
    err = capsys.readouterr().err
    assert err.startswith("fednode: ") and err.count("\n") == 1 and named in err
