"""The acceptance list of the privacy part, a test a row and named after it; its numbers are from independent tables."""

import json
import math
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from kit.auditing import forgotten, halved, small_audit
from kit.clocks import FakeClock
from kit.cohort import FakeCohort, Size, check_released, opened_sum, silent
from kit.crypto.insecure import InsecureRng
from kit.sample_record import sample_record

from fednode.assemble.planning import plan_run
from fednode.errors import BudgetExhausted
from fednode.privacy import (
    AdaptiveClip,
    Budget,
    DiscreteGaussianSum,
    Ledger,
    epsilon,
    gaussian_epsilon_of_mu,
    group_epsilon,
    rounds_left,
)
from fednode.protocol.model import Layout
from fednode.protocol.spec import rounded_norm
from fednode.reports import parse_report, render_html, render_json
from fednode.reports.exports import registry_yaml
from fednode.reports.figures import plain
from fednode.reports.page import statement
from fednode.settings import RunSettings
from fednode_clients.client.privatise import round_to_grid
from fednode_clients.training.gradients import clipped_gradient_sum
from fednode_clients.training.models import linear_head
from fednode_crypto import Demand, SystemRng, WrongParameters, plan
from fednode_crypto.noise import discrete_gaussian

DELTA = 1e-5
SAMPLER = "fednode_clients.client.privatise.discrete_gaussian"


def shares(z: float, planned: int, arrived: int | None = None) -> DiscreteGaussianSum:
    """A round in which `arrived` of `planned` shares, which together are z clips of noise, are in the sum."""
    variance = round((z * 2**40) ** 2 / planned)
    return DiscreteGaussianSum(1.0, 40, 1, variance, arrived or planned, 0.0)


@pytest.mark.parametrize(("z", "rounds", "exact"), [(1.0, 50, 54.3766), (5.0, 50, 6.5730), (10.0, 1, 0.3407)])
def test_row_1_accountant_table(z, rounds, exact):
    from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    assert gaussian_epsilon_of_mu(math.sqrt(rounds) / z, DELTA) == pytest.approx(exact, abs=1e-4)
    events = [shares(z, 100)] * rounds
    reference = PLDAccountant(value_discretization_interval=1e-3)
    reference.compose(SelfComposedDpEvent(GaussianDpEvent(z), rounds))
    assert abs(epsilon(events, DELTA) - reference.get_epsilon(DELTA)) < 0.02
    # less noise, more rounds and less delta cost more
    assert epsilon([shares(z * 1.01, 100)] * rounds, DELTA) < epsilon(events, DELTA)
    assert epsilon(events, DELTA) < epsilon([*events, shares(z, 100)], DELTA) < epsilon([*events] * 2, DELTA / 10)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0])
