"""`fednode ledger`: what it says is what it checked, and no more."""

import json

import pytest
from kit.clocks import FakeClock

from fednode.cli import main
from fednode.privacy import Budget, DiscreteGaussianSum, Ledger, epsilon, renyi_epsilon
from fednode.reports.figures import bound

EVENT = DiscreteGaussianSum(clip=1.0, grid_bits=16, dimension=100, local_variance=2**40, contributors=2, failure=0.0)


def charged(ledger, rounds):
    for number in rounds:
        ledger.charge(EVENT, number, ("ann", "ben"))


@pytest.fixture
def run(tmp_path):
    with Ledger.open(tmp_path / "ledger.jsonl", Budget(8.0, 1e-5), FakeClock(), "a-task") as ledger:
        charged(ledger, (1, 2))
        report = {"run": {"trust": {"ledger_head": ledger.head}}}
    (tmp_path / "report.json").write_text(json.dumps(report))
    return tmp_path


def closing(run, capsys):
    assert main(["ledger", "verify", str(run / "ledger.jsonl")]) == 0
    return capsys.readouterr().out.splitlines()[-1]


def test_a_head_that_the_report_names_is_said_to_be_the_one(run, capsys):
    words = closing(run, capsys)
    assert f"its head is the one in {run / 'report.json'}" in words and "could have changed both" in words


def cut(run):
    file = run / "ledger.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))


def continued(run):
    with Ledger.open(run / "ledger.jsonl", Budget(8.0, 1e-5), FakeClock(), "a-task") as ledger:
        charged(ledger, (3,))


def cut_with_its_head(run):
    """What neither file shows any more."""
    cut(run)
    (run / "ledger.head").unlink()


def test_a_ledger_that_lost_a_line_is_an_error(run, capsys):
    cut(run)
    assert main(["ledger", "verify", str(run)]) == 8
    assert "was cut" in capsys.readouterr().err


@pytest.mark.parametrize("change", [cut_with_its_head, continued])
def test_a_ledger_that_does_not_end_where_the_report_says_is_an_error(run, capsys, change):
    change(run)
    assert main(["ledger", "verify", str(run / "ledger.jsonl")]) == 8
    shown = capsys.readouterr()
    assert "the ledger was cut or continued since the report was written" in shown.err and shown.out == ""


@pytest.mark.parametrize("name", ["report.json", "model.safetensors"])
def test_a_file_that_is_no_ledger_is_called_that(run, capsys, name):
    (run / "model.safetensors").write_bytes(b"\x90\x00{}")
    assert main(["ledger", "verify", str(run / name)]) == 3
    assert f"{run / name} is no ledger" in capsys.readouterr().err


def test_a_line_that_was_changed_is_an_error_with_its_number(run, capsys):
    file = run / "ledger.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"epsilon":8.0', b'"epsilon":9.0', 1))
    assert main(["ledger", "verify", str(file)]) == 8
    assert "line 1" in capsys.readouterr().err


def test_a_last_line_without_an_end_is_no_fact_about_a_crash(run, capsys):
    file = run / "ledger.jsonl"
    file.write_bytes(file.read_bytes() + b'{"epsilon_after":1.')
    assert main(["ledger", "verify", str(file)]) == 8
    assert "last line is incomplete" in capsys.readouterr().err


def test_what_was_spent_reads_as_in_the_report(run, capsys):
    closing(run, capsys)
    assert main(["ledger", "verify", str(run / "ledger.jsonl")]) == 0
    shown = capsys.readouterr().out
    with Ledger.open(run / "ledger.jsonl", Budget(8.0, 1e-5), FakeClock(), "a-task") as ledger:
        assert f"spent      epsilon {bound(ledger.spent)} of 8" in shown and "2 charges of 1 run" in shown


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no report.json beside it"),
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"run": {"trust": {"ledger_head": ""}}}', "names no head"),
    ],
)
def test_without_a_head_to_compare_nothing_is_promised(run, capsys, content, words):
    (run / "report.json").unlink()
    if content is not None:
        (run / "report.json").write_text(content)
    said = closing(run, capsys)
    assert words in said and "noted elsewhere" in said


