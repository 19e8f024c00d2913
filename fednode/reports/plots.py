"""Four plots of a run, as numbers and places; `templates/plot.html` draws them in the colours of the page."""

import math
from dataclasses import dataclass
from typing import Literal

from fednode.reports.run_record import RoundRecord, RunRecord

LEFT, RIGHT, TOP, BOTTOM = 46, 460, 34, 230
"""The field between the axes, in the units of the drawing, which is 470 wide and 270 high."""

Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """One kind of mark at (round, value); `colour` is a class of the style sheet."""

    label: str
    kind: Literal["line", "bars", "dashes", "level"]
    colour: str
    points: Points


@dataclass(frozen=True, slots=True)
class Plot:
    """What is drawn over the rounds `first` to `last`, and `empty`, what is said if there is nothing to draw."""

    title: str
    axis: str
    empty: str
    first: int
    last: int
    series: tuple[Series, ...]
    least_top: float = 0.0

    @property
    def drawn(self) -> bool:
        """Whether anything but a level is there."""
        return any(series.points for series in self.series if series.kind != "level")

    @property
    def top(self) -> float:
        """The value at the upper end of the axis."""
        return max([self.least_top] + [1.08 * value for series in self.series for _, value in series.points]) or 1.0

    @property
    def width(self) -> float:
        """The width of a bar."""
        return 0.7 * (self.x(1) - self.x(0))

    def x(self, number: float) -> float:
        """The place of a round."""
        return LEFT + (RIGHT - LEFT) * (number - self.first + 0.7) / (self.last - self.first + 1.4)

    def y(self, value: float) -> float:
        """The place of a value."""
        return BOTTOM - (BOTTOM - TOP) * value / self.top

    @property
    def numbers(self) -> list[int]:
        """The rounds that the axis names."""
        step = max(1, int(_step((self.last - self.first + 1) / 8)))
        return [number for number in range(self.first, self.last + 1) if number % step == 0 or self.last == self.first]

    @property
    def levels(self) -> list[float]:
        """The values that the axis names."""
        step = _step(self.top / 5)
        return [step * count for count in range(math.floor(self.top / step) + 1)]


def plots_of(record: RunRecord) -> tuple[Plot, ...]:
    """Accuracy, epsilon, noise and survivors, round by round."""
    rounds, released = record.rounds, record.released
    first, last = (rounds[0].round, rounds[-1].round) if rounds else (1, 1)
    failed = tuple(one for one in rounds if not one.released)
    limit, floor = record.guarantee.epsilon_limit, float(record.mechanism.min_survivors)

    def plot(title: str, axis: str, empty: str, *series: Series, least_top: float = 0.0) -> Plot:
        return Plot(title, axis, empty, first, last, tuple(one for one in series if one.points), least_top)

    accuracy = tuple((one.round, 100 * one.accuracy) for one in rounds if one.accuracy is not None)
    return (
        plot("Accuracy per round", "accuracy, %", "No accuracy was measured.",
             Series("accuracy", "line", "first", accuracy), least_top=100.0),
        plot("Epsilon spent, and the limit", "epsilon spent", "No round ended.",
             Series("charged", "line", "first", _values(rounds, "epsilon_after")),
             Series("Renyi bound", "line", "second", _values(rounds, "renyi_after")),
             Series("limit", "level", "limit", ((first, limit),))),
        plot("Noise planned and noise really added", "noise in the sum", "No round was released.",
             Series("added", "bars", "first", _values(released, "noise_added")),
             Series("planned", "dashes", "limit", _values(released, "noise_planned"))),
        plot("Survivors per round, and the floor", "survivors", "No round ended.",
             Series("released", "bars", "first", _survivors(released)),
             Series("failed", "bars", "hollow", _survivors(failed)),
             Series("floor", "level", "limit", ((first, floor),))),
    )  # fmt: skip


def _values(rounds: tuple[RoundRecord, ...], name: str) -> Points:
    return tuple((one.round, getattr(one, name)) for one in rounds)


def _survivors(rounds: tuple[RoundRecord, ...]) -> Points:
    return tuple((one.round, float(len(one.survivors))) for one in rounds)


def _step(least: float) -> float:
    """The smallest of 1, 2, 5, 10 times a power of ten that is not below `least`."""
    unit = 10.0 ** math.floor(math.log10(least))
    return next(unit * count for count in (1, 2, 5, 10) if unit * count >= least)
