"""From settings and counts to a task: its terms, its sizes, what it costs; or one sentence why it would fail.

Nothing here reads data: a study, or whoever deploys, says what is trained and on how many records.
"""

from dataclasses import dataclass, replace

from fednode.assemble.cache_location import cache_warnings, kept_where, require_usable
from fednode.assemble.claims import STRENGTH, adversary, committee_warnings
from fednode.assemble.run_folder import population_file
from fednode.assemble.study import Workload, find_study
from fednode.errors import ConfigError
from fednode.optimiser import DEFAULT_PATH, ServerOptimiser
from fednode.privacy import Budget, DiscreteGaussianSum, NoiseRequest, epsilon, local_variance, renyi_epsilon
from fednode.privacy.population import PopulationStanding, standing
from fednode.protocol.headroom import release_failure, sum_headroom
from fednode.protocol.model import Layout
from fednode.protocol.spec import Terms
from fednode.reports.figures import LOOSER, bound, plural
from fednode.reports.ledger_check import groups_line
from fednode.settings import RunSettings
from fednode.units import UNITS
from fednode_crypto import Demand, SumParams, WrongParameters, plan

_LOUD_NOISE = 50.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A run that can work: its terms, its sizes and what it will cost."""

    settings: RunSettings
    workload: Workload
    terms: Terms
    sum_params: SumParams
    budget: Budget
    optimiser: ServerOptimiser
    failure: float
    """Delta that one release costs beside its noise: sampler and overflow."""
    population: PopulationStanding
    warnings: tuple[str, ...]

    @property
    def layout(self) -> Layout:
        """The arrays that are trained."""
        return self.workload.layout

    def events(self, survivors: int) -> list[DiscreteGaussianSum]:
        """What all rounds release if each has so many survivors."""
        honest = survivors - self.terms.assumed_colluders
        request = _noise_request(self.settings, self.layout.dimension, self.failure)
        event = replace(request.event(self.terms.local_variance), contributors=honest)
        return [event] * self.settings.rounds

    def lines(self) -> list[str]:
        """What `--dry-run` prints: rounds, epsilon, bytes, what the secure sum withstands and rests on."""
        settings, params, unit = self.settings, self.sum_params, UNITS[self.terms.unit]
        least, full = self.events(settings.min_survivors), self.events(settings.clients)
        spent, most = (bound(epsilon(events, settings.delta), zeros=True) for events in (full, least))
        renyi = [bound(renyi_epsilon(events, settings.delta), zeros=True) for events in (full, least)]
        budget, plain = f"{settings.epsilon:g} at delta {settings.delta:g}", 4 * params.dimension
        slots = f"{params.ring_degree:,} x {params.lanes} values of {params.lane_bits} bits"
        opened = f"{params.scheme}, {params.threshold} of {params.holders} holders open"
        rows = {
            "data": f"{self.workload.dataset}: {self.workload.summary or plural(self.workload.records, unit.name)}",
            "model": f"{self.workload.model}, {params.dimension:,} parameters",
            "rounds": f"{settings.rounds}, {settings.clients:,} clients, at least {settings.min_survivors:,} survivors",
            "epsilon": f"{spent} if all survive, {most} with the fewest survivors, of {budget}, unit: {unit.zeroed}",
            "cross-check": f"{renyi[0]} and {renyi[1]} by Renyi divergence: {LOOSER}",
            "together": f"{groups_line(least, settings.delta, unit.name)}, with the fewest survivors",
            "population": self.population.line(),
            "noise": f"{self.terms.noise_multiplier():.3f} x clip in a released sum at the least",
            "secure sum": f"{opened}; {plural(params.blocks, 'block')} of {slots}",
            "withstands": adversary(params),
            "rests on": STRENGTH[params.scheme],
            "bytes up": f"{params.upload_bytes:,} a sealed update, {params.upload_bytes / plain:.2f} x float32",
            "bytes down": _down(settings, plain),
            "cache": kept_where(settings),
        }
        lines = [f"{name:<12}{text}" for name, text in rows.items()]
        lines += [f"public      {text}" for text in self.workload.public_inputs]
        return lines + [f"warning     {warning}" for warning in self.warnings]


def plan_run(settings: RunSettings) -> Plan:
    """The plan for the study that the settings name. Raises `ConfigError` or `DataError` for what would fail later."""
    return plan_task(settings, find_study(settings.study).workload(settings))


def plan_task(settings: RunSettings, workload: Workload) -> Plan:
    """The plan for this workload; reads no data. Raises `ConfigError`, one sentence, for what would fail later, and
    `BudgetExhausted` where the population's limit would not hold the run."""
    require_usable(settings)
    _require_unit(settings, workload)
    layout = workload.layout
    failure = release_failure(layout.dimension, settings.clients)
    terms = Terms(
        unit=settings.unit,
        clip=settings.clip,
        grid_bits=settings.grid_bits,
        local_variance=local_variance(_noise_request(settings, layout.dimension, failure)),
        max_records=workload.max_records,
        divisor=float(workload.records),
        min_survivors=settings.min_survivors,
        assumed_colluders=settings.assumed_colluders,
        deadline=settings.deadline,
        staleness=settings.staleness,
    )
    _require_willing(settings, terms, layout.dimension)
    optimiser, params = _optimiser(settings), _sum_params(settings, layout, terms)
    budget = Budget(settings.epsilon, settings.delta, settings.unit)
    population = standing(population_file(settings, workload.dataset, budget.unit), budget)
    made = Plan(
        # as resolved: what the default learning rate came to stands in config.toml and in the report
        settings=settings.model_copy(update={"learning_rate": optimiser.path / settings.rounds}),
        workload=workload,
        terms=terms,
        sum_params=params,
        budget=budget,
        optimiser=optimiser,
        failure=failure,
        population=population,
        warnings=(
            *_warnings(settings, workload, terms),
            *population.warnings(),
            *committee_warnings(params),
            *cache_warnings(settings),
        ),
    )
    population.require_room(made.events(settings.min_survivors))
    return made


