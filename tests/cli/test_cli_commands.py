"""Commands through their front door, with the machinery behind them replaced."""

import os
import signal

import pytest
from kit.assembly import FakeAssembly, FakeResult, install
from typer.testing import CliRunner

from fednode import errors
from fednode.cli import main
from fednode.cli.app import app
from fednode.cli.exits import CAUSES, LEDGER_CAUSES
from fednode.settings import RunSettings, parse_fault
from fednode.settings.sources import flag_name


@pytest.fixture
def assembly(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("FEDNODE_", "FLWR_", "RAY_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    return install(monkeypatch, FakeAssembly())


def test_flags_reach_the_run_as_settings(assembly, capsys):
    code = main(
        ["run", "--clients", "10", "--epsilon", "4", "--faults", "garbage@3:client-04", "--faults", "dead@2-:holder-1"]
    )
    wanted = RunSettings(clients=10, epsilon=4, faults=["garbage@3:client-04", "dead@2-:holder-1"])
    assert (code, assembly.settings) == (0, wanted)
    assert assembly.settings.faults[0] == parse_fault("garbage@3:client-04")
    assert capsys.readouterr().err == ""


def test_file_environment_and_flags_in_their_order(assembly, tmp_path):
    (tmp_path / "fednode.toml").write_text("clients = 10\nrounds = 11\nholders = 6\n")
    os.environ |= {"FEDNODE_ROUNDS": "12", "FEDNODE_HOLDERS": "7"}
    assert main(["run", "--holders", "5"]) == 0
    assert (assembly.settings.clients, assembly.settings.rounds, assembly.settings.holders) == (10, 12, 5)


def test_a_named_file_takes_the_place_of_the_usual_one(assembly, tmp_path):
    (tmp_path / "fednode.toml").write_text("clients = 10\n")
    (tmp_path / "other.toml").write_text("rounds = 3\n")
    assert main(["run", "--config", "other.toml"]) == 0
    assert (assembly.settings.clients, assembly.settings.rounds) == (20, 3)


def test_a_dry_run_prints_the_plan_and_runs_nothing(assembly, capsys):
    assert main(["run", "--dry-run", "--rounds", "7"]) == 0
    assert capsys.readouterr().out == "7 rounds planned\n"
    assert assembly.stop is None


def test_a_dry_run_refuses_what_would_fail(assembly, capsys):
    assembly.raises = errors.BudgetExhausted("epsilon 0.1 does not hold 20 rounds: lower rounds to 3")
    assert main(["run", "--dry-run"]) == 4
    assert capsys.readouterr().err == "fednode: epsilon 0.1 does not hold 20 rounds: lower rounds to 3\n"


def test_every_round_is_a_plain_line_when_nobody_has_a_terminal(assembly, capsys):
    assert main(["run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "loading libraries",
        "rounds ahead: 20",
        "making keys",
        "round 3/20  survivors 19/20  accuracy 81.2 %  epsilon 2.345 of 8  1.23 MB a client  1.2 s",
        "model  accuracy 81.2 %",
    ]


def _family(kind):
    return [kind, *(one for child in kind.__subclasses__() for one in _family(child))]


# those that other modules derive take other arguments and inherit their code
@pytest.mark.parametrize(
    "kind", [kind for kind in _family(errors.FednodeError)[1:] if kind.__module__ == errors.__name__]
)
def test_every_error_of_ours_is_a_sentence_and_its_own_code(assembly, capsys, kind):
    assembly.raises = kind("what went wrong\nand what to do")
    assert main(["run"]) == kind.exit_code
    assert capsys.readouterr().err == "fednode: what went wrong and what to do\n"
    assert kind.exit_code in CAUSES


def test_a_run_that_ended_early_still_shows_its_table(assembly, capsys):
    assembly.result = FakeResult(["9 rounds released"], errors.TooFewHolders("3 of 4 holders answered"))
    assert main(["run"]) == 6
    shown = capsys.readouterr()
    assert shown.out.endswith("9 rounds released\n")
    assert shown.err == "fednode: 3 of 4 holders answered\n"


def test_an_error_nobody_foresaw_leaves_its_traceback_in_the_log(assembly, tmp_path, capsys):
    assembly.folder, assembly.raises = tmp_path / "gone", ZeroDivisionError()
    assert main(["run"]) == 1
    assert capsys.readouterr().err == "fednode: unexpected ZeroDivisionError\n"
    assembly.folder, assembly.raises = tmp_path, ZeroDivisionError("division by zero")
    (tmp_path / "run.log").write_text("first line\n")
    assert main(["run"]) == 1
    assert capsys.readouterr().err == "fednode: unexpected ZeroDivisionError: division by zero\n"
    log = (tmp_path / "run.log").read_text()
    assert log.startswith("first line\nTraceback") and "ZeroDivisionError" in log


def test_a_file_that_cannot_be_used_is_a_sentence_and_code_8(assembly, capsys):
    assembly.raises = OSError(36, "File name too long", "a\x1b\u202e b")
    assert main(["run"]) == 8
    assert capsys.readouterr().err.startswith(r"fednode: a\x1b\u202e b cannot be used: File name too long; ")


def test_an_error_of_ours_leaves_no_traceback_in_the_log(assembly, tmp_path):
    assembly.folder, assembly.raises = tmp_path, errors.DataError("no data")
    assert main(["run"]) == 3
    assert not (tmp_path / "run.log").exists()


def test_predict_prints_an_intent_a_message(assembly, capsys):
    assert main(["predict", "some-run", "where is my card", "hello"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "intent-of-hello  50.0 %  hello"


def test_predict_prints_no_control_character(assembly, capsys):
    assert main(["predict", "some-run", "a\x1b[31m\nb\udcff"]) == 0
    assert capsys.readouterr().out == "intent-of-a\\x1b[31m b\\udcff  50.0 %  a\\x1b[31m b\\udcff\n"


def test_flower_is_kept_quiet_before_anything_loads_it(assembly, tmp_path):
    os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "as the operator wishes"
    assert main(["run", "--out", "elsewhere"]) == 0
    assert os.environ["FLWR_TELEMETRY_ENABLED"] == "0"
    assert os.environ["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert os.environ["FLWR_HOME"] == str(tmp_path / "elsewhere" / ".flower")
    assert os.environ["FLWR_DISABLE_UPDATE_CHECK"] == "as the operator wishes"


def test_the_first_interrupt_asks_and_the_second_aborts(assembly, capsys):
    seen = []

    def during():
        signal.raise_signal(signal.SIGINT)
        seen.append(assembly.stop.raised)
        signal.raise_signal(signal.SIGINT)

    assembly.during = during
    before = signal.getsignal(signal.SIGINT)
    try:
        assert main(["run"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    shown = capsys.readouterr()
    assert seen == [True]
    assert "ending the round, press Ctrl-C again to abort" in shown.out
    assert (
        shown.err.splitlines()[-1]
        == "fednode: aborted in the middle of a round; the ledger and finished rounds are kept"
    )


def test_after_a_run_interrupts_mean_what_they_meant_before(assembly):
    before = signal.getsignal(signal.SIGINT)
    assert main(["run"]) == 0
    assert signal.getsignal(signal.SIGINT) is before


def test_help_names_every_setting_and_every_exit_code():
    shown = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert [name for name in RunSettings.model_fields if flag_name(name) not in shown.output] == []
    assert [code for code, cause in CAUSES.items() if f"{code}  {cause}" not in shown.output] == []


@pytest.mark.parametrize(
    ("group", "words"), [("", "predict"), ("keys", "enrol"), ("bench", "trace"), ("cache", "tune")]
)
def test_without_a_command_the_help_is_shown_and_nothing_else(capsys, group, words):
    assert main(group.split()) == 2
    shown = capsys.readouterr()
    assert words in shown.out and "Usage" in shown.out and shown.err == ""


def test_help_of_the_ledger_says_what_its_codes_mean():
    shown = CliRunner().invoke(app, ["ledger", "verify", "--help"], env={"COLUMNS": "250"})
    assert [code for code, cause in LEDGER_CAUSES.items() if f"{code}  {cause}" not in shown.output] == []


def test_long_values_of_the_summary_hang_on_a_terminal_and_stay_whole_elsewhere(assembly, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    path, row = "runs/a b/" + "x" * 50, "Upload  " + "word " * 12 + "end"
    assembly.result = FakeResult([row, path], None)
    assert main(["run"]) == 0
    assert capsys.readouterr().out.endswith(f"{row}\n{path}\n")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["run"]) == 0
    shown = capsys.readouterr().out
    lines = shown[shown.index("Upload") :].splitlines()
    assert len(lines) == 4 and lines[-1] == path and all(len(line) <= 40 for line in lines[:-1])
    assert all(line.startswith(" " * 8) for line in lines[1:-1])
