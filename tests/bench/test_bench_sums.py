"""The benchmark of secure sums: which rows are run, how they are judged, what they look like."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from kit.clocks import FakeClock

from benchmarks.harness.timing import Repeats, Timing
from benchmarks.harness.verdicts import Outcome
from benchmarks.sums import limits, plot, report, suite
from benchmarks.sums.cases import (
    LARGEST_VALUE,
    Case,
    Confirmed,
    Figures,
    WrongSum,
    check_sum,
    some_floats,
    some_values,
)
from benchmarks.sums.report import Exactness, Measured, Memory
from fednode.errors import ConfigError

MILLION = 1_000_000
GOOD = {"client": 0.05, "node": 0.001, "opening": 0.2, "holder": 0.04}


def timing(seconds):
    return Timing(seconds, seconds, 5, 2 * seconds, seconds)


def figures(bytes_up=2_800_000, **seconds):
    found = {**GOOD, **seconds}
    return Figures(
        bytes_up=bytes_up,
        bytes_down=4_000_480,
        client=timing(found["client"]),
        node=timing(found["node"]),
        opening=timing(found["opening"]),
        peak_bytes=150_000_000,
        holder_bytes=664_000,
        holder=timing(found["holder"]),
        parts={"seal": 0.03},
    )


def good_run(**rows):
    found = {("ring", MILLION, n): figures(up) for n, up in ((10, 2_200_000), (100, 2_800_000), (1_000, 3_500_000))}
    found |= {("ckks", MILLION, n): figures(57_000_000, client=1.4) for n in (10, 100, 1_000)}
    memory = Memory(MILLION, 10, 1_000, 150_000_000, 151_000_000)
    confirmed = {100: Confirmed(71_000, 500, timing(0.02))}
    return Measured({**found, **rows}, memory, Exactness(10_000, 0, 60.0), confirmed)


class FakeRunner:
    """Answers every job at once and remembers it."""

    def __init__(self):
        self.alone_jobs, self.together_jobs = [], []

    def alone(self, job):
        self.alone_jobs.append(job)
        if "memory" in str(job.program):
            return {"peak_bytes": 100_000_000 + job.asked["clients"]}
        if "confirm" in str(job.program):
            return Confirmed(700 * job.asked["clients"], 468, timing(0.02)).to_dict()
        return {} if "uploads" in str(job.program) else figures().to_dict()

    def together(self, jobs):
        self.together_jobs.append(jobs)
        return [{"differences": 0} for _ in jobs]

    def names(self):
        return [job.name for job in self.alone_jobs]


def run(options):
    fake, said = FakeRunner(), []
    runner = suite.Runner(fake.alone, fake.together)
    return suite.run_sums(options, said.append, FakeClock(), runner), fake, said


def test_every_row_is_measured_for_every_size_and_cohort():
    measured, fake, said = run(suite.SumOptions())
    sizes, cohorts = (MILLION, 10 * MILLION), (10, 100, 1_000)
    wanted = {(row, d, n) for row in ("plain", "secagg", "ckks", "ring") for d in sizes for n in cohorts}
    wanted |= {("bfv", MILLION, n) for n in cohorts}
    assert set(measured.rows) == wanted
    assert len(set(fake.names())) == len(fake.names())
    assert sum(name.startswith("ckks") for name in fake.names()) == 2, "its parameters do not depend on the cohort"
    assert measured.exact == Exactness(10_000, 0, 0.0) and measured.memory.few == 10
    assert any("10,000 of 10,000" in line for line in said)


def test_the_roster_is_confirmed_by_cohorts_that_a_real_round_is_run_with():
    measured, fake, said = run(suite.SumOptions(rows=("confirm",)))
    assert list(measured.confirmed) == [10, 100] == [job.asked["clients"] for job in fake.alone_jobs]
    assert measured.confirmed[100] == Confirmed(70_000, 468, timing(0.02)) and measured.rows == {}
    assert any("n = 1,000: left out" in line for line in said)


def test_a_confirmation_over_a_limit_fails_its_row_alone_and_is_open_elsewhere():
    for step in (Confirmed(71_000, 500, timing(0.0601)), Confirmed(102_000, 500, timing(0.02))):
        outcomes = [verdict.outcome for verdict in limits.judged(replace(good_run(), confirmed={100: step}))]
        assert outcomes == [Outcome.PASS] * 6 + [Outcome.FAIL]
    small = replace(good_run(), confirmed={10: Confirmed(7_000, 500, timing(9.0))})
    assert limits.judged(small)[6].outcome is Outcome.OPEN


def test_exactness_is_shared_out_without_losing_a_round():
    measured, fake, _ = run(suite.SumOptions(rows=("exact",), exact_rounds=3_456))
    jobs = [job for pair in fake.together_jobs for job in pair]
    assert sum(job.asked["rounds"] for job in jobs) == measured.exact.rounds == 3_456
    assert len({job.asked["seed"] for job in jobs}) == len(jobs)
    assert fake.alone_jobs == []


def test_memory_is_compared_under_one_plan():
    measured, fake, _ = run(suite.SumOptions(rows=("memory",)))
    asked = [job.asked for job in fake.alone_jobs]
    assert {one["planned"] for one in asked} == {1_000}
    assert [one["clients"] for one in asked if "clients" in one] == [10, 1_000]
    assert measured.memory.ratio == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("wrong", [{"rows": ("paillier",)}, {"sizes": (0,)}, {"clients": (1,)}])
def test_options_that_cannot_work_are_refused(wrong):
    with pytest.raises(ConfigError):
        suite.SumOptions(**wrong)


def test_a_good_run_passes_all():
    verdicts = limits.judged(good_run())
    assert [verdict.outcome for verdict in verdicts] == [Outcome.PASS] * 7


ring_100, ring_1000 = ("ring", MILLION, 100), ("ring", MILLION, 1_000)


@pytest.mark.parametrize(
    ("row", "change"),
    [
        (0, {ring_100: figures(3_000_001)}),
        (0, {ring_1000: figures(3_600_001)}),
        (1, {ring_100: figures(client=0.0601)}),
        (1, {("ckks", MILLION, 10): figures(client=1.2)}),
        (2, {ring_1000: figures(3_500_000, node=0.0017)}),
        (3, {ring_100: figures(opening=0.251)}),
        (3, {ring_100: figures(holder=0.0601)}),
    ],
)
def test_one_figure_over_its_limit_fails_its_row_alone(row, change):
    measured = replace(good_run(), rows={**good_run().rows, **change})
    outcomes = [verdict.outcome for verdict in limits.judged(measured)]
    assert outcomes == [Outcome.FAIL if i == row else Outcome.PASS for i in range(7)]


def test_memory_and_exactness_are_judged_on_full_runs_only():
    grown = replace(good_run(), memory=Memory(MILLION, 10, 1_000, 100, 111))
    assert limits.judged(grown)[4].outcome is Outcome.FAIL
    small = replace(good_run(), memory=Memory(20_000, 10, 1_000, 100, 111), exact=Exactness(9_999, 0, 1.0))
    assert [verdict.outcome for verdict in limits.judged(small)[4:6]] == [Outcome.OPEN, Outcome.OPEN]
    wrong = replace(good_run(), exact=Exactness(20, 1, 1.0))
    assert limits.judged(wrong)[5].outcome is Outcome.FAIL, "one difference is one too many in any run"


def test_the_table_is_aligned_and_complete():
    lines = report.table(good_run())
    assert len(lines) == 2 + 6 and len({len(line) for line in lines}) == 1
    assert [cell.strip() for cell in lines[3].strip("|").split("|")] == [
        "ring", "1,000,000", "100", "0.700", "1.000", "50", "1", "664,000", "40", "200", "150",
    ]  # fmt: skip


def test_the_words_end_with_a_verdict_a_row():
    measured = good_run()
    words = report.words(measured, limits.judged(measured))
    assert [line[:4] for line in words[-7:]] == ["PASS"] * 7
    assert any("0 differences in 10,000" in line for line in words)
    assert "confirm, n = 100: one of 5 holders 20 ms, 71,000 bytes down and 500 up" in words


def test_a_busy_machine_is_said_to_be_one():
    disturbed = replace(figures(), opening=Timing(2.0, 2.0, 5, 2.0, 8.0))
    measured = replace(good_run(), rows={ring_1000: disturbed, ring_100: figures()})
    (line,) = [line for line in report.words(measured, ()) if "busy" in line]
    assert "3.5 x" in line
    assert not any("busy" in line for line in report.words(good_run(), ()))


def test_the_document_holds_everything_and_is_json():
    measured = good_run()
    found = json.loads(json.dumps(report.document(measured, limits.judged(measured))))
    assert len(found["rows"]) == 6 and len(found["verdicts"]) == 7
    assert found["memory"]["peak_many"] == 151_000_000 and found["exact"]["rounds"] == 10_000
    assert [step["clients"] for step in found["confirm"]] == [100]
    row = next(row for row in found["rows"] if (row["row"], row["clients"]) == ("ring", 100))
    assert row["client"] == {"median": 0.05, "best": 0.05, "runs": 5, "warm_up": 0.1, "wall": 0.05}


def test_figures_and_cases_survive_the_way_between_processes():
    bare = replace(figures(), holder=None, holder_bytes=None)
    for value in (figures(), bare):
        assert Figures.from_dict(json.loads(json.dumps(value.to_dict()))) == value
    step = good_run().confirmed[100]
    assert Confirmed.from_dict(json.loads(json.dumps(step.to_dict()))) == step and step.total == 71_500
    case = Case(100, 3, Repeats(1, 0.5, 2))
    assert Case.from_dict(json.loads(json.dumps(case.to_dict()))) == case


def test_the_plot_names_every_row_and_is_the_same_every_time():
    measured = good_run()
    drawn = plot.svg(measured)
    assert drawn.count("<svg") == 1 and plot.svg(measured) == drawn
    assert {"ring", "ckks", "bytes up, x float32", "client, s"} <= set(re.findall(r">([^<>\n]+)</text>", drawn))
    assert "<svg" in plot.svg(Measured())


def test_a_row_keeps_its_colour_in_every_panel():
    rows = {("ring", MILLION, 10): figures(), ("plain", MILLION, 10): figures(), ("ring", 10 * MILLION, 10): figures()}
    alone = plot.svg(Measured({("ring", MILLION, 10): figures()}))
    colours = set(re.findall(r"stroke: (#[0-9a-f]{6})", alone)) - {"#000000", "#b0b0b0"}
    assert len(colours) == 1
    assert plot.svg(Measured(rows)).count(colours.pop()) > 4


def test_values_fill_their_bits_and_differ_between_clients():
    case = Case(50_000, 10)
    values = some_values(case)
    assert values.dtype == np.int64 and (values.min(), values.max()) == (-LARGEST_VALUE, LARGEST_VALUE)
    assert np.array_equal(values, some_values(case)) and not np.array_equal(values, some_values(case, 1))
    floats = some_floats(case)
    assert floats.dtype == np.float32 and np.array_equal(np.rint(floats * LARGEST_VALUE), values)


def test_a_wrong_sum_stops_the_row():
    parts = [np.array([1, 2]), np.array([3, 4])]
    with pytest.raises(WrongSum):
        check_sum(np.array([4, 7]), parts)
    with pytest.raises(WrongSum):
        check_sum(np.array([4]), [np.array([4, 6])])
    assert check_sum(np.array([4, 6]), parts) is None
    assert check_sum(np.array([4.05, 6.0]), parts, tolerance=0.1) is None
