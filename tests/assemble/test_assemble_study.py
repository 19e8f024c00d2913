"""Studies are found by their entry point; a task is planned without one."""

from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest
from kit.clocks import FakeClock
from kit.crypto.plainsum import InsecurePlainSum
from kit.smallrun import small_run, small_settings

from fednode.assemble import predict, study
from fednode.assemble.planning import plan_run, plan_task
from fednode.assemble.session import Environment
from fednode.assemble.study import Workload, find_study
from fednode.errors import BudgetExhausted, ConfigError
from fednode.optimiser import DEFAULT_PATH
from fednode.privacy import epsilon, gaussian_mu_of_epsilon
from fednode.privacy.population import open_population
from fednode.protocol.model import Layout
from fednode.protocol.spec import RoundSpec
from fednode.settings import RunSettings, to_run_config
from fednode.units import UNITS
from fednode_clients.limits import MemberLimits
from fednode_study.study import CustomerService


class Constant(CustomerService):
    """A study of somebody else: the same data, and predictions that depend on no model."""

    def predict(self, folder, texts):
        return [("always", 1.0) for _ in texts]


CONSTANT = Constant()


@pytest.fixture
def others(monkeypatch):
    """A second study and two that cannot be loaded, installed beside the one of the project."""
    values = {"constant": f"{__name__}:CONSTANT", "gone": "no_such_module_here:study", "empty": f"{__name__}:nothing"}
    values["broken"] = "broken_study:study"
    added = [EntryPoint(name, value, study.GROUP) for name, value in values.items()]
    honest = study.entry_points
    monkeypatch.setattr(study, "entry_points", lambda group: [*honest(group=group), *added])


def test_the_study_of_the_project_is_found_and_others_beside_it(others):
    assert type(find_study("customer-service")) is CustomerService
    assert find_study("constant") is CONSTANT


@pytest.mark.parametrize(
    ("name", "named"),
    [("customer-servce", "did you mean 'customer-service'"), ("gone", "no_such"), ("empty", "nothing")],
)
def test_a_study_that_is_not_there_or_cannot_be_loaded_is_refused(others, name, named):
    with pytest.raises(ConfigError, match=named):
        find_study(name)


