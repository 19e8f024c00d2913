"""Timing, processes, verdicts: what every benchmark stands on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.clocks import FakeClock

from benchmarks.harness.processes import CORE, ONE_THREAD, Job, RowFailed, run_job, run_side_by_side
from benchmarks.harness.results import date_of, machine, write_results
from benchmarks.harness.timing import Repeats, Stopwatch, Timing
from benchmarks.harness.verdicts import Check, Outcome, Verdict, exit_code, readable
from fednode.errors import StoreError


def slow(clock, *seconds):
    """Work that takes the next of `seconds` each time, then the last one for ever."""
    left = list(seconds)
    return lambda: clock.sleep(left.pop(0) if len(left) > 1 else left[0])


def test_the_first_run_is_counted_apart_and_the_median_is_of_the_others():
    clock = FakeClock()
    watch = Stopwatch(clock, Repeats(5, 0.0, 5), clock.now)
    assert watch.time(slow(clock, 64.0, 1.0, 4.0, 2.0, 16.0, 8.0)) == Timing(4.0, 1.0, 5, 64.0, 4.0)


def test_short_work_is_repeated_until_there_is_enough_of_it():
    clock = FakeClock()
    watch = Stopwatch(clock, Repeats(5, 2.0, 20), clock.now)
    assert [watch.time(slow(clock, s)).runs for s in (1.0, 0.25, 0.125, 0.0)] == [5, 8, 16, 20]


def test_what_is_prepared_for_a_run_takes_no_time():
    clock, prepared = FakeClock(), []
    watch = Stopwatch(clock, Repeats(5, 0.0, 5))
    found = watch.time(slow(clock, 1.0), before=lambda: (prepared.append(1), clock.sleep(100.0)))
    assert (found.wall, found.warm_up, len(prepared)) == (1.0, 1.0, 6)


def test_what_others_take_of_the_core_is_on_the_wall_clock_only():
    clock = FakeClock()
    watch = Stopwatch(clock, Repeats(5, 0.0, 5), lambda: clock.now() / 4)
    assert watch.time(slow(clock, 1.0)) == Timing(0.25, 0.25, 5, 1.0, 1.0)


def test_times_add_up():
    one, other = Timing(2.0, 1.0, 7, 5.0, 4.0), Timing(0.5, 0.25, 5, 0.125, 0.5)
    assert one.times(10).plus(other) == Timing(20.5, 10.25, 5, 5.125, 40.5)


@pytest.mark.parametrize("wrong", [(0, 0.0, 5), (6, 0.0, 5), (5, -1.0, 5)])
def test_repeats_that_measure_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="least"):
        Repeats(*wrong)


PROGRAM = """
import os
from benchmarks.harness.worker import peak_bytes

def work(asked):
    print("a library says hello")
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return {"cores": cores, "threads": os.environ["OMP_NUM_THREADS"], "pid": os.getpid(), "asked": asked,
            "peak": peak_bytes(), "telemetry": os.environ["FLWR_TELEMETRY_ENABLED"]}
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Write the module of a row; return its name."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def write(text=PROGRAM):
        (tmp_path / "a_row_of_tests.py").write_text(text)
        return "a_row_of_tests"

    return write


def test_a_row_has_a_process_of_its_own_on_one_core_with_one_thread(program):
    found = run_job(Job("a row", program(), {"dimension": 7}))
    assert found["asked"] == {"dimension": 7}
    assert (len(found["cores"]), found["threads"], found["telemetry"]) == (1, "1", "0")
    assert found["pid"] != os.getpid() and 5e6 < found["peak"] < 5e9


