"""Processes, times, windows, verdicts, result files: what every suite stands on."""

import json
import os
from itertools import chain, repeat
from pathlib import Path

import pytest
from kit.clocks import FakeClock

from benchmarks.harness.processes import Job, Processes, RowFailed
from benchmarks.harness.results import Results, machine
from benchmarks.harness.suite import measure
from benchmarks.harness.timing import Repeats, Stopwatch, Timing
from benchmarks.harness.verdicts import LimitCheck, Outcome, Verdict, either, exit_code, with_broken
from benchmarks.harness.windows import Side, Spread, in_turn


def slow(clock, *seconds):
    """Work that takes the next of `seconds` each time, then the last one for ever."""
    times = chain(seconds, repeat(seconds[-1]))
    return lambda: clock.sleep(next(times))


def test_the_median_leaves_out_the_first_run_and_what_prepares_it():
    clock = FakeClock()
    watch = Stopwatch(clock, Repeats(5, 0.0, 5), clock.now)
    found = watch.time(slow(clock, 64.0, 1.0, 4.0, 2.0, 16.0, 8.0), before=lambda: clock.sleep(100.0))
    assert found == Timing(4.0, 1.0, 5, 64.0, 4.0)


def test_short_work_is_repeated_until_there_is_enough_of_it():
    clock = FakeClock()
    watch = Stopwatch(clock, Repeats(5, 2.0, 20), clock.now)
    assert [watch.time(slow(clock, s)).runs for s in (1.0, 0.25, 0.125, 0.0)] == [5, 8, 16, 20]


PROGRAM = """
import os
from benchmarks.harness.worker import peak_bytes

def work(number):
    print("a library says hello")
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return {"cores": cores, "threads": os.environ["OMP_NUM_THREADS"], "pid": os.getpid(), "number": number,
            "peak": peak_bytes(), "telemetry": os.environ["FLWR_TELEMETRY_ENABLED"]}
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Write the module of a row; return its name."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return lambda text: (tmp_path / "a_row_of_tests.py").write_text(text) and "a_row_of_tests"


def test_each_job_has_a_process_of_its_own_on_one_core_with_one_thread(program):
    name = program(PROGRAM)
    found = Processes().together([Job(f"row {i}", name, {"number": i}) for i in range(2)])
    assert [answer["number"] for answer in found] == [0, 1]
    for answer in found:
        assert (len(answer["cores"]), answer["threads"], answer["telemetry"]) == (1, "1", "0")
        assert answer["pid"] != os.getpid() and 5e6 < answer["peak"] < 5e9
    if len(os.sched_getaffinity(0)) > 1:
        assert found[0]["cores"] != found[1]["cores"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise SystemExit('no such matrix')", "code 1.*no such matrix"),
        ("import os; print('not json', flush=True); os._exit(0)", "code 0"),
        ("import os; os._exit(7)", "code 7.*nothing"),
    ],
)
def test_a_process_without_an_answer_is_one_sentence(program, text, words):
    with pytest.raises(RowFailed, match=f"a row.*{words}"):
        Processes().alone(Job("a row", program(text), {"number": 1}))


def test_a_row_that_breaks_costs_no_other(session):
    made, _ = session(None)

    def breaks(session):
        raise OSError("no\nprocess")

    found = measure({"a": lambda session: 1, "b": breaks, "c": lambda session: 3}, made, full=False)
    assert (found.answers, found.broken, found.full) == ({"a": 1, "c": 3}, {"b": "OSError: no process"}, False)


def test_sides_take_turns_and_the_first_window_of_each_does_not_count():
    clock, order = FakeClock(), []

    def side(name, *taken):
        work = slow(clock, *taken)
        return Side(name, lambda: (order.append(name), work()), 10, before=lambda: clock.sleep(1_000.0))

    found = in_turn(clock, [side("a", 640, 10, 20, 30, 40, 50), side("b", 640, 1, 1, 1, 1, 1)], 5)
    assert order == ["a", "b"] + ["a", "b", "b", "a"] * 2 + ["a", "b"]
    assert found["a"].middle == pytest.approx(3.0) and found["b"].middle == pytest.approx(0.1)
    assert (found["a"].low, found["a"].windows) == (pytest.approx(1.4), 5)

    assert Spread(1.0, 6.0, 5).over(Spread(1.0, 3.0, 5)) == 2.0
    assert Spread(3.0, 6.0, 5).over(Spread(1.0, 3.0, 5)) == 3.0


GOOD, BAD, UNKNOWN = (LimitCheck("it", figure, "<=", 1.0, "s") for figure in (0.5, 2.0, None))


def test_a_figure_keeps_its_limit_or_not():
    for figure, relation, kept in ((1.0, "<=", True), (1.1, "<=", False), (1.0, ">=", True), (0.9, ">=", False)):
        assert LimitCheck("it", figure, relation, 1.0).outcome is (Outcome.PASS if kept else Outcome.FAIL)
    assert LimitCheck("it", float("nan"), "<=", 1.0).outcome is Outcome.FAIL
    assert LimitCheck("it", None, "<=", 1.0).outcome is Outcome.OPEN


def test_a_verdict_is_as_good_as_its_worst_check_and_a_broken_row_fails():
    assert Verdict("r", "a", (GOOD, GOOD)).outcome is Outcome.PASS
    assert Verdict("r", "a", (GOOD, UNKNOWN)).outcome is Outcome.OPEN
    assert Verdict("r", "a", (UNKNOWN, BAD, GOOD)).outcome is Outcome.FAIL
    assert exit_code([Verdict("r", "a", (GOOD,)), Verdict("r", "b", (UNKNOWN,))]) == 0
    assert exit_code([Verdict("r", "a", (GOOD,)), Verdict("r", "b", (BAD,))]) == 1
    assert either(BAD, GOOD) is either(GOOD, UNKNOWN) is GOOD and either(UNKNOWN, BAD) is BAD
    found = with_broken([Verdict("r", "a", (GOOD,)), Verdict("q", "b", (GOOD,))], {"r": "code -9", "s": "why"})
    assert [(one.name, one.outcome, one.broken) for one in found] == [
        ("a", Outcome.FAIL, "code -9"), ("b", Outcome.PASS, ""), ("s", Outcome.FAIL, "why")
    ]  # fmt: skip


def test_results_are_whole_files_of_their_day_and_an_older_pair_is_replaced(tmp_path):
    for value in (1, 2):
        paths = Results("sum", {"value": value}, "<svg/>").write(tmp_path / "out", 1_700_000_000.0)
    assert [path.name for path in paths] == ["2023-11-14-sum.json", "2023-11-14-sum.svg"]
    found = json.loads(paths[0].read_text())
    assert (found["value"], found["bench"], found["date"]) == (2, "sum", "2023-11-14")
    assert sorted((tmp_path / "out").iterdir()) == list(paths)


def test_the_machine_is_cores_and_versions_and_nothing_that_names_it():
    found = machine()
    assert found["cores"] >= 1 and found["packages"]["numpy"]
    assert set(found) == {"cores", "python", "packages"} and str(Path.home()) not in json.dumps(found)
