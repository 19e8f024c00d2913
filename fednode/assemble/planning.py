"""From settings and counts to a task: its terms, its sizes, what it costs; or one sentence why it would fail.

Nothing here reads data: a study, or whoever deploys, says what is trained and on how many records.
"""

import math
from contextlib import suppress
from dataclasses import dataclass, replace

from fednode.allocation import block_weights, outsiders_epsilon
from fednode.assemble.cache_location import cache_warnings, kept_where, require_usable
from fednode.assemble.claims import STRENGTH, adversary, committee_warnings
from fednode.assemble.run_folder import population_file
from fednode.assemble.study import Workload, find_study
from fednode.errors import ConfigError
from fednode.members import clients_a_round
from fednode.optimiser import DEFAULT_PATH, ServerOptimiser
from fednode.privacy import (
    AdaptiveClip,
    Budget,
    DiscreteGaussianSum,
    NoiseRequest,
    coarsest_grid,
    epsilon,
    gaussian_mu_of_epsilon,
    local_variance,
    member_epsilon,
    renyi_epsilon,
)
from fednode.privacy.population import PopulationStanding, standing
from fednode.protocol.headroom import release_failure, sum_headroom
from fednode.protocol.model import Layout
from fednode.protocol.spec import MOST_ROTATED, Terms
from fednode.reports.figures import LOOSER, bound, plural
from fednode.reports.ledger_check import groups_line
from fednode.settings import RunSettings
from fednode.units import UNITS
from fednode_crypto import Demand, SumParams, WrongParameters, plan

_LOUD_NOISE = 50.0

_LEAST_SIGNAL = 2.0
"""How many times as far as the noise the records together have to be able to move the last model."""