def test_row_1_what_is_no_noise_or_no_clip_is_rejected(bad):
    with pytest.raises(ValueError):
        DiscreteGaussianSum(bad, 16, 10, 100, 2, 0.0)
    with pytest.raises(ValueError):
        DiscreteGaussianSum(1.0, 16, 10, bad, 2, 0.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        gaussian_epsilon_of_mu(-1.0 if bad == math.inf or bad == 0.0 else bad, DELTA)


def test_row_2_zero_out_and_replace_one():
    events = [shares(5.0, 100)] * 50
    assert epsilon(events, DELTA) == pytest.approx(6.573, abs=1e-3)
    assert group_epsilon(events, DELTA, 2) == pytest.approx(15.456, abs=1e-3)
    assert Budget(8.0, DELTA).adjacency == "zero-out of one record"


def test_row_3_sixty_nine_rounds_and_the_next_is_asked_of_nobody(tmp_path):
    assert rounds_left([], shares(5.0, 20), 8.0, DELTA) == 69
    cohort = FakeCohort(tmp_path, Size())
    node = cohort.node(epsilon=8.0)
    driver = cohort.begun(node)
    one = cohort.task().event(cohort.size.terms(), 3)
    # all but one of the rounds that the budget holds
    for number in range(1, rounds_left([], one, 8.0, DELTA)):
        node.ledger.charge(one, number, ("client-1", "client-2", "client-3"))
    last = len(node.ledger.entries) + 1
    cohort.tell("client-4", silent)
    assert driver.run_round(last).opened
    asked = len(cohort.sent)
    with pytest.raises(BudgetExhausted):
        driver.run_round(last + 1)
    assert len(cohort.sent) == asked and node.ledger.spent <= 8.0


def test_row_3_a_charge_survives_kill_9_before_anything_is_published(tmp_path):
    code = """
import os, signal, sys
from fednode.clock import SystemClock
from fednode.privacy import Budget, DiscreteGaussianSum, Ledger
ledger = Ledger.open(sys.argv[1], Budget(8.0, 1e-5), SystemClock(), "intents")
ledger.charge(DiscreteGaussianSum(1.0, 16, 100, 10**11, 2, 0.0), 1, ("ann", "bob"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    path = tmp_path / "ledger.jsonl"
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    with Ledger.open(path, Budget(8.0, DELTA), FakeClock(), "intents") as ledger:
        assert ledger.spent == epsilon([DiscreteGaussianSum(1.0, 16, 100, 10**11, 2, 0.0)], DELTA) > 0.0


@pytest.mark.parametrize(("planned", "exact"), [(20, 7.027), (14, 5.687)])
def test_row_4_dropouts_cost_what_really_arrived(planned, exact):
    pattern = [shares(5.0, planned, arrived) for arrived in (20, 18, 19, 14, 20)] * 10
    assert epsilon(pattern, DELTA) == pytest.approx(exact, abs=1e-3)


def test_row_4_too_few_survivors_cost_nothing(tmp_path):
    cohort = FakeCohort(tmp_path, Size())
    node = cohort.node()
    driver = cohort.begun(node)
    for name in ("client-1", "client-2"):
        cohort.tell(name, silent)
    outcome = driver.run_round(1)
    assert (outcome.cause, outcome.opened, node.ledger.spent) == ("too-few-survivors", False, 0.0)


def test_row_5_vectors_of_the_clip():
    features = np.array([[math.nan, 1, 2], [math.inf, 1, 2], [3e38, 1, 2], [0, 0, 0]], dtype=np.float32)
    model = linear_head(3, 2)
    found = [clipped_gradient_sum(model, features[i : i + 1], np.array([0]), 1.0) for i in range(4)]
    assert [one.dropped for one in found] == [1, 1, 0, 0]
    assert not found[0].vector.any() and not found[1].vector.any()
    assert np.linalg.norm(found[2].vector) == pytest.approx(1.0, rel=1e-5)
    # the last record moves the bias alone
    assert not found[3].vector[:6].any() and found[3].clipped == 0
    with pytest.raises(ValueError):
        Layout.of({"w": np.zeros(3, np.float32), "n": np.array(500)})


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("first", [0.01, 100.0])
def test_row_5_an_adaptive_clip_a_hundred_times_too_small_or_large_comes_to_the_quantile(first, quantile):
    norms, noise = np.random.default_rng(5).lognormal(0.0, 0.5, 200), np.random.default_rng(6)
    rule, clips = AdaptiveClip(quantile, 200), [first]
    for _ in range(200):
        # 0.05 is the error of the share that the bit is made for
        clips.append(rule.next_clip(clips[-1], np.mean(norms <= clips[-1]) + noise.normal(0.0, 0.05)))
    assert np.median(clips[150:]) == pytest.approx(np.quantile(norms, quantile), rel=0.05)
    assert max(clips[150:]) / min(clips[150:]) < 1.5


@pytest.mark.parametrize(("bits", "most"), [(12, 1.0052), (16, 1.00012)])
def test_row_6_rounding_vectors(bits, most):
    half = np.full(4_096, 0.5) * 2.0**-bits
    rounded = round_to_grid(half, bits, InsecureRng(1))
    assert set(rounded.tolist()) == {0, 1} and np.linalg.norm(rounded) == pytest.approx(45.26, abs=1.6)
    assert np.linalg.norm(rounded) <= rounded_norm(32.0, 4_096)
    means = [round_to_grid(np.full(20_000, up), 0, InsecureRng(2)).mean() for up in (0.49, 0.51, -0.25)]
    assert means == pytest.approx([0.49, 0.51, -0.25], abs=0.012)
    # the sensitivity for 16,384 values at clip 1, with probability 1 - 2^-140 and no redraw
    assert 1.0 < rounded_norm(2.0**bits, 16_384) / 2.0**bits < most


def test_row_6_room_for_the_bits_and_never_a_wrap():
    # 1,000 clients of z = 5 on a grid of 2^-12 need more than 16 bits a value, and get them
    noise = 5.0 * 2**12
    params = plan("ring", Demand(100_000, 1_000, round(6 * noise) + 1_000 * 2**12, holders=5, threshold=4))
    assert params.lane_bits > 16
    with pytest.raises(WrongParameters):
        replace(params, lane_bits=16)


def test_row_7_variance_of_a_round_of_zeros(tmp_path):
    figures = small_audit(tmp_path, 0, features=2_000).figures
    assert abs(figures["noise"] - 1.0) < 3.0 * figures["noise_error"] and figures["noise_error"] < 0.02


def test_row_7_two_clients_noise_is_not_the_same_and_nothing_is_seeded():
    np.random.seed(0)  # noqa: NPY002 - what must have no effect
    torch.manual_seed(0)
    first = discrete_gaussian(2**20, 10_000, SystemRng())
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    second = discrete_gaussian(2**20, 10_000, SystemRng())
    # six standard errors
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.06
    assert first.dtype == np.int64 and first.std() == pytest.approx(2**10, rel=0.05)


def test_row_7_what_is_opened_lies_on_the_grid(tmp_path):
    cohort = FakeCohort(tmp_path, Size())
    outcome = check_released(cohort, cohort.begun().run_round(1))
    # raises unless each value is a whole number of steps
    opened = opened_sum(outcome.release.mean, cohort.size.terms())
    assert np.array_equal(opened, cohort.sum_of(outcome.survivors))


def test_row_8_a_sealed_update_is_in_one_sum_and_each_opening_is_charged(tmp_path):
    cohort = FakeCohort(tmp_path, Size())
    node = cohort.node()
    driver = cohort.begun(node)
    first = driver.run_round(1)
    sent = cohort.said["client-1", "round"][0]
    cohort.tell("client-1", lambda *_: [sent])
    second = driver.run_round(2)
    assert "client-1" in first.survivors and "client-1" not in second.survivors
    assert [entry.charge.round_number for entry in node.ledger.entries] == [1, 2]
    assert node.ledger.entries[1].charge.survivors == tuple(sorted(second.survivors))


def test_row_9_the_report():
    record = sample_record()
    data = render_json(record)
    assert parse_report(data) == record and json.loads(data)["run"]["guarantee"]["unit"] == "record"
    page = render_html(record).decode()
    assert "http://" not in page and "https://" not in page.replace("https://arxiv.org", "")
    said = plain(statement(record))
    assert "unit of protection is one record" in said and "neighbours" in said and "assumes that no" in said
    entry = registry_yaml(record)
    names = (b"basic", b"dp_variant", b"privacy_loss", b"deployment_model", b"accounting", b"implementation")
    assert [name for name in (*names, b"epsilon", b"delta") if name not in entry] == []


def test_row_9_another_accountant_prices_the_same_events(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path, Budget(8.0, DELTA), FakeClock(), "task") as ledger:
        for number in range(1, 6):
            ledger.charge(DiscreteGaussianSum(1.0, 16, 100, 10**11, 2, 0.0), number, ("ann", "bob"))
        entries, spent = ledger.entries, ledger.spent
    with Ledger.open(path, Budget(8.0, DELTA), FakeClock(), "task") as again:
        assert again.entries == entries and again.spent == spent < again.renyi_spent


@pytest.mark.parametrize(("sampler", "passes"), [(None, True), (halved, False), (forgotten, False)])
def test_row_10_the_audit(tmp_path, monkeypatch, sampler, passes):
    if sampler is not None:
        monkeypatch.setattr(SAMPLER, sampler)
    assert (small_audit(tmp_path).findings == ()) is passes


def test_row_11_nobody_is_sampled_so_nothing_is_amplified():
    from fednode.assemble.report_facts import _sampling

    assert not {name for name in RunSettings.model_fields if "sampl" in name or "poisson" in name}
    assert "no amplification" in _sampling(plan_run(RunSettings()))
    # a round of all clients is charged in full: q = 1
    plan_ = plan_run(RunSettings())
    assert epsilon(plan_.events(20), DELTA) > 0.85 * plan_.budget.epsilon


def test_row_12_what_was_spent_goes_on_over_rounds_and_restarts(tmp_path):
    one, spent = shares(3.0, 20), []
    for number in range(1, 6):
        with Ledger.open(tmp_path / "ledger.jsonl", Budget(50.0, DELTA), FakeClock(), "task") as ledger:
            ledger.charge(one, number, tuple(f"client-{n}" for n in range(20)))
            spent.append(ledger.spent)
    assert spent == pytest.approx([gaussian_epsilon_of_mu(math.sqrt(n) / 3.0, DELTA) for n in range(1, 6)], abs=1e-6)
    assert spent == sorted(set(spent)) and Path(tmp_path / "ledger.jsonl").read_bytes().count(b"\n") == 6