def _require_unit(settings: RunSettings, workload: Workload) -> None:
    """Raise `ConfigError` where training bounds another unit than the run is to protect: no client could answer."""
    if workload.unit != settings.unit:
        raise ConfigError(
            f"unit is {settings.unit}, and {workload.model} is trained with a bound on each {workload.unit}: set unit "
            f"to {workload.unit}, or train with a bound on each {settings.unit}"
        )


def _down(settings: RunSettings, plain: int) -> str:
    """The most that comes down, and what makes it less."""
    most = f"at most {plain:,} a client a round, and the holders' keys"
    if settings.staleness:
        return f"{most}; none of the model to a client whose copy is at most {settings.staleness} versions old"
    return f"{most}; --staleness 1 or more would send the model less, if members allow it (max-staleness)"


def _require_willing(settings: RunSettings, terms: Terms, dimension: int) -> None:
    """Raise `ConfigError` where every member would refuse every round."""
    noise = terms.noise_multiplier(dimension)
    if noise < settings.min_noise:
        raise ConfigError(
            f"the released sums would have noise of {noise:.3g} x clip, and members refuse less than min_noise "
            f"{settings.min_noise:g}: lower epsilon, run more rounds, or lower min_noise"
        )


def _optimiser(settings: RunSettings) -> ServerOptimiser:
    """The default path, or the one that the mean learning rate of a round gives."""
    momentum, adam = 0.0 if settings.server_optimiser == "sgd" else 0.9, settings.server_optimiser == "adam"
    path = DEFAULT_PATH if settings.learning_rate is None else settings.learning_rate * settings.rounds
    return ServerOptimiser(settings.rounds, path, momentum, adam)


def _noise_request(settings: RunSettings, dimension: int, failure: float) -> NoiseRequest:
    return NoiseRequest(
        epsilon=settings.epsilon,
        delta=settings.delta,
        rounds=settings.rounds,
        clip=settings.clip,
        grid_bits=settings.grid_bits,
        dimension=dimension,
        contributors=settings.min_survivors - settings.assumed_colluders,
        failure=failure,
    )


def _sum_params(settings: RunSettings, layout: Layout, terms: Terms) -> SumParams:
    try:
        demand = Demand(
            dimension=layout.dimension,
            summands=max(settings.clients, settings.holders),
            value_bound=sum_headroom(terms, layout.dimension, settings.clients),
            holders=settings.holders,
            threshold=settings.threshold,
        )
        return plan(settings.scheme, demand)
    except WrongParameters as error:
        raise ConfigError(f"the secure sum cannot carry this run: {error}") from error


def _warnings(settings: RunSettings, workload: Workload, terms: Terms) -> tuple[str, ...]:
    found, records, dimension = list(workload.warnings), workload.records, workload.layout.dimension
    if settings.delta * records > 0.1:
        found.append(
            f"delta {settings.delta:g} is large for {plural(records, terms.unit)}: choose {0.05 / records:.1g} or less"
        )
    if settings.epsilon > 10:
        found.append(f"epsilon {settings.epsilon:g} is a weak promise; 1 to 8 is what others publish")
    if terms.noise_multiplier() > _LOUD_NOISE:
        # rounding to the grid can move a unit by more than the clip, and the noise covers that too
        coarse = dimension**0.5 > terms.clip * 2.0**terms.grid_bits
        found.append(
            f"the noise is {terms.noise_multiplier():.3g} x clip in each sum: expect a model that guesses; raise "
            f"{'clip or ' if coarse else ''}epsilon, run fewer rounds or bring more records"
        )
    return tuple(found)
