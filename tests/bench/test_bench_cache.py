"""The benchmark of the cache: which rows are run, how they are judged, what they look like."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from kit.clocks import FakeClock

from benchmarks.cache import array, hot, limits, many, plot, report, suite, sweep
from benchmarks.cache.suite import CacheOptions, Measured
from benchmarks.harness.processes import RowFailed
from benchmarks.harness.verdicts import Check, Outcome, exit_code
from benchmarks.trace.reading import BadTrace
from benchmarks.trace.suite import Ratios, Replayed
from fednode.errors import ConfigError

NAMES = ("hot", "many", "array", "trace", "updates", "frozen", "invalidation", "sweep")


def times(**microseconds):
    return {side: {"low": us / 1e6, "middle": us / 1e6, "windows": 5} for side, us in microseconds.items()}


def row(sides):
    return {"spreads": times(**sides)}


def run_of(room, lost=0, policy="lru"):
    return {"policy": policy, "room": room, "accepted": 9, "refused": 2, "lost": lost, "lost_unpinned": 7}


INVALIDATION = row({limits.BATCH: 150.0, limits.ROUND_TRIP: 100.0, limits.ONE_BY_ONE: 4_000.0})
FROZEN = {"ratio": 0.53, "rounds": [800_000.0, 400_000.0]}


def good_answers():
    return {
        "hot": row({hot.BARE: 0.7, hot.WRAPPED: 0.8, hot.LOCKED: 1.5, hot.BY_ITEM: 1.0}),
        "many": row({many.TOGETHER: 0.3, many.LOOP: 0.7}),
        "array": row({array.SET: 50.0, array.KEPT: 45.0, array.FRESH: 60.0}),
        "updates": {"runs": [run_of(1.5), run_of(1.05), run_of(1.5, policy="lfu"), run_of(1.05, policy="lfu")]},
        "frozen": FROZEN,
        "invalidation": INVALIDATION,
        "sweep": {**row({sweep.SWEEP: 1.3, sweep.BARE: 1.0, sweep.IDLE: 2.0, sweep.EMPTY: 1.9}), "freed_idle": 0},
        "columns": {
            "lines": {"get, 64 B, hot": times(FedNode=0.7, dict=0.03), "get, 1 MB": times(FedNode=0.7)},
            "left_out": ["theine is left out: theine is not installed"],
        },
    }


def trace_of(over):
    """A replay in which the default policy is over LRU by so many percent."""
    lru = {size: Ratios(0.1, 0.1, 0.1) for size in over}
    mine = {size: Ratios(*(0.1 * (1 + percent / 100),) * 3) for size, percent in over.items()}
    return Replayed("t", 1, 10, 9, 0.4, dict.fromkeys(over, 0.3), {"lru": lru, "adaptive": mine})


def good_run(**changed):
    return Measured({**good_answers(), **changed}, trace_of({500: 0.0, 5_000: 3.6, 50_000: 0.2}))


def outcomes(measured):
    return [verdict.outcome for verdict in limits.judged(measured)]


def test_a_good_run_passes_every_row():
    assert outcomes(good_run()) == [Outcome.PASS] * 8


SLOW_HOT = {hot.BARE: 0.81, hot.WRAPPED: 0.81, hot.LOCKED: 1.5, hot.BY_ITEM: 1.0}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("hot", row(SLOW_HOT)),
        ("hot", row({**SLOW_HOT, hot.BARE: 0.7, hot.WRAPPED: 0.91})),
        ("many", row({many.TOGETHER: 0.36, many.LOOP: 0.7})),
        ("array", row({array.SET: 57.0, array.KEPT: 45.0})),
        ("updates", {"runs": [run_of(1.5), run_of(1.05), run_of(1.05, lost=1)]}),
        ("frozen", {"ratio": 0.56, "rounds": [800_000.0]}),
        ("invalidation", row({limits.BATCH: 201.0, limits.ROUND_TRIP: 100.0, limits.ONE_BY_ONE: 9_000.0})),
        ("invalidation", row({limits.BATCH: 150.0, limits.ROUND_TRIP: 100.0, limits.ONE_BY_ONE: 2_900.0})),
        ("sweep", row({sweep.SWEEP: 1.51, sweep.BARE: 1.0, sweep.IDLE: 2.0, sweep.EMPTY: 1.9})),
        ("sweep", row({sweep.SWEEP: 1.3, sweep.BARE: 1.0, sweep.IDLE: 4.0, sweep.EMPTY: 1.9})),
    ],
)
def test_one_figure_over_its_limit_fails_its_row_alone(name, answer):
    wanted = [Outcome.FAIL if one == name else Outcome.PASS for one in NAMES]
    assert outcomes(good_run(**{name: answer})) == wanted


@pytest.mark.parametrize(
    "over", [{500: -1.1, 5_000: 3.6}, {500: 0.0, 5_000: 2.9}, {500: 0.0, 10_000: 9.0}, {5_000: 3.6, 50_000: -1.5}]
)
def test_the_default_policy_fails_under_lru_or_without_a_gain_in_a_small_cache(over):
    assert outcomes(replace(good_run(), replayed=trace_of(over)))[3] is Outcome.FAIL


def test_the_worst_seed_counts_for_never_under_lru():
    ratios = {500: Ratios(0.105, 0.098, 0.12)}
    replayed = replace(trace_of({500: 0.0}), policies={"lru": {500: Ratios(0.1, 0.1, 0.1)}, "adaptive": ratios})
    assert outcomes(replace(good_run(), replayed=replayed))[3] is Outcome.FAIL


def test_a_slow_get_passes_beside_a_peer_that_is_twice_as_slow():
    slow = {side: 10 * us for side, us in SLOW_HOT.items()}
    assert outcomes(good_run(hot=row({**slow, hot.LOCKED: 17.0})))[0] is Outcome.PASS
    alone = row({hot.BARE: 0.7, hot.WRAPPED: 0.8})
    assert outcomes(good_run(hot=alone))[0] is Outcome.OPEN, "the wrapped get has nothing to be held against"


def test_where_one_of_two_is_enough_the_one_that_is_kept_decides():
    kept, broken, unknown = (Check("it", figure, "<=", 1.0) for figure in (0.5, 2.0, None))
    assert limits.either(broken, kept) is limits.either(kept, unknown) is kept
    assert limits.either(unknown, broken) is broken


def test_a_small_run_and_a_run_without_rows_judge_nothing():
    assert set(outcomes(replace(good_run(), judged=False))) == {Outcome.OPEN}
    assert set(outcomes(Measured())) == {Outcome.OPEN}


class FakeRunner:
    def __init__(self):
        self.jobs = []

    def alone(self, job):
        self.jobs.append(job)
        return {"row": job.name}

    def together(self, jobs):
        return [
            {"infinite": 1, "belady": [1 for _ in job.asked["sizes"]], "hits": [1 for _ in job.asked["sizes"]]}
            for job in jobs
        ]


def run(**options):
    fake, said = FakeRunner(), []
    runner = suite.Runner(fake.alone, fake.together)
    return suite.run_cache(CacheOptions(**options), said.append, FakeClock(), runner), fake, said


def test_every_row_is_a_process_of_its_own_and_the_trace_waits_for_a_file(tmp_path):
    measured, fake, said = run()
    assert [job.name for job in fake.jobs] == [name for name in suite.ROWS if name != "trace"]
    assert set(measured.answers) == set(suite.ROWS) - {"trace"} and measured.replayed is None and measured.judged
    assert any("--trace FILE" in line for line in said)
    path = tmp_path / "t"
    path.write_text('{"timestamp": 0, "hash_ids": [1, 1]}\n')
    measured, fake, said = run(trace=path, rows=("trace", "many"), sizes=suite.QUICK)
    assert measured.replayed.accesses == 2 and set(measured.answers) == {"many"} and not measured.judged
    assert fake.jobs[0].asked == {"windows": 5}


def test_a_broken_row_fails_with_its_reason_and_costs_no_other(tmp_path):
    def alone(job):
        if job.name == "many":
            raise RowFailed("the process of many ended with code -9 and no answer")
        if job.name == "columns":
            raise KeyError("spreads")
        return good_answers()[job.name]

    def together(jobs):
        raise OSError("no process")

    path, said = tmp_path / "t", []
    path.write_text('{"timestamp": 0, "hash_ids": [1, 1]}\n')
    options = CacheOptions(rows=("hot", "many", "trace", "columns", "frozen"), trace=path, sizes=suite.QUICK)
    measured = suite.run_cache(options, said.append, FakeClock(), suite.Runner(alone, together))
    assert (set(measured.answers), set(measured.broken)) == ({"hot", "frozen"}, {"many", "trace", "columns"})
    verdicts = limits.judged(measured)
    failed = [verdict.line() for verdict in verdicts if verdict.outcome is Outcome.FAIL]
    assert len(failed) == 3 and any("code -9" in line for line in failed)
    assert any("OSError: no process" in line for line in failed) and any("columns" in line for line in said)
    assert exit_code(verdicts) == 1
    found = json.loads(json.dumps(report.document(measured, verdicts)))
    assert set(found["rows"]) == {"hot", "frozen"} and set(found["broken"]) == {"many", "trace", "columns"}
    assert report.words(measured, verdicts) and "<svg" in plot.svg(measured)


def test_a_trace_that_is_no_file_is_refused_though_its_row_is_not_run(tmp_path):
    for path in (tmp_path / "nosuch", tmp_path):
        with pytest.raises(BadTrace, match="is not a file"):
            CacheOptions(rows=("hot",), trace=path)


def test_an_unknown_row_is_refused():
    with pytest.raises(ConfigError, match="choose from hot, many"):
        CacheOptions(rows=("hot", "cold"))


def test_the_words_hold_the_tables_and_end_with_the_verdicts():
    measured = good_run()
    words = report.words(measured, limits.judged(measured))
    assert [line[:4] for line in words[-8:]] == ["PASS"] * 8
    text = "\n".join(words)
    assert f"{hot.LOCKED} |" in text and "0.700/0.700" in text and "theine is left out" in text
    assert "an infinite cache: 40.00 %" in text
    assert "not judged: 0.700 x, in wrappers 0.800 x" in text
    assert "800,000 bytes down a client in the first round, 400,000 in the last of 2" in text
    tables = [line for line in words if line.startswith("|")]
    assert any(line.split("|")[1].strip() == "lfu" and "1.05" in line for line in tables)


def test_what_was_not_judged_is_said():
    without, small = replace(good_run(), replayed=None), replace(good_run(), judged=False)
    assert "--trace FILE" in report.words(without, limits.judged(without))[-1]
    assert "--quick" in report.words(small, limits.judged(small))[-1]
    assert report.words(Measured(), ())[-1].endswith("--trace FILE")


def test_the_document_holds_everything_and_is_json():
    measured = good_run()
    found = json.loads(json.dumps(report.document(measured, limits.judged(measured))))
    assert set(found["rows"]) == set(suite.ROWS) - {"trace"} and len(found["verdicts"]) == 8 and found["full"]
    assert found["trace"]["rows"][0]["policy"] == "belady"
    assert json.loads(json.dumps(report.document(Measured(), ())))["trace"] is None


def test_the_plot_names_the_columns_and_is_the_same_every_time():
    drawn = plot.svg(good_run())
    assert drawn.count("<svg") == 1 and plot.svg(good_run()) == drawn
    assert {"FedNode", "dict", "adaptive", "get, 64 B, hot"} <= set(re.findall(r">([^<>\n]+)</text>", drawn))
    assert "<svg" in plot.svg(Measured())


def test_rows_and_programs_have_the_same_names():
    folder = Path(suite.__file__).parent
    assert [name for name in suite.ROWS if name != "trace" and not (folder / f"{name}.py").is_file()] == []