def test_jobs_side_by_side_answer_in_order_from_different_cores(program):
    name = program()
    found = run_side_by_side([Job(f"row {i}", name, {"i": i}) for i in range(2)])
    assert [answer["asked"]["i"] for answer in found] == [0, 1]
    if len(os.sched_getaffinity(0)) > 1:
        assert found[0]["cores"] != found[1]["cores"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise SystemExit('no such matrix')", "code 1.*no such matrix"),
        ("import os; print('not json', flush=True); os._exit(0)", "code 0"),
        ("work = lambda asked: [1]", "code 0"),
        ("import os; os._exit(7)", "code 7.*nothing"),
    ],
)
def test_a_process_without_an_answer_is_one_sentence(program, text, words):
    with pytest.raises(RowFailed, match=f"a row.*{words}"):
        run_job(Job("a row", program(text), {}))


def test_a_module_is_run_by_the_worker():
    asked = {"dimension": 100, "clients": 3, "repeats": {"least": 1, "seconds": 0.0, "most": 1}}
    job = Job("plain", "benchmarks.sums.plain", asked)
    done = subprocess.run(
        job.command(),
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **ONE_THREAD, CORE: "0"},
    )
    assert json.loads(done.stdout.splitlines()[-1])["bytes_up"] == 400
    assert job.command()[0] == sys.executable


def test_a_figure_keeps_its_limit_or_not():
    assert Check("it", 1.0, "<=", 1.0).outcome is Outcome.PASS
    assert Check("it", 1.1, "<=", 1.0).outcome is Outcome.FAIL
    assert Check("it", 25.0, ">=", 25.0).outcome is Outcome.PASS
    assert Check("it", 24.9, ">=", 25.0).outcome is Outcome.FAIL
    assert Check("it", float("nan"), "<=", 1.0).outcome is Outcome.FAIL
    assert Check("it", None, "<=", 1.0).outcome is Outcome.OPEN


def test_a_row_is_as_good_as_its_worst_check():
    good, bad, open_ = (Check("it", figure, "<=", 1.0, "s") for figure in (0.5, 2.0, None))
    assert Verdict("a", (good, good)).outcome is Outcome.PASS
    assert Verdict("a", (good, open_)).outcome is Outcome.OPEN
    assert Verdict("a", (open_, bad, good)).outcome is Outcome.FAIL
    assert exit_code([Verdict("a", (good,)), Verdict("b", (open_,))]) == 0
    assert exit_code([Verdict("a", (good,)), Verdict("b", (bad,))]) == 1


def test_a_row_says_figure_and_limit():
    row = Verdict("the fold", (Check("one core", 712.4, ">=", 600.0, "million a second"), Check("d", None, "<=", 0.75)))
    assert row.line() == (
        "----  the fold  one core: 712 million a second (>= 600 million a second); d: not judged (<= 0.750)"
    )
    assert json.loads(json.dumps(row.to_dict()))["checks"][0] == {
        "what": "one core",
        "figure": 712.4,
        "relation": ">=",
        "limit": 600.0,
        "unit": "million a second",
    }


@given(st.floats(min_value=0.01, max_value=1e9))
def test_figures_read_without_exponents_and_stay_close(figure):
    text = readable(figure)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(figure, rel=0.05)


def test_results_are_whole_files_and_an_older_pair_is_replaced(tmp_path):
    for value in (1, 2):
        paths = write_results(tmp_path / "out", "2026-01-31-sum", {"value": value}, "<svg/>")
    assert [path.name for path in paths] == ["2026-01-31-sum.json", "2026-01-31-sum.svg"]
    assert json.loads(paths[0].read_text()) == {"value": 2}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [path.name for path in paths]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(StoreError, match="another folder"):
        write_results(tmp_path / "out", "x", {}, "")


def test_the_machine_is_cores_and_versions_and_nothing_that_names_it():
    found = machine()
    assert found["cores"] >= 1 and found["packages"]["numpy"]
    assert set(found) == {"cores", "python", "packages"}
    assert str(Path.home()) not in json.dumps(found)


def test_the_date_is_the_day_in_utc():
    assert date_of(1_700_000_000.0) == "2023-11-14"
