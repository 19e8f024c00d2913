"""Processes, times, windows, verdicts, result files: what every suite stands on."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.clocks import FakeClock

from benchmarks.harness.processes import Job, Processes, RowFailed
from benchmarks.harness.results import Results, machine
from benchmarks.harness.suite import measure
from benchmarks.harness.tables import readable
from benchmarks.harness.timing import Repeats, Stopwatch, Timing
from benchmarks.harness.verdicts import LimitCheck, Outcome, Verdict, either, exit_code, figure, with_broken
from benchmarks.harness.windows import OverKeys, Side, Spread, count_for, in_turn, spreads_from_json, spreads_to_json
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


def test_preparation_is_not_timed():
    clock, prepared = FakeClock(), []
    watch = Stopwatch(clock, Repeats(5, 0.0, 5))
    found = watch.time(slow(clock, 1.0), before=lambda: (prepared.append(1), clock.sleep(100.0)))
    assert (found.wall, found.warm_up, len(prepared)) == (1.0, 1.0, 6)


def test_time_that_others_take_of_the_core_is_on_the_wall_clock_only():
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

    def write(text=PROGRAM):
        (tmp_path / "a_row_of_tests.py").write_text(text)
        return "a_row_of_tests"

    return write


def test_each_job_has_a_process_of_its_own_on_one_core_with_one_thread(program):
    name = program()
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
        ("work = lambda number: [1]", "code 0"),
        ("import os; os._exit(7)", "code 7.*nothing"),
    ],
)
def test_a_process_without_an_answer_is_one_sentence(program, text, words):
    with pytest.raises(RowFailed, match=f"a row.*{words}"):
        Processes().alone(Job("a row", program(text), {"number": 1}))


def test_a_row_that_breaks_costs_no_other(session):
    made, said = session(None)

    def breaks(session):
        raise OSError("no\nprocess")

    found = measure({"a": lambda session: 1, "b": breaks, "c": lambda session: 3}, made, full=False)
    assert (found.answers, found.broken, found.full) == ({"a": 1, "c": 3}, {"b": "OSError: no process"}, False)
    assert any("b: broken" in line for line in said)


def test_sides_take_turns_and_the_first_window_of_each_does_not_count():
    clock, order = FakeClock(), []

    def side(name, *taken):
        left = list(taken)

        def work():
            order.append(name)
            clock.sleep(left.pop(0))

        return Side(name, work, 10, before=lambda: clock.sleep(1_000.0))

    found = in_turn(clock, [side("a", 640, 10, 20, 30, 40, 50), side("b", 640, 1, 1, 1, 1, 1)], 5)
    assert order == ["a", "b"] + ["a", "b", "b", "a"] * 2 + ["a", "b"]
    assert found["a"].middle == pytest.approx(3.0) and found["b"].middle == pytest.approx(0.1)
    assert (found["a"].low, found["a"].windows) == (pytest.approx(1.4), 5)


def test_too_few_windows_and_two_of_one_name_are_refused():
    side = Side("a", lambda: None)
    for sides, windows in (([side], 4), ([side, side], 5)):
        with pytest.raises(ValueError, match="windows"):
            in_turn(FakeClock(), sides, windows)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-9, 1e3), min_size=2, max_size=40))
def test_a_spread_lies_within_its_windows_and_survives_json(taken):
    found = Spread.of(taken)
    slack = 1e-12 * max(taken)
    assert min(taken) - slack <= found.low <= found.middle + slack <= max(taken) + 2 * slack
    assert spreads_from_json(json.loads(json.dumps(spreads_to_json({"a": found})))) == {"a": found}


def test_a_ratio_is_the_worse_of_low_and_middle():
    assert Spread(1.0, 6.0, 5).over(Spread(1.0, 3.0, 5)) == 2.0
    assert Spread(3.0, 6.0, 5).over(Spread(1.0, 3.0, 5)) == 3.0


def test_windows_walk_over_all_keys_from_where_they_start_and_round_again():
    seen = []
    work = OverKeys(seen.append, list("abcdefg"), 2, start=4)
    for _ in range(4):
        work()
    assert "".join(seen) == "efabcdef"
    for wrong in (0, 8):
        with pytest.raises(ValueError, match="window"):
            OverKeys(seen.append, list("abcdefg"), wrong)


@pytest.mark.parametrize(("each", "count"), [(0.0, 90), (1e-6, 90), (1e-4, 10), (7.0, 1)])
def test_a_window_is_about_a_millisecond_long(each, count):
    clock = FakeClock()
    assert count_for(clock, lambda key: clock.sleep(each), ["a"] * 90, 500) == pytest.approx(count, abs=1)


GOOD, BAD, UNKNOWN = (LimitCheck("it", figure, "<=", 1.0, "s") for figure in (0.5, 2.0, None))


@pytest.mark.parametrize(
    ("figure", "relation", "limit", "outcome"),
    [
        (1.0, "<=", 1.0, Outcome.PASS),
        (1.1, "<=", 1.0, Outcome.FAIL),
        (25.0, ">=", 25.0, Outcome.PASS),
        (24.9, ">=", 25.0, Outcome.FAIL),
        (float("nan"), "<=", 1.0, Outcome.FAIL),
        (None, "<=", 1.0, Outcome.OPEN),
    ],
)
def test_a_figure_keeps_its_limit_or_not(figure, relation, limit, outcome):
    assert LimitCheck("it", figure, relation, limit).outcome is outcome


def test_a_verdict_is_as_good_as_its_worst_check():
    assert Verdict("r", "a", (GOOD, GOOD)).outcome is Outcome.PASS
    assert Verdict("r", "a", (GOOD, UNKNOWN)).outcome is Outcome.OPEN
    assert Verdict("r", "a", (UNKNOWN, BAD, GOOD)).outcome is Outcome.FAIL
    assert exit_code([Verdict("r", "a", (GOOD,)), Verdict("r", "b", (UNKNOWN,))]) == 0
    assert exit_code([Verdict("r", "a", (GOOD,)), Verdict("r", "b", (BAD,))]) == 1


def test_where_one_of_two_is_enough_the_one_that_is_kept_decides():
    assert either(BAD, GOOD) is either(GOOD, UNKNOWN) is GOOD
    assert either(UNKNOWN, BAD) is BAD


def test_broken_rows_fail_also_without_a_limit_of_their_own():
    found = with_broken([Verdict("r", "a", (GOOD,)), Verdict("q", "b", (GOOD,))], {"r": "code -9", "s": "why"})
    assert [(one.name, one.outcome, one.broken) for one in found] == [
        ("a", Outcome.FAIL, "code -9"), ("b", Outcome.PASS, ""), ("s", Outcome.FAIL, "why")
    ]  # fmt: skip


def test_a_figure_that_was_not_measured_is_none():
    assert figure(lambda: {}["row"]) is None
    assert figure(lambda: 2.0) == 2.0


def test_a_verdict_is_one_line_and_json():
    checks = (LimitCheck("one core", 712.4, ">=", 600.0, "million a second"), LimitCheck("d", None, "<=", 0.75))
    row = Verdict("ring", "the fold", checks)
    assert row.line() == (
        "----  the fold  one core: 712 million a second (>= 600 million a second); d: not judged (<= 0.750)"
    )
    assert json.loads(json.dumps(row.to_dict()))["checks"][0] == {
        "what": "one core", "figure": 712.4, "relation": ">=", "limit": 600.0, "unit": "million a second"
    }  # fmt: skip


@given(st.floats(min_value=0.01, max_value=1e9))
def test_figures_read_without_exponents_and_stay_close(figure):
    text = readable(figure)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(figure, rel=0.05)


def test_results_are_whole_files_of_their_day_and_an_older_pair_is_replaced(tmp_path):
    for value in (1, 2):
        paths = Results("sum", {"value": value}, "<svg/>").write(tmp_path / "out", 1_700_000_000.0)
    assert [path.name for path in paths] == ["2023-11-14-sum.json", "2023-11-14-sum.svg"]
    found = json.loads(paths[0].read_text())
    assert (found["value"], found["bench"], found["date"]) == (2, "sum", "2023-11-14")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [path.name for path in paths]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(StoreError, match="out"):
        Results("x", {}, "").write(tmp_path / "out", 0.0)


def test_the_machine_is_cores_and_versions_and_nothing_that_names_it():
    found = machine()
    assert found["cores"] >= 1 and found["packages"]["numpy"]
    assert set(found) == {"cores", "python", "packages"}
    assert str(Path.home()) not in json.dumps(found)
