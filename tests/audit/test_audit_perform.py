"""An audit passes a pipeline that does what the ledger counts, and fails each that does less."""

import pytest
from kit import auditing
from kit.auditing import forgotten, halved, left_out, seeded, small_audit, unclipped
from kit.clocks import FakeClock
from kit.smallrun import small_settings

from fednode.assemble.session import Environment
from fednode.audit.canaries import Canaries
from fednode.audit.perform import Audit
from fednode.errors import ConfigError
from fednode.observer import Observer, StopFlag
from fednode.privacy import Budget, DiscreteGaussianSum, Ledger
from fednode.privacy.population import open_population
from fednode.settings import RunSettings

SAMPLER = "fednode_clients.client.privatise.discrete_gaussian"
CLIP = "fednode.audit.canaries.clipped_gradient_sum"


def test_a_right_pipeline_passes_and_its_mu_is_the_ledgers(tmp_path):
    result = small_audit(tmp_path)
    figures = result.figures
    assert result.findings == ()
    assert abs(figures["noise"] - 1.0) < 3.0 * figures["noise_error"] < 0.07
    # four survivors, and the ledger counts all of them
    assert abs(figures["mu"] - figures["ledger_mu"]) < 3.0 * figures["mu_error"] < 0.25
    assert 0.5 < figures["epsilon_bound"] < figures["ledger_epsilon"]
    assert (figures["canaries"], figures["clients"], figures["rounds"]) == (1_051, 4, 2)


@pytest.mark.parametrize("sampler", [halved, forgotten, left_out()])
@pytest.mark.parametrize("most", [0, 5_000], ids=["rehearsal", "canaries"])
def test_less_noise_than_planned_fails(tmp_path, monkeypatch, sampler, most):
    monkeypatch.setattr(SAMPLER, sampler)
    assert "of the planned noise" in small_audit(tmp_path, most).findings[0]


@pytest.mark.parametrize(("sampler", "least"), [(halved, 1.8), (forgotten, 1_000.0)])
def test_canaries_see_what_is_left_of_the_noise(tmp_path, monkeypatch, sampler, least):
    monkeypatch.setattr(SAMPLER, sampler)
    result = small_audit(tmp_path)
    assert result.figures["mu"] > least * result.figures["ledger_mu"] and "canaries are seen" in result.findings[1]


def test_no_noise_is_proven_to_cost_more_than_the_ledger_says(tmp_path, monkeypatch):
    monkeypatch.setattr(SAMPLER, forgotten)
    figures = small_audit(tmp_path, epsilon=3.0).figures
    assert figures["epsilon_bound"] > figures["ledger_epsilon"]


def test_clients_that_do_not_clip_fail_with_their_noise_right(tmp_path, monkeypatch):
    monkeypatch.setattr(CLIP, unclipped)
    result = small_audit(tmp_path)
    assert len(result.findings) == 2 and result.figures["mu"] > 8.0 * result.figures["ledger_mu"]
    assert result.figures["noise"] > 1.0 - 3.0 * result.figures["noise_error"]


def test_one_client_that_does_not_clip_is_named(tmp_path, monkeypatch):
    honest = Canaries.sum_of

    def sum_of(self, client, clip):
        monkeypatch.setattr(CLIP, unclipped if client == 2 else auditing.clipped_gradient_sum)
        return honest(self, client, clip)

    monkeypatch.setattr(Canaries, "sum_of", sum_of)
    result = small_audit(tmp_path)
    assert result.figures["loudest_client"] == 3 and "client 3 does not clip" in result.findings[-1]


def test_a_rehearsal_measures_the_noise_alone(tmp_path):
    figures = small_audit(tmp_path, 0).figures
    assert "mu" not in figures and figures["noise_error"] == pytest.approx((2 / (2 * 2_103)) ** 0.5)


def test_clients_that_take_part_in_some_rounds_are_all_audited_in_all(tmp_path):
    settings = {"clients": 12, "rounds": 4, "rounds_per_client": 2, "min_survivors": 4, "assumed_colluders": 1}
    result = small_audit(tmp_path, 0, **settings)
    assert (result.figures["rounds"], result.figures["clients"], result.findings) == (4, 12, ())


def test_colluders_whom_the_ledger_leaves_out_make_room(tmp_path):
    figures = small_audit(tmp_path, assumed_colluders=2).figures
    assert abs(figures["mu"] - figures["ledger_mu"] * 0.5**0.5) < 3 * figures["mu_error"]


def test_the_ledger_of_an_audit_is_its_own(tmp_path):
    small_audit(tmp_path, 0)
    assert not (tmp_path / "runs").exists()


def test_a_model_with_room_for_few_canaries_is_refused(tmp_path):
    with pytest.raises(ConfigError):
        small_audit(tmp_path, features=32)


def test_a_population_that_is_spent_stands_in_no_audits_way(tmp_path):
    most = DiscreteGaussianSum(1.0, 16, 100, 2**32 // 40, 1, 0.0)
    path = tmp_path / "full.ledger.jsonl"
    with open_population(path, Budget(8.0, 1e-5), FakeClock(), "earlier") as ledger:
        ledger.charge(most, 1, ("ann",))
        assert ledger.spent > 45.0
    before = path.read_bytes()
    assert small_audit(tmp_path, 0, population=str(path)).findings == () and path.read_bytes() == before


def test_a_run_whose_unit_is_a_client_has_one_canary_a_client(tmp_path):
    event = DiscreteGaussianSum(1.0, 16, 500, (5 * 2**16) ** 2, 1, 0.0)
    with Ledger.open(tmp_path / "ledger.jsonl", Budget(8.0, 1e-5, "client"), FakeClock(), "a-task") as ledger:
        ledger.charge(event, 1, ("ann",))
    settings = small_settings(tmp_path, unit="client", clients=120, rounds=1)
    result = Audit(settings, tmp_path, 5_000, Environment(rng=seeded())).perform(Observer(), StopFlag())
    assert (result.figures["canaries"], result.figures["dimension"], result.findings) == (120, 500, ())


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "passes"), [(None, True), (halved, False), (left_out(1, of=20), False)])
def test_the_default_run(tmp_path, monkeypatch, sampler, passes):
    if sampler is not None:
        monkeypatch.setattr(SAMPLER, sampler)
    audit = Audit(RunSettings(out=tmp_path), None, 5_000, Environment(rng=seeded(1)))
    result = audit.perform(Observer(), StopFlag())
    assert (result.findings == ()) is passes and result.figures["canaries"] == 5_000
    assert result.figures["noise_error"] < 0.0021
