"""Bugs that other systems had, a test each, named after what went wrong there: ours does not have it.

Samplers and optimiser state that samples are not offered: rows 17, 26, 27, 28 have no test here.
"""

import math
import time
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from kit.clocks import FakeClock
from kit.cohort import FakeCohort, Size, check_released, silent
from kit.crypto.insecure import InsecureRng
from kit.smallrun import report_of, small_run
from safetensors.numpy import load_file

from fednode.assemble.planning import plan_run
from fednode.errors import BudgetExhausted, ConfigError
from fednode.privacy import (
    AdaptiveClip,
    Budget,
    DiscreteGaussianSum,
    Ledger,
    epsilon,
    gaussian_epsilon_of_mu,
    renyi_epsilon,
    rounds_left,
)
from fednode.privacy.composition import paid_by_client
from fednode.protocol.guarantees import Bounded
from fednode.protocol.spec import Terms
from fednode.settings import RunSettings, resolve
from fednode_clients.client import privatise
from fednode_clients.training.gradients import clipped_gradient_sum
from fednode_clients.training.models import linear_head, travelling
from fednode_crypto import Overflow

DELTA = 1e-5


def shares(z: float, planned: int, arrived: int | None = None) -> DiscreteGaussianSum:
    """A round in which `arrived` of `planned` shares, which together are z clips of noise, are in the sum."""
    return DiscreteGaussianSum(1.0, 40, 1, round((z * 2**40) ** 2 / planned), arrived or planned, 0.0)


def terms(**changes: object) -> Terms:
    return replace(Size().terms(), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "right", "inverted"),
    [(0.1, 0.9777, 0.00025), (0.9, 0.9848, 0.0041), (1.1, 1.0154, 292), (10, 1.0228, 4034)],
)
def test_bug_1_an_adaptive_clip_finds_the_median_and_does_not_run_away(first, right, inverted):
    norms, clip, wrong, rule = 0.525 + 0.05 * np.arange(20), first, first, AdaptiveClip(0.5, 60)
    for _ in range(60):
        clip = rule.next_clip(clip, np.mean(norms <= clip))
        # what was sent there says that an update was clipped, and the same rule is followed
        wrong = rule.next_clip(wrong, np.mean(norms > wrong))
    assert clip == pytest.approx(right, abs=1e-4)
    assert wrong == pytest.approx(inverted, rel=0.03)


def test_bug_2_an_update_of_zeros_divides_nothing_by_zero():
    zeros = privatise.nothing(terms(), 5)
    assert not zeros.vector.any()
    update = clipped_gradient_sum(linear_head(3, 2), np.zeros((0, 3), np.float32), np.zeros(0, np.int64), 1.0)
    assert not privatise.bound(update, terms()).vector.any()


@pytest.mark.parametrize(
    ("row", "dropped", "norm"), [([math.nan, 1, 2], 1, 0.0), ([math.inf, 1, 2], 1, 0.0), ([3e38, 1, 2], 0, 1.0)]
)
def test_bug_3_a_value_that_is_not_finite_passes_no_clip(row, dropped, norm):
    found = clipped_gradient_sum(linear_head(3, 2), np.array([row], np.float32), np.array([0]), 1.0)
    assert found.dropped == dropped and np.linalg.norm(found.vector) == pytest.approx(norm, rel=1e-5)


def test_bug_4_integer_buffers_do_not_travel():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    assert {name for name, _ in model.named_buffers()} >= {"1.num_batches_tracked"}
    assert {name for name, _ in travelling(model)} == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_bug_6_noise_that_did_not_arrive_is_not_counted():
    # the server's rule: half the clients arrive, noise for all is divided by half
    assert epsilon([shares(5.0, 10)] * 50, DELTA) == pytest.approx(6.573, abs=1e-3)
    assert gaussian_epsilon_of_mu(math.sqrt(50) / 2.5, DELTA) == pytest.approx(15.46, abs=0.01)
    # ours: five of ten shares
    assert epsilon([shares(5.0, 10, 5)] * 50, DELTA) == pytest.approx(10.00, abs=0.01)