def test_show_lists_charges_and_limits_in_order(run, capsys):
    file = str(run / "ledger.jsonl")
    assert main(["ledger", "limit", file, "--epsilon", "9", "--by", "Ada", "--reason", "one more round"]) == 0
    assert "the limit is epsilon 9, after 8" in capsys.readouterr().out
    assert main(["ledger", "show", file]) == 0
    shown = capsys.readouterr().out
    assert "a-task round 2: 2 survivors, epsilon" in shown and "limit      epsilon 9 by Ada: one more round" in shown


@pytest.mark.parametrize(
    "wrong", [("--epsilon", "0"), ("--epsilon", "50.1"), ("--epsilon", "1e308"), ("--by", " "), ("--reason", "")]
)
def test_a_limit_needs_a_number_a_name_and_a_reason(run, capsys, wrong):
    given = {"--epsilon": "9", "--by": "Ada", "--reason": "why"} | dict([wrong])
    before = (run / "ledger.jsonl").read_bytes()
    assert main(["ledger", "limit", str(run), *(word for pair in given.items() for word in pair)]) == 2
    assert (run / "ledger.jsonl").read_bytes() == before and "not changed" in capsys.readouterr().err


def test_a_population_is_found_by_its_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "runs" / "populations" / "people.ledger.jsonl"
    place.parent.mkdir(parents=True)
    charged(Ledger.of_population(place, Budget(50.0, 1e-5), FakeClock(), "a-task"), (1, 2, 3))
    assert main(["ledger", "verify", "people"]) == 0
    assert "3 charges of 1 run" in capsys.readouterr().out
    assert main(["ledger", "verify", "nobody"]) == 3


def priced(capsys, run, *words: str) -> float:
    assert main(["ledger", "price", str(run), *words]) == 0
    return float(capsys.readouterr().out.split()[1])


def test_prices_by_other_accountants_for_other_neighbours(run, capsys):
    once = priced(capsys, run)
    assert once == pytest.approx(epsilon([EVENT] * 2, 1e-5), rel=1e-3)
    assert priced(capsys, run, "--accountant", "renyi") == pytest.approx(renyi_epsilon([EVENT] * 2, 1e-5), rel=1e-3)
    assert priced(capsys, run, "--replace-one") == priced(capsys, run, "--groups", "2") > once
    assert priced(capsys, run, "--delta", "1e-7") > once
    for wrong in (
        ("--accountant", "guess"),
        ("--accountant", "renyi", "--groups", "2"),
        ("--delta", "2"),
        ("--groups", "0"),
    ):
        assert main(["ledger", "price", str(run), *wrong]) == 2


def test_the_cross_check_of_another_library(run, capsys):
    assert priced(capsys, run, "--accountant", "pld") == pytest.approx(priced(capsys, run), abs=2e-3)
    assert priced(capsys, run, "--accountant", "pld", "--groups", "5") == pytest.approx(
        priced(capsys, run, "--groups", "5"), abs=2e-3
    )


def test_ledgers_are_merged_and_each_round_is_counted_once(run, tmp_path, capsys):
    other = tmp_path / "other.jsonl"
    with Ledger.open(other, Budget(8.0, 1e-5), FakeClock(), "b-task") as ledger:
        charged(ledger, (1, 2, 3))
    into = tmp_path / "people.ledger.jsonl"
    wanted = ["ledger", "merge", str(run), str(other), str(run), "--into", str(into)]
    assert main(wanted) == 0
    assert "in 5 rounds, 50 is the limit" in capsys.readouterr().out
    with Ledger.of_population(into, Budget(50.0, 1e-5), FakeClock(), "c-task") as ledger:
        assert ledger.spent == epsilon([EVENT] * 5, 1e-5)
        charged(ledger, (1,))
    assert main(wanted) == 2


