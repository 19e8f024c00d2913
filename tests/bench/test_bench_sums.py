"""Secure sums: which jobs are run, how figures are judged, and how a run reads."""

import json
from dataclasses import asdict, replace

import pytest

from benchmarks.harness.suite import Measured
from benchmarks.harness.timing import Timing
from benchmarks.harness.verdicts import Outcome
from benchmarks.sums import limits, report, suite
from benchmarks.sums.cases import CHECK_BOX, CHECK_CLIENT, CHECK_HEAD, CHECK_HOLDER, ConfirmStep, Figures

MILLION = 1_000_000
SECONDS = {"client": 0.05, "node": 0.001, "opening": 0.2, "holder": 0.04}


PARTS = {CHECK_CLIENT: 0.002, CHECK_HOLDER: 0.002, CHECK_HEAD: 99.0, CHECK_BOX: 24.0}


def timing(seconds):
    return Timing(seconds, seconds, 5, 2 * seconds, seconds)


def figures(bytes_up=2_800_000, parts=PARTS, **seconds):
    found = {role: timing(taken) for role, taken in {**SECONDS, **seconds}.items()}
    return Figures(bytes_up, 4_000_480, peak_bytes=150_000_000, holder_bytes=664_000, parts=parts, **found)


STEP = ConfirmStep(71_000, 500, timing(0.02))
MEMORY = {"dimension": MILLION, "few": 10, "many": 1_000, "peak_few": 150_000_000, "peak_many": 151_000_000}
EXACT = {"rounds": 10_000, "differences": 0, "seconds": 60.0}


def good_run(ring=(), ckks=(), **answers):
    rows = {(MILLION, n): figures(up) for n, up in ((10, 2_200_000), (100, 2_800_000), (1_000, 3_500_000))}
    slow = {(MILLION, n): figures(57_000_000, client=1.4) for n in (10, 100, 1_000)}
    good = {"ring": {**rows, **dict(ring)}, "ckks": {**slow, **dict(ckks)}}
    return Measured({**good, "memory": MEMORY, "exact": EXACT, "confirm": {100: STEP}, **answers})


def outcomes(measured):
    return [verdict.outcome for verdict in limits.judged(measured)]


def test_every_row_is_measured_for_every_size_and_cohort(session):
    def answer(job):
        if "exact" in job.program:
            return {"differences": 0}
        if "memory" in job.program:
            return {"peak_bytes": 100_000_000 + job.asked["clients"]}
        if "uploads" in job.program:
            return {}
        if job.asked["row"] == "confirm":
            return asdict(ConfirmStep(700 * job.asked["clients"], 468, timing(0.02)))
        return asdict(figures())

    made, said = session(answer)
    found = suite.run_sums(suite.SumOptions(exact_rounds=3_456), made).answers
    sizes, cohorts = (MILLION, 10 * MILLION), (10, 100, 1_000)
    for row in ("plain", "secagg", "ckks", "ring"):
        assert found[row] == {(d, n): figures() for d in sizes for n in cohorts}
    assert set(found["bfv"]) == {(MILLION, n) for n in cohorts}
    names = [job.name for job in made.processes.jobs]
    assert len(set(names)) == len(names)
    assert sum(name.startswith("ckks") for name in names) == 2, "its parameters do not depend on the cohort"
    parts = [job.asked for batch in made.processes.batches for job in batch]
    assert sum(part["rounds"] for part in parts) == 3_456 and len({part["seed"] for part in parts}) == len(parts)
    assert found["exact"] == {"rounds": 3_456, "differences": 0, "seconds": 0.0}
    assert found["confirm"] == {n: ConfirmStep(700 * n, 468, timing(0.02)) for n in (10, 100)}
    assert any("n = 1,000: left out" in line for line in said)
    assert {job.asked["planned_for"] for job in made.processes.jobs if "planned_for" in job.asked} == {1_000}
    assert (found["memory"]["peak_few"], found["memory"]["peak_many"]) == (100_000_010, 100_001_000)


RING_100, RING_1000 = (MILLION, 100), (MILLION, 1_000)


@pytest.mark.parametrize(
    ("row", "change"),
    [
        (0, {"ring": {RING_100: figures(3_000_001)}}),
        (0, {"ring": {RING_1000: figures(3_600_001)}}),
        (1, {"ring": {RING_100: figures(client=0.0601)}}),
        (1, {"ckks": {(MILLION, 10): figures(client=1.2)}}),
        (2, {"ring": {RING_1000: figures(3_500_000, node=0.0017)}}),
        (3, {"ring": {RING_100: figures(opening=0.251)}}),
        (3, {"ring": {RING_100: figures(holder=0.0601)}}),
        (4, {"memory": {**MEMORY, "peak_many": 166_000_000}}),
        (5, {"exact": {"rounds": 20, "differences": 1, "seconds": 1.0}}),
        (6, {"confirm": {100: replace(STEP, holder=timing(0.0601))}}),
        (6, {"confirm": {100: replace(STEP, bytes_down=102_000)}}),
        (7, {"ring": {RING_100: figures(parts={**PARTS, CHECK_CLIENT: 0.0031})}}),
        (7, {"ring": {RING_100: figures(parts={**PARTS, CHECK_HOLDER: 0.0031})}}),
        (7, {"ring": {RING_100: figures(parts={**PARTS, CHECK_HEAD: 101.0})}}),
        (7, {"ring": {RING_100: figures(parts={**PARTS, CHECK_BOX: 301.0})}}),
    ],
)
def test_one_figure_over_its_limit_fails_its_row_alone(row, change):
    assert outcomes(good_run(**change)) == [Outcome.FAIL if i == row else Outcome.PASS for i in range(8)]


def test_a_small_run_is_not_judged():
    small = {"memory": {**MEMORY, "dimension": 20_000, "peak_many": 900_000_000}, "confirm": {10: STEP}}
    rows = {"ring": {(20_000, 10): figures(99_000_000)}, "exact": {**EXACT, "rounds": 9_999}}
    for answers in ({**rows, **small}, {}):
        assert set(outcomes(Measured(answers))) == {Outcome.OPEN}


def test_a_run_reads_as_table_lines_and_a_verdict_a_row_and_is_json():
    measured = good_run()
    lines, words = report.table(measured), report.words(measured, limits.judged(measured))
    row = next(line for line in lines if "ring" in line and " 100 " in line)
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "ring", "1,000,000", "100", "0.700", "1.000", "50", "1", "664,000", "40", "200", "150",
    ]  # fmt: skip
    assert len(lines) == 2 + 6 and [line[:4] for line in words[-8:]] == ["PASS"] * 8
    results = report.results(measured, limits.judged(measured))
    found = json.loads(json.dumps(results.document))
    assert (len(found["rows"]), len(found["verdicts"])) == (6, 8) and results.plot.count("<svg") == 1
    assert found["memory"]["peak_many"] == 151_000_000 and found["exact"]["rounds"] == 10_000
    assert [step["clients"] for step in found["confirm"]] == [100]
    row = next(row for row in found["rows"] if (row["row"], row["clients"]) == ("ring", 100))
    assert row["client"] == {"median": 0.05, "best": 0.05, "runs": 5, "warm_up": 0.1, "wall": 0.05}