def test_bug_7_the_sensitivity_is_the_clip_and_no_parameter(tmp_path):
    assert "sensitivity" not in {field.name for field in fields(DiscreteGaussianSum)} | set(RunSettings.model_fields)
    one = DiscreteGaussianSum(1.0, 16, 1_000, 10**11, 2, 0.0)
    assert one.sensitivity.l2 >= 2.0**16 and replace(one, clip=2.0).sensitivity.l2 >= 2.0**17
    with pytest.raises(ConfigError):
        resolve(None, {}, {"sensitivity": "1e-4"})

    class Louder:
        vector, clip, unit = np.ones(5), 1.5, "record"

    with pytest.raises(ValueError):
        privatise.bound(Louder(), terms())


@pytest.mark.parametrize(("eps", "sigma"), [(1.0, 3.731), (10.0, 0.4999), (20.0, 0.2900)])
def test_bug_8_noise_by_the_exact_profile_and_not_by_the_classical_formula(eps, sigma):
    assert gaussian_epsilon_of_mu(1.0 / sigma, DELTA) == pytest.approx(eps, rel=1e-3)


def test_bug_9_disjoint_clients_are_no_sum_and_rounds_are_no_constant(tmp_path):
    with Ledger.open(tmp_path / "ledger.jsonl", Budget(50.0, DELTA), FakeClock(), "task") as ledger:
        for number in range(1, 6):
            ledger.charge(shares(5.0, 5), number, tuple(f"client-{n}" for n in range(5)))
        paid = paid_by_client([entry.charge for entry in ledger.entries], DELTA)
        after = [entry.charge.epsilon_after for entry in ledger.entries]
    assert len(paid) == 5 and list(paid.values()) == pytest.approx([after[-1]] * 5)
    assert after == sorted(set(after)) and after[-1] < 5 * after[0]


def test_bug_10_no_seed_repeats_noise(tmp_path):
    def drawn(name: str) -> np.ndarray:
        np.random.seed(0)  # noqa: NPY002 - what must have no effect
        torch.manual_seed(0)
        run = small_run(tmp_path / name, features=64, rounds=1, seed=0)
        return load_file(run.folder / "model.safetensors")["weight"].ravel()

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert not np.array_equal(drawn("a"), drawn("b"))


def test_bug_12_a_round_that_failed_can_be_run_again_and_costs_once(tmp_path):
    cohort = FakeCohort(tmp_path, Size())
    node = cohort.node()
    driver = cohort.begun(node)
    for name in ("client-1", "client-2"):
        cohort.tell(name, silent, rounds=[1])
    assert not driver.run_round(1).opened and len(node.ledger.entries) == 0
    check_released(cohort, driver.run_round(2))
    assert len(node.ledger.entries) == 1


def test_bug_13_a_budget_of_eight_holds_sixty_nine_rounds():
    assert rounds_left([], shares(5.0, 100), 8.0, DELTA) == 69
    assert epsilon([shares(5.0, 100)] * 69, DELTA) == pytest.approx(7.9727, abs=1e-3)
    assert renyi_epsilon([shares(5.0, 100)] * 62, DELTA) > 8.0


@pytest.mark.parametrize("clip", ["0", "-1", "nan"])
def test_bug_15_a_clip_that_cannot_work_fails_at_the_start(clip):
    with pytest.raises(ConfigError):
        resolve(None, {}, {"clip": clip})


def test_bug_15_a_value_beyond_the_room_is_an_error_and_never_saturates():
    with pytest.raises(Overflow):
        privatise.round_to_grid(np.array([0.5, 2.0**60]), 8, InsecureRng(1))


def test_bug_16_every_value_is_noised(monkeypatch):
    monkeypatch.setattr(privatise, "discrete_gaussian", lambda variance, size, rng: np.full(size, 7))
    bounded = Bounded(np.array([0.0, 1.0, -1.0, 0.25, 0.0]), 1.0, 8)
    noised = privatise.add_noise(bounded, terms(), InsecureRng(1))
    assert noised.values.tolist() == [7, 263, -249, 71, 7]


def test_bug_18_noise_is_never_clipped_and_the_end_of_a_run_forgets_nothing(tmp_path):
    noised = privatise.add_noise(Bounded(np.zeros(10_000), 1.0, 8), terms(local_variance=1 << 40), InsecureRng(1))
    assert np.linalg.norm(noised.values) > 1e6
    run = small_run(tmp_path, rounds=2)
    spent = report_of(run.folder)["guarantee"]["epsilon"]
    with Ledger.open(run.folder / "ledger.jsonl", Budget(8.0, DELTA), FakeClock(), run.folder.name) as ledger:
        assert ledger.spent == spent > 0.0


