"""Several changes at once: all are checked before the first is made, and all are made or none."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fednode.errors import FednodeError
from fednode.live.knobs import Knob, Limited


@dataclass(frozen=True, slots=True)
class _Change:
    make: Callable[[], None]
    put_back: Callable[[], None]


def turn_all(wanted: Sequence[tuple[Knob, float]]) -> list[tuple[float, float]]:
    """Make these changes; returns old and new number of each. Raises `ConfigError`, or a store's error: nothing is
    changed then.

    Limits of one cache are changed together, so that only what comes out has to fit.
    """
    for knob, value in wanted:
        knob.require(value)
    # limits that contradict each other raise here
    steps = [*_limits(wanted), *(_alone(knob, value) for knob, value in wanted if knob.limits_of is None)]
    before = [knob.read() for knob, _ in wanted]
    made: list[_Change] = []
    try:
        for step in steps:
            step.make()
            made.append(step)
    except FednodeError:
        for step in reversed(made):
            step.put_back()
        raise
    return [(old, knob.read()) for old, (knob, _) in zip(before, wanted, strict=True)]


def _alone(knob: Knob, value: float) -> _Change:
    old = knob.read()
    return _Change(lambda: knob.write(knob.typed(value)), lambda: knob.write(knob.typed(old)))


def _limits(wanted: Sequence[tuple[Knob, float]]) -> list[_Change]:
    caches = {id(knob.limits_of): knob.limits_of for knob, _ in wanted if knob.limits_of is not None}
    return [
        _together(cache, {knob.name: int(value) for knob, value in wanted if knob.limits_of is cache})
        for cache in caches.values()
    ]


def _together(cache: Limited, changed: dict[str, int]) -> _Change:
    old = cache.limits
    new = replace(old, **changed)
    return _Change(lambda: cache.tune(limits=new), lambda: cache.tune(limits=old))