@pytest.mark.parametrize("code", ["def (", "raise ValueError('spoilt')", "raise RuntimeError('spoilt')"])
def test_a_study_that_breaks_while_it_is_imported_is_refused(others, tmp_path, monkeypatch, code):
    (tmp_path / "broken_study.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="broken_study"):
        find_study("broken")


@pytest.mark.thorough
def test_a_run_and_its_predictions_use_the_study_that_the_settings_name(others, tmp_path):
    inside = Environment(schemes=lambda _: InsecurePlainSum())
    assert small_run(tmp_path, inside, study="constant", scheme="bfv", rounds=1).error is None
    (folder,) = (tmp_path / "runs").glob("2*")
    assert predict(folder, ["a", "b"]) == [("always", 1.0), ("always", 1.0)]
    (folder / "config.toml").unlink()
    assert [label for label, _ in predict(folder, ["card bank lost"])] != ["always"]


def test_a_workload_alone_makes_the_plan_of_the_study_that_has_the_same_counts(tmp_path):
    settings = small_settings(tmp_path)
    whole = plan_run(settings)
    (tmp_path / "messages.csv").unlink()
    counts = Workload(layout=Layout(("weight", "bias"), ((3, 64), (3,))), records=100, max_records=30)
    task = plan_task(settings, counts)
    assert (task.terms, task.sum_params, task.budget) == (whole.terms, whole.sum_params, whole.budget)
    assert any("100 records" in line for line in task.lines())


def test_a_run_protects_the_unit_that_its_training_bounds():
    counts = Workload(layout=Layout(("weight",), ((1_000,),)), records=2_000, max_records=200, unit="customer")
    plan = plan_task(RunSettings.model_validate({"unit": "customer", "clients": 10}), counts)
    assert (plan.terms.unit, plan.budget.unit, plan.budget.adjacency) == (
        "customer",
        "customer",
        UNITS["customer"].adjacency,
    )
    assert any(line.startswith("epsilon") and line.endswith(UNITS["customer"].zeroed) for line in plan.lines())
    for unit in ("record", "client"):
        with pytest.raises(ConfigError, match=f"unit is {unit}, .* each customer"):
            plan_task(RunSettings.model_validate({"unit": unit, "clients": 10}), counts)


COUNTS = Workload(layout=Layout(("weight",), ((1_000,),)), records=20_000, max_records=2_000)


@pytest.mark.parametrize(
    ("name", "momentum", "adam"), [("sgd", 0.0, False), ("momentum", 0.9, False), ("adam", 0.9, True)]
)
def test_the_servers_optimiser_is_the_one_of_the_settings(name, momentum, adam):
    plan = plan_task(RunSettings(server_optimiser=name, learning_rate=3.0), COUNTS)
    assert (plan.optimiser.momentum, plan.optimiser.adam) == (momentum, adam)
    assert plan.optimiser.path == 3.0 * plan.settings.rounds
    assert not plan.optimiser.constant
    assert plan_task(RunSettings(server_optimiser=name, schedule="constant"), COUNTS).optimiser.constant


@pytest.mark.parametrize("changes", [{}, {"clients": 7, "assumed_colluders": 2, "epsilon": 3.0, "rounds": 41}])
def test_members_of_a_run_count_what_its_plan_counts_to_the_bit(changes):
    plan = plan_task(RunSettings(**changes), COUNTS)
    limits = MemberLimits().configured({}, to_run_config(plan.settings), simulated=True)
    assert limits.max_epsilon == plan.member_epsilon()
    assert [counted(plan, limits, one) for one in plan.events(plan.settings.min_survivors)] == plan.events(
        plan.settings.min_survivors
    )


@pytest.mark.parametrize("changes", [{}, {"min_survivors": 4, "epsilon": 50.0}, {"clients": 3, "clip": 1e-4}])
@pytest.mark.parametrize("rounds", [1, 2, 30])
def test_members_count_no_more_than_their_limit_if_all_survive(changes, rounds):
    plan = plan_task(RunSettings(rounds=rounds, **changes), COUNTS)
    limits = MemberLimits().configured({}, to_run_config(plan.settings), simulated=True)
    released = plan.events(plan.settings.clients)
    assert epsilon(released, plan.settings.delta) <= plan.settings.epsilon
    mine = epsilon([counted(plan, limits, one) for one in released], limits.delta)
    assert mine <= limits.max_epsilon
    if rounds == 30 and not changes:
        assert mine > plan.settings.epsilon and mine > 0.98 * limits.max_epsilon


def counted(plan, limits, event):
    """A round as a member counts it."""
    terms = replace(plan.terms, local_variance=event.local_variance)
    spec = RoundSpec("task", 1, 1, bytes(32), bytes(32), bytes(32), terms, plan.sum_params)
    limits.check(spec, plan.settings.clients)
    return limits.cost(spec, plan.settings.clients)


def test_no_round_is_below_the_members_floor():
    plan = plan_task(RunSettings(epsilon=50.0, rounds=1), COUNTS)
    assert plan.terms.noise_multiplier(1_000) == pytest.approx(plan.settings.min_noise, rel=1e-3)
    assert epsilon(plan.events(15), 1e-5) < 25.0


@pytest.mark.parametrize("bits", [None, 18])
def test_the_plan_chooses_grid_and_step_from_public_numbers_where_the_settings_do_not(bits):
    def planned(**given):
        return plan_task(RunSettings(grid_bits=bits, **given), COUNTS)

    plan, mu = planned(epsilon=1.0), gaussian_mu_of_epsilon(1.0, 1e-5)
    assert plan.terms.grid_bits == plan.settings.grid_bits == (16 if bits is None else bits)
    assert plan.optimiser.path == pytest.approx(0.22 * 20_000 * mu)
    assert plan.settings.learning_rate == plan.optimiser.path / 20
    assert planned(epsilon=8.0).optimiser.path == DEFAULT_PATH
    assert planned(epsilon=1.0, clip=4.0).optimiser.path == pytest.approx(0.055 * 20_000 * mu)
    assert planned(epsilon=1.0, learning_rate=3.0).optimiser.path == 60.0


def test_a_finer_grid_is_taken_while_it_costs_no_bytes(tmp_path):
    def planned(**given):
        return plan_task(small_settings(tmp_path, **given), COUNTS)

    plan = planned()
    bits, size = plan.terms.grid_bits, plan.sum_params.upload_bytes
    coarser, finer = (planned(grid_bits=each) for each in (bits - 1, bits + 1))
    assert coarser.sum_params.upload_bytes == size and planned(grid_bits=bits).terms == plan.terms
    assert bits == 16 or finer.sum_params.upload_bytes > size


def test_a_run_that_the_population_cannot_hold_is_told_what_fits(tmp_path):
    def planned(limit):
        return plan_task(RunSettings(out=tmp_path, population="people", epsilon=limit, rounds=4), COUNTS)

    plan = planned(4.0)
    with open_population(plan.population.path, plan.budget, FakeClock(), "a-task") as ledger:
        for number, event in enumerate(plan.events(15)):
            ledger.charge(event, number, tuple(f"client-{n}" for n in range(15)))
        ledger.limit(5.0, "Ada", "the board")
    with pytest.raises(BudgetExhausted, match="lower epsilon to") as refused:
        planned(4.0)
    fits = float(str(refused.value).split("lower epsilon to ")[1].split(",")[0])
    assert planned(fits).budget.epsilon == fits
    with pytest.raises(BudgetExhausted):
        planned(fits + 0.02)


def test_loud_noise_is_answered_by_a_larger_clip_only_where_the_grid_is_coarse_against_it(tmp_path):
    workload = Workload(layout=Layout(("weight",), ((1_000,),)), records=200, max_records=100)
    for clip, raised in ((1.0, False), (1e-6, True)):
        settings = small_settings(tmp_path, epsilon=0.02, clip=clip, grid_bits=16)
        (warning,) = (told for told in plan_task(settings, workload).warnings if "x clip" in told)
        assert ("raise clip or epsilon" in warning) == raised and "fewer rounds" in warning
