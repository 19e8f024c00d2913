"""The cache's benchmark: which rows are run, how they are judged, how a run reads."""

import json
from dataclasses import replace

import pytest

from benchmarks.cache import array, hot, limits, many, report, suite, sweep
from benchmarks.cache.invalidation import BATCH, ONE_BY_ONE, ROUND_TRIP
from benchmarks.cache.suite import CacheOptions
from benchmarks.harness.suite import Measured
from benchmarks.harness.verdicts import Outcome
from benchmarks.trace.suite import Ratios, Replayed

NAMES = ("hot", "many", "array", "invalidation", "sweep", "trace", "updates", "frozen")


def times(**microseconds):
    return {side: {"low": us / 1e6, "middle": us / 1e6, "windows": 5} for side, us in microseconds.items()}


def row(sides):
    return {"spreads": times(**sides)}


def run_of(room, lost=0):
    return {"policy": "lru", "room": room, "accepted": 9, "refused": 2, "lost": lost, "lost_unpinned": 7}


def trace_of(over):
    """A replay in which the default policy is over LRU by so many percent."""
    lru = {size: Ratios(0.1, 0.1, 0.1) for size in over}
    mine = {size: Ratios(*(0.1 * (1 + percent / 100),) * 3) for size, percent in over.items()}
    return Replayed("t", 1, 10, 9, 0.4, dict.fromkeys(over, 0.3), {"lru": lru, "adaptive": mine})


HOT = {hot.BARE: 0.7, hot.WRAPPED: 0.8, hot.LOCKED: 1.5, hot.BY_ITEM: 1.0}
INVALIDATION = {BATCH: 150.0, ROUND_TRIP: 100.0, ONE_BY_ONE: 4_000.0}
SWEEP = {sweep.SWEEP: 1.3, sweep.BARE: 1.0, sweep.IDLE: 2.0, sweep.EMPTY: 1.9}
GOOD = {
    "hot": row(HOT),
    "many": row({many.TOGETHER: 0.3, many.LOOP: 0.7}),
    "array": row({array.SET: 50.0, array.KEPT: 45.0, array.FRESH: 60.0}),
    "trace": trace_of({500: 0.0, 5_000: 3.6, 50_000: 0.2}),
    "updates": {"runs": [run_of(room) for room in (1.5, 1.05)]},
    "frozen": {"ratio": 0.53, "rounds": [800_000.0, 400_000.0]},
    "invalidation": row(INVALIDATION),
    "sweep": {**row(SWEEP), "freed_idle": 0},
    "columns": {
        "lines": {"get, 64 B, hot": times(FedNode=0.7, dict=0.03), "get, 1 MB": times(FedNode=0.7)},
        "left_out": ["theine is left out: theine is not installed"],
    },
}


def good_run(**changed):
    return Measured({**GOOD, **changed})


def outcomes(measured):
    return {verdict.row: verdict.outcome for verdict in limits.judged(measured)}


def test_a_good_run_passes_every_row():
    assert outcomes(good_run()) == dict.fromkeys(NAMES, Outcome.PASS)


SEEDS = {"lru": {500: Ratios(0.1, 0.1, 0.1)}, "adaptive": {500: Ratios(0.105, 0.098, 0.12)}}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("hot", row({**HOT, hot.BARE: 0.81})),
        ("hot", row({**HOT, hot.WRAPPED: 0.91})),
        ("many", row({many.TOGETHER: 0.36, many.LOOP: 0.7})),
        ("array", row({array.SET: 57.0, array.KEPT: 45.0})),
        *(
            ("trace", trace_of(over))
            for over in (
                {500: -1.1, 5_000: 3.6}, {500: 0.0, 5_000: 2.9}, {500: 0.0, 10_000: 9.0}, {5_000: 3.6, 50_000: -1.5}
            )
        ),
        ("trace", replace(trace_of({500: 0.0}), policies=SEEDS)),
        ("updates", {"runs": [run_of(1.5), run_of(1.05), run_of(1.05, lost=1)]}),
        ("frozen", {"ratio": 0.56, "rounds": [800_000.0]}),
        ("invalidation", row({**INVALIDATION, BATCH: 201.0, ONE_BY_ONE: 9_000.0})),
        ("invalidation", row({**INVALIDATION, ONE_BY_ONE: 2_900.0})),
        ("sweep", row({**SWEEP, sweep.SWEEP: 1.51})),
        ("sweep", row({**SWEEP, sweep.IDLE: 4.0})),
    ],
)  # fmt: skip
def test_one_figure_over_its_limit_fails_its_row_alone(name, answer):
    assert outcomes(good_run(**{name: answer})) == {**dict.fromkeys(NAMES, Outcome.PASS), name: Outcome.FAIL}


def test_a_slow_get_passes_beside_a_peer_that_is_twice_as_slow():
    slow = {side: 10 * us for side, us in HOT.items()}
    assert outcomes(good_run(hot=row({**slow, hot.LOCKED: 17.0})))["hot"] is Outcome.PASS
    alone = row({hot.BARE: 0.7, hot.WRAPPED: 0.8})
    assert outcomes(good_run(hot=alone))["hot"] is Outcome.OPEN, "the wrapped get has nothing to be held against"


def test_a_small_run_and_a_run_without_rows_judge_nothing():
    for measured in (replace(good_run(), full=False), Measured()):
        assert set(outcomes(measured).values()) == {Outcome.OPEN}


def answered(job):
    if job.name == "the bounds":
        return {"infinite": 1, "belady": [1 for _ in job.asked["sizes"]]}
    if "sizes" in job.asked:
        return {"hits": [1 for _ in job.asked["sizes"]]}
    return {"row": job.name}


def test_every_row_is_a_process_of_its_own_and_the_trace_needs_a_file(tmp_path, session):
    made, _ = session(answered)
    measured = suite.run_cache(CacheOptions(), made)
    wanted = [name for name in suite.ROWS if name != "trace"]
    assert [job.name for job in made.processes.jobs] == wanted == list(measured.answers) and measured.full
    path = tmp_path / "t"
    path.write_text('{"timestamp": 0, "hash_ids": [1, 1]}\n')
    made, _ = session(answered)
    measured = suite.run_cache(CacheOptions(("trace", "many"), path, suite.QUICK), made)
    assert measured.answers["trace"].accesses == 2 and not measured.full
    assert [job.asked for job in made.processes.jobs] == [{"windows": 5}]


def test_the_words_hold_the_tables_and_the_document_everything():
    measured = good_run()
    verdicts = limits.judged(measured)
    words, found = report.words(measured, verdicts), report.results(measured, verdicts)
    assert [line[:4] for line in words[-8:]] == ["PASS"] * 8
    text = "\n".join(words)
    assert f"{hot.LOCKED} |" in text and "0.700/0.700" in text and "theine is left out" in text
    assert "40.00 %" in text and "0.700 x, in wrappers 0.800 x" in text
    assert "800,000 bytes down a client in the first round, 400,000 in the last of 2" in text
    document = json.loads(json.dumps(found.document))
    assert set(document["rows"]) == set(suite.ROWS) - {"trace"} and len(document["verdicts"]) == 8 and document["full"]
    assert document["trace"]["rows"][0]["policy"] == "belady" and found.plot.count("<svg") == 1
