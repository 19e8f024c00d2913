"""Several changes at once: all are checked before the first is made, and all are made or none."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fednode.errors import FednodeError
from fednode.live.knobs import Knob, Limited, Tunable


@dataclass(frozen=True, slots=True)
class _Step:
    make: Callable[[], None]
    put_back: Callable[[], None]


def turn_all(wanted: Sequence[tuple[Knob, float]]) -> list[tuple[float, float]]:
    """What each was and is. Raises `ConfigError`, and what a store refuses with; then nothing has changed.

    Limits of one cache are changed together, so that only what comes out has to fit.
    """
    for knob, value in wanted:
        knob.require(value)
    # each raises here what cannot come out of it
    steps = [*_limits(wanted), *(_alone(knob, value) for knob, value in wanted if knob.limits_of is None)]
    before = [knob.read() for knob, _ in wanted]
    made: list[_Step] = []
    try:
        for step in steps:
            step.make()
            made.append(step)
    except FednodeError:
        for step in reversed(made):
            step.put_back()
        raise
    return [(old, knob.read()) for old, (knob, _) in zip(before, wanted, strict=True)]


def _alone(knob: Knob, value: float) -> _Step:
    old = knob.read()
    return _Step(lambda: knob.write(knob.typed(value)), lambda: knob.write(knob.typed(old)))


def _limits(wanted: Sequence[tuple[Knob, float]]) -> list[_Step]:
    caches = {id(knob.limits_of): knob.limits_of for knob, _ in wanted if knob.limits_of is not None}
    return [
        _together(cache, {knob.name: int(value) for knob, value in wanted if knob.limits_of is cache})
        for cache in caches.values()
    ]


def _together(cache: Limited | Tunable, changed: dict[str, int]) -> _Step:
    old = cache.limits
    new = replace(old, **changed)
    return _Step(lambda: cache.tune(limits=new), lambda: cache.tune(limits=old))