def test_bug_19_the_cost_is_printed_before_the_run_and_held_against_the_limit(tmp_path):
    planned = plan_run(RunSettings(out=tmp_path))
    assert any("epsilon" in line and "of 8" in line for line in planned.lines())
    assert epsilon(planned.events(20), DELTA) <= 8.0
    with (
        pytest.raises(BudgetExhausted),
        Ledger.open(tmp_path / "ledger.jsonl", Budget(8.0, DELTA), FakeClock(), "task") as ledger,
    ):
        ledger.check([shares(0.01, 10)])


def test_bug_20_what_has_no_noise_costs_infinity():
    assert epsilon([DiscreteGaussianSum(1.0, 16, 1_000, 1, 1, 0.0)], DELTA) == math.inf
    with pytest.raises(ValueError):
        terms(local_variance=0)


def test_bug_21_very_little_noise_has_a_price_at_once():
    started = time.perf_counter()
    spent = epsilon([shares(0.1, 10)] * 100, DELTA)
    # more than the chance of an error outside the noise allows: no budget holds it
    assert time.perf_counter() - started < 5.0 and spent == math.inf
    assert gaussian_epsilon_of_mu(100.0, DELTA) > 1_041


def test_bug_23_and_24_asking_changes_nothing_and_equal_rounds_are_counted(tmp_path):
    with Ledger.open(tmp_path / "ledger.jsonl", Budget(50.0, DELTA), FakeClock(), "task") as ledger:
        for number in range(1, 101):
            ledger.charge(shares(10.0, 10), number, tuple(f"client-{n}" for n in range(10)))
        assert ledger.spent == ledger.spent and len(ledger.entries) == 100


def test_bug_30_noise_is_for_the_sum_which_is_then_divided(tmp_path):
    cohort = FakeCohort(tmp_path, Size(clients=4, dimension=3_000))
    for name in cohort.learned:
        cohort.learned[name] = np.zeros(3_000)
    outcome = check_released(cohort, cohort.begun().run_round(1))
    size = cohort.size.terms()
    expected = math.sqrt(4 * size.local_variance) * 2.0**-size.grid_bits / size.divisor
    # five standard errors
    assert outcome.release.mean.std() == pytest.approx(expected, rel=5 / math.sqrt(2 * 3_000))


def test_bug_32_what_is_sealed_are_integers():
    noised = privatise.add_noise(Bounded(np.full(100, 1 / 3), 1.0, 8), terms(), InsecureRng(1))
    assert noised.values.dtype == np.int64


def test_bug_34_noise_that_is_no_number_is_an_error_and_never_free():
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError):
            DiscreteGaussianSum(1.0, 16, 10, bad, 2, 0.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        gaussian_epsilon_of_mu(math.nan, DELTA)


def test_bug_35_a_small_epsilon_needs_no_time():
    started = time.perf_counter()
    assert gaussian_epsilon_of_mu(0.0041020, DELTA) == pytest.approx(0.01, rel=1e-3)
    assert time.perf_counter() - started < 1.0 and pytest.approx(243.8, abs=0.05) == 1 / 0.0041020


def test_bug_37_the_noise_is_that_of_the_cohort_that_ran(tmp_path):
    thousand, fifty = shares(1.0, 1_000), shares(1.0, 1_000, 50)
    assert fifty.mu / thousand.mu == pytest.approx(math.sqrt(20), rel=1e-9)
    assert epsilon([fifty], DELTA) > 4 * epsilon([thousand], DELTA)


def test_bug_38_epsilon_stands_beside_every_round(tmp_path):
    rounds = report_of(small_run(tmp_path, rounds=2).folder)["rounds"]
    assert 0.0 < rounds[0]["epsilon_after"] < rounds[1]["epsilon_after"]


def test_bug_40_a_second_accountant_is_never_below_the_number():
    for z in (0.7, 1.0, 5.0, 30.0):
        assert epsilon([shares(z, 10)] * 20, DELTA) < renyi_epsilon([shares(z, 10)] * 20, DELTA)


def test_bug_42_no_round_is_without_a_mechanism():
    with pytest.raises(TypeError):
        Terms(unit="record", max_records=1, min_survivors=2, assumed_colluders=0, deadline=1.0)  # type: ignore[call-arg]
