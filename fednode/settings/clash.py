"""Settings that cannot hold together, one rule a line."""

from collections.abc import Iterator
from typing import Protocol

from fednode.committee import least_threshold
from fednode.names import member_names
from fednode.settings.faults import Fault
from fednode.settings.nearest import nearest

HONEST_SURVIVORS = 2
"""Fewest honest updates in an opened sum: with one alone, the colluders could subtract their own and read it."""


class ClashError(ValueError):
    """Two settings contradict each other: `fields` names them, the sentence says what to change."""

    def __init__(self, fields: tuple[str, ...], sentence: str) -> None:
        super().__init__(sentence)
        self.fields = fields


class _Bound(Protocol):
    """What the rules read of the settings."""

    @property
    def clients(self) -> int: ...
    @property
    def rounds(self) -> int: ...
    @property
    def min_survivors(self) -> int: ...
    @property
    def assumed_colluders(self) -> int: ...
    @property
    def holders(self) -> int: ...
    @property
    def threshold(self) -> int: ...
    @property
    def floor_survivors(self) -> int: ...
    @property
    def max_rounds(self) -> int: ...
    @property
    def faults(self) -> tuple[Fault, ...]: ...


def find_clash(settings: _Bound) -> ClashError | None:
    """Find the first contradiction, ready to be raised, or None."""
    for rules in (_survivors, _committee, _floors, _faults):
        for clash in rules(settings):
            return clash
    return None


def _survivors(settings: _Bound) -> Iterator[ClashError]:
    least, colluders, clients = settings.min_survivors, settings.assumed_colluders, settings.clients
    if least > clients:
        yield ClashError(
            ("min_survivors", "clients"),
            f"min_survivors is {least} but only {clients} clients take part: lower it to {clients} or less",
        )
    if least - colluders < HONEST_SURVIVORS:
        yield ClashError(
            ("min_survivors", "assumed_colluders", "clients"),
            f"min_survivors {least} less assumed_colluders {colluders} leaves fewer than {HONEST_SURVIVORS} honest "
            "survivors, whose updates the others could work out: raise min_survivors to "
            f"{colluders + HONEST_SURVIVORS} or more, with enough clients for it, or lower assumed_colluders",
        )


def _committee(settings: _Bound) -> Iterator[ClashError]:
    needed, holders = settings.threshold, settings.holders
    if needed > holders:
        yield ClashError(
            ("threshold", "holders"),
            f"threshold is {needed} but there are only {holders} holders: no sum could ever be opened",
        )
    if needed < least_threshold(holders):
        yield ClashError(
            ("threshold", "holders"),
            f"threshold {needed} of {holders} holders lets too few corrupt ones open two different sums, so members "
            f"refuse it: raise threshold to {least_threshold(holders)} or more",
        )


def _floors(settings: _Bound) -> Iterator[ClashError]:
    if settings.floor_survivors > settings.min_survivors:
        yield ClashError(
            ("floor_survivors", "min_survivors"),
            f"min_survivors is {settings.min_survivors}, below the members' own floor_survivors "
            f"{settings.floor_survivors}: every client would refuse every round",
        )
    if settings.rounds > settings.max_rounds:
        yield ClashError(
            ("rounds", "max_rounds"),
            f"rounds is {settings.rounds}, above the members' own max_rounds {settings.max_rounds}: "
            "every client would refuse the last rounds",
        )


def _faults(settings: _Bound) -> Iterator[ClashError]:
    for fault in settings.faults:
        count = settings.clients if fault.role == "client" else settings.holders
        names = member_names(fault.role, count)
        if fault.member not in names:
            yield ClashError(
                ("faults", f"{fault.role}s"),
                f"fault {str(fault)!r} befalls a {fault.role}, and {fault.member!r} is none of {names[0]} to "
                f"{names[-1]}; did you mean {nearest(fault.member, names)!r}?",
            )
        if fault.first > settings.rounds:
            yield ClashError(
                ("faults", "rounds"), f"fault {str(fault)!r} begins after the last round, {settings.rounds}"
            )