def test_what_is_left_of_a_damaged_ledger_is_merged_with_the_runs(run, tmp_path, capsys):
    people = tmp_path / "people.ledger.jsonl"
    with Ledger.of_population(people, Budget(50.0, 1e-5), FakeClock(), "a-task") as ledger:
        charged(ledger, (1, 2))
        ledger.limit(20.0, "Ada", "the board")
    people.write_bytes(b"".join(people.read_bytes().splitlines(keepends=True)[:2]))
    assert main(["ledger", "verify", str(people)]) == 8
    into = tmp_path / "again.ledger.jsonl"
    assert main(["ledger", "merge", str(people), str(run), "--into", str(into)]) == 0
    shown = capsys.readouterr().out
    assert "in 2 rounds, 50 is the limit" in shown and "warning: no limit that was set" in shown


def test_two_runs_of_one_name_are_not_merged_into_one(run, tmp_path, capsys):
    later, other = FakeClock(), tmp_path / "other.jsonl"
    later.sleep(61.0)
    with Ledger.open(other, Budget(8.0, 1e-5), later, "a-task") as ledger:
        charged(ledger, (1, 2))
    assert main(["ledger", "merge", str(run), str(other), "--into", str(tmp_path / "new.jsonl")]) == 8
    assert "two runs of one name" in capsys.readouterr().err


def test_the_two_lines_of_a_charge_are_one(tmp_path):
    class Moving(FakeClock):
        def time(self):
            self.sleep(1.0)
            return super().time()

    clock, budget, people = Moving(), Budget(8.0, 1e-5), tmp_path / "people.ledger.jsonl"
    with (
        Ledger.of_population(people, budget, clock, "a-task") as shared,
        Ledger.open(tmp_path / "ledger.jsonl", budget, clock, "a-task", shared) as ledger,
    ):
        charged(ledger, (1, 2))
    merge = ["ledger", "merge", str(tmp_path / "ledger.jsonl"), str(people), "--into", str(tmp_path / "new.jsonl")]
    assert main(merge) == 0
    with Ledger.at(tmp_path / "new.jsonl", clock) as made:
        assert len(made.entries) == 2


def test_the_limit_of_a_run_is_not_that_of_a_merged_population(run, tmp_path, capsys):
    people, into = tmp_path / "people.ledger.jsonl", tmp_path / "again.ledger.jsonl"
    with Ledger.of_population(people, Budget(50.0, 1e-5), FakeClock(), "a-task") as ledger:
        charged(ledger, (1, 2))
        ledger.limit(4.0, "Ada", "the board")
    with Ledger.at(run / "ledger.jsonl", FakeClock()) as ledger:
        ledger.limit(40.0, "Ben", "one long run")
    assert main(["ledger", "merge", str(people), str(run), "--into", str(into)]) == 0
    assert "warning" not in capsys.readouterr().out
    with Ledger.at(into, FakeClock()) as ledger:
        assert ledger.budget.epsilon == 4.0
        assert [one.by for one in ledger.history.limits] == ["Ada"]


def test_ledgers_that_differ_about_a_round_are_not_merged(run, tmp_path, capsys):
    other = tmp_path / "other.jsonl"
    with Ledger.open(other, Budget(8.0, 1e-5), FakeClock(), "a-task") as ledger:
        ledger.charge(EVENT, 1, ("ann", "cyd"))
    assert main(["ledger", "merge", str(run), str(other), "--into", str(tmp_path / "new.jsonl")]) == 8
    assert "differ about round 1 of a-task" in capsys.readouterr().err
    assert not (tmp_path / "new.jsonl").exists()


def test_the_charges_as_csv(run, capsys):
    assert main(["ledger", "export", str(run)]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 3 and rows[0].startswith("run,round,time,survivors,clip") and rows[2].startswith("a-task,2,")