_FINEST_GRID = 16
"""The most grid bits that a plan takes for no more bytes: beyond, rounding no longer shows in the noise."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A run that can work: the terms of its first round, its sizes and what it will cost."""

    settings: RunSettings
    workload: Workload
    terms: Terms
    sum_params: SumParams
    budget: Budget
    optimiser: ServerOptimiser
    noise: NoiseRequest
    population: PopulationStanding
    warnings: tuple[str, ...]

    @property
    def layout(self) -> Layout:
        """The arrays that are trained."""
        return self.workload.layout

    @property
    def clipping(self) -> AdaptiveClip | None:
        """How the clip moves; None for a fixed one."""
        quantile = self.settings.clip_quantile
        return None if quantile is None else AdaptiveClip(quantile, self.settings.rounds)

    @property
    def taking_part(self) -> int:
        """How many clients to expect in a round."""
        settings = self.settings
        return clients_a_round(settings.clients, settings.rounds, settings.rounds_per_client)

    def events(self, survivors: int) -> list[DiscreteGaussianSum]:
        """What all rounds of a client release if each has so many survivors."""
        return _events(self.noise, survivors - self.terms.assumed_colluders)

    def member_epsilon(self) -> float:
        """The most that a member counts who does not count on more colluders than the plan."""
        # with an allocation more come to a round than expected; this many but for a chance of 2^-29
        most = min(self.settings.clients, self.taking_part + 6 * math.isqrt(self.taking_part))
        honest = most - self.terms.assumed_colluders
        return member_epsilon(self.budget.epsilon, self.budget.delta, honest, self.noise.contributors)

    def outsiders(self) -> float | None:
        """Epsilon against those who do not know who took part in which round; None if everybody does in all."""
        settings = self.settings
        if settings.rounds_per_client is None:
            return None
        events, delta = self.events(settings.min_survivors), settings.delta
        outside = outsiders_epsilon(max(one.mu for one in events), settings.rounds, settings.rounds_per_client, delta)
        return min(outside, epsilon(events, delta))

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """What `--dry-run` prints: rounds, epsilon, bytes, what the secure sum withstands and rests on."""
        settings, params, unit = self.settings, self.sum_params, UNITS[self.terms.unit]
        least, full = self.events(settings.min_survivors), self.events(self.taking_part)
        spent, most = (bound(epsilon(events, settings.delta), zeros=True) for events in (full, least))
        renyi = [bound(renyi_epsilon(events, settings.delta), zeros=True) for events in (full, least)]
        budget, plain = f"{settings.epsilon:g} at delta {settings.delta:g}", 4 * self.layout.dimension
        noises = [replace(self.terms, local_variance=event.local_variance).noise_multiplier() for event in full]
        slots = f"{params.ring_degree:,} x {params.lanes} values of {params.lane_bits} bits"
        opened = f"{params.scheme}, {params.threshold} of {params.holders} holders open"
        outside, each, counted = self.outsiders(), settings.rounds_per_client, self.member_epsilon()
        members = "inf" if counted == math.inf else bound(counted, zeros=True)
        some = f" in {each} each, about {self.taking_part:,} a round" if each else ""
        least_many = plural(settings.min_survivors, "survivor")
        turned = ", of rotated sums" if self.terms.rotated else ""
        rows = {
            "data": f"{self.workload.dataset}: {self.workload.summary or plural(self.workload.records, unit.name)}",
            "model": f"{self.workload.model}, {self.layout.dimension:,} parameters",
            "rounds": f"{settings.rounds}, {settings.clients:,} clients{some}, at least {least_many}",
            "epsilon": f"{spent} if all survive, {most} with the fewest survivors, of {budget}, unit: {unit.zeroed}",
            "cross-check": f"{renyi[0]} and {renyi[1]} by Renyi divergence: {LOOSER}",
            "together": f"{groups_line(least, settings.delta, unit.name)}, with the fewest survivors",
            "population": self.population.line(bound),
            "noise": f"{min(noises):.3f} to {max(noises):.3f} x clip in a released sum at the least",
            "members": f"count epsilon {members} at most: their own max-epsilon must allow it",
            "secure sum": f"{opened}; {plural(params.blocks, 'block')} of {slots}",
            "withstands": adversary(params),
            "rests on": STRENGTH[params.scheme],
            "bytes up": f"{params.upload_bytes:,} a sealed update, {params.upload_bytes / plain:.2f} x float32{turned}",
            "bytes down": _down(settings, plain),
            "cache": kept_where(settings),
        }
        if outside is not None:
            rows["outsiders"] = f"epsilon {bound(outside)} to who sees the models, not who took part in which round"
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
    layout, adaptive = workload.layout, settings.clip_quantile is not None
    # in k of T rounds a unit adds as much to the model as sqrt(k / T) units in all rounds, at the same epsilon
    some = (settings.rounds_per_client or settings.rounds) / settings.rounds
    optimiser = _optimiser(settings, workload.records * math.sqrt(some), workload.kept_noise)
    noise = _noise_request(settings, layout.dimension + adaptive, optimiser)
    terms, params = _sized(settings, workload, noise, workload.records * some)
    with suppress(ConfigError):  # of a grid so fine that no sum carries it
        while settings.grid_bits is None and noise.grid_bits < _FINEST_GRID:
            finer = replace(noise, grid_bits=noise.grid_bits + 1)
            sized = _sized(settings, workload, finer, terms.divisor)
            if sized[1].upload_bytes > params.upload_bytes:
                break
            noise, (terms, params) = finer, sized
    resolved = {"learning_rate": optimiser.path / settings.rounds, "grid_bits": noise.grid_bits}
    budget = Budget(settings.epsilon, settings.delta, settings.unit)
    population = standing(population_file(settings, workload.dataset, budget.unit), budget)
    made = Plan(
        # what the defaults came to stands in config.toml and in the report
        settings=settings.model_copy(update=resolved),
        workload=workload,
        terms=terms,
        sum_params=params,
        budget=budget,
        optimiser=optimiser,
        noise=noise,
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


def _signal(settings: RunSettings, records: int) -> float:
    """N mu: the path times the clip, which is as far as all records together move the last model where they pull one
    way, over the noise of one parameter, path times clip / (N mu); of the units that take part in a round."""
    some = (settings.rounds_per_client or settings.rounds) / settings.rounds
    return records * math.sqrt(some) * gaussian_mu_of_epsilon(settings.epsilon, settings.delta)


def _optimiser(settings: RunSettings, records: float, kept_noise: float) -> ServerOptimiser:
    """The default path, or the one that the mean learning rate of a round gives.

    A long path keeps more noise: path / (N mu) clips in each parameter of the last model, whatever the rounds. An
    adaptive clip is not known beforehand: there the model moves by the mean update.
    """
    momentum, adam = 0.0 if settings.server_optimiser == "sgd" else 0.9, settings.server_optimiser == "adam"
    mu = gaussian_mu_of_epsilon(settings.epsilon, settings.delta)
    path = min(DEFAULT_PATH, kept_noise * records * mu / settings.clip)
    if settings.learning_rate is not None or settings.clip_quantile is not None:
        path = (settings.learning_rate or 1.0) * settings.rounds
    return ServerOptimiser(settings.rounds, path, momentum, adam, settings.schedule == "constant")


def _noise_request(settings: RunSettings, dimension: int, optimiser: ServerOptimiser) -> NoiseRequest:
    request = NoiseRequest(
        epsilon=settings.epsilon,
        delta=settings.delta,
        weights=block_weights(optimiser.weights(), settings.rounds_per_client or settings.rounds),
        clip=settings.clip,
        grid_bits=settings.grid_bits or 0,
        dimension=dimension,
        contributors=settings.min_survivors - settings.assumed_colluders,
        failure=release_failure(dimension, settings.clients),
        floor=settings.min_noise,
    )
    return request if settings.grid_bits is not None else replace(request, grid_bits=coarsest_grid(request))


def _sized(settings: RunSettings, workload: Workload, noise: NoiseRequest, divisor: float) -> tuple[Terms, SumParams]:
    """The terms of the first round and the room for the largest noise, rotated where that makes the upload smaller."""
    terms = Terms(
        unit=settings.unit,
        clip=settings.clip,
        grid_bits=noise.grid_bits,
        local_variance=local_variance(noise),
        max_records=workload.max_records,
        divisor=divisor,
        min_survivors=settings.min_survivors,
        assumed_colluders=settings.assumed_colluders,
        deadline=settings.deadline,
        staleness=settings.staleness,
        adaptive_clip=None if settings.clip_quantile is None else settings.clip,
    )
    largest = max(event.local_variance for event in _events(noise, noise.contributors))
    ways = (terms, replace(terms, rotated=True)) if workload.max_records <= MOST_ROTATED else (terms,)
    sized = [(way, _sum_params(settings, noise.dimension, replace(way, local_variance=largest))) for way in ways]
    return min(sized, key=lambda each: each[1].upload_bytes)


def _events(noise: NoiseRequest, honest: int) -> list[DiscreteGaussianSum]:
    """What the rounds release, each planned after those before it, if so many shares of noise count in each."""
    events: list[DiscreteGaussianSum] = []
    for step in range(len(noise.weights)):
        events.append(replace(noise.event(local_variance(noise, events, step=step)), contributors=honest))
    return events


def _sum_params(settings: RunSettings, dimension: int, terms: Terms) -> SumParams:
    try:
        demand = Demand(
            dimension=dimension,
            summands=max(settings.clients, settings.holders),
            value_bound=sum_headroom(terms, dimension, settings.clients),
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
    carried = _signal(settings, records) / math.sqrt(dimension)
    if carried < _LEAST_SIGNAL:
        found.append(
            f"the records together move {dimension:,} parameters at most {carried:.2g} times as far as the noise does: "
            f"expect a model that guesses; bring {math.ceil(_LEAST_SIGNAL / carried):,} times as many records or "
            "train fewer parameters"
        )
    if terms.noise_multiplier() > _LOUD_NOISE:
        # rounding to the grid can move a unit by more than the clip, and the noise covers that too
        coarse = dimension**0.5 > terms.clip * 2.0**terms.grid_bits
        found.append(
            f"the noise is {terms.noise_multiplier():.3g} x clip in each sum: expect a model that guesses; raise "
            f"{'clip or ' if coarse else ''}epsilon, run fewer rounds or bring more records"
        )
    return tuple(found)
