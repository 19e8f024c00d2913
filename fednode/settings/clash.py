"""Settings that cannot hold together, one rule a line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from fednode.members import least_threshold, member_names
from fednode.settings.faults import Fault
from fednode.settings.nearest import guess

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
    def cache(self) -> str: ...
    @property
    def cache_password_file(self) -> Path | None: ...
    @property
    def cache_ca(self) -> Path | None: ...
    @property
    def cache_certificate(self) -> Path | None: ...
    @property
    def cache_key(self) -> Path | None: ...
    @property
    def faults(self) -> tuple[Fault, ...]: ...


def find_clash(settings: _Bound) -> ClashError | None:
    """Find the first contradiction, ready to be raised, or None."""
    for rules in (_survivors, _committee, _floors, _cache, _faults):
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
            f"min_survivors - assumed_colluders must be {HONEST_SURVIVORS} or more, and {least} - {colluders} is less: "
            "the others could work out an honest survivor's update; "
            f"{_enough(colluders + HONEST_SURVIVORS, clients)}, "
            f"or lower assumed_colluders to {least - HONEST_SURVIVORS}",
        )


def _enough(survivors: int, clients: int) -> str:
    if survivors > clients:
        return f"raise clients and min_survivors to {survivors} or more"
    return f"raise min_survivors to {survivors} or more"


def _committee(settings: _Bound) -> Iterator[ClashError]:
    needed, holders = settings.threshold, settings.holders
    if needed > holders:
        yield ClashError(
            ("threshold", "holders"),
            f"threshold is {needed} but there are only {holders} holders: no sum could ever be opened; "
            f"set threshold to {_span(least_threshold(holders), holders)}, or holders to {needed} or more",
        )
    if needed < least_threshold(holders):
        yield ClashError(
            ("threshold", "holders"),
            f"threshold {needed} of {holders} holders lets too few corrupt ones open two different sums, so members "
            f"refuse it: raise threshold to {least_threshold(holders)} or more",
        )


def _span(least: int, most: int) -> str:
    return str(most) if least == most else f"anything from {least} to {most}"


def _floors(settings: _Bound) -> Iterator[ClashError]:
    if settings.floor_survivors > settings.min_survivors:
        yield ClashError(
            ("floor_survivors", "min_survivors"),
            f"min_survivors is {settings.min_survivors}, below the members' own floor_survivors "
            f"{settings.floor_survivors}: every client would refuse every round; raise min_survivors to "
            f"{settings.floor_survivors}, or lower floor_survivors to {settings.min_survivors}",
        )
    if settings.rounds > settings.max_rounds:
        yield ClashError(
            ("rounds", "max_rounds"),
            f"rounds is {settings.rounds}, above the members' own max_rounds {settings.max_rounds}: "
            f"every client would refuse the last rounds; lower rounds to {settings.max_rounds}, or raise max_rounds",
        )


def _cache(settings: _Bound) -> Iterator[ClashError]:
    place, tls = settings.cache, _tls_files(settings)
    given = [*tls, "cache_password_file"] if settings.cache_password_file else tls
    if given and place in ("file", "memory"):
        names, verb = " and ".join(given), "is" if len(given) == 1 else "are"
        yield ClashError(
            (*given, "cache"),
            f"{names} {verb} for a Redis server, and cache is {place}: give cache the server's address, or leave "
            f"{names} out",
        )
    if tls and not place.startswith("rediss"):
        names = " and ".join(tls)
        yield ClashError(
            (*tls, "cache"),
            f"{names} would do nothing without TLS: give cache an address that begins with rediss, or leave {names} "
            "out",
        )
    if ("cache_certificate" in tls) != ("cache_key" in tls):
        there, missing = sorted(("cache_certificate", "cache_key"), key=lambda name: name not in tls)
        yield ClashError((there,), f"{there} needs {missing} beside it: give both or none")


def _tls_files(settings: _Bound) -> list[str]:
    files = {
        "cache_ca": settings.cache_ca,
        "cache_certificate": settings.cache_certificate,
        "cache_key": settings.cache_key,
    }
    return [name for name, path in files.items() if path is not None]


def _faults(settings: _Bound) -> Iterator[ClashError]:
    for fault in settings.faults:
        count = settings.clients if fault.role == "client" else settings.holders
        names = member_names(fault.role, count)
        if fault.member not in names:
            yield ClashError(
                ("faults", f"{fault.role}s"),
                f"fault {str(fault)!r} befalls a {fault.role}, and {fault.member!r} is none of {names[0]} to "
                f"{names[-1]}{guess(fault.member, names)}",
            )
        if fault.first > settings.rounds:
            yield ClashError(
                ("faults", "rounds"),
                f"fault {str(fault)!r} begins after the last round, {settings.rounds}; name an earlier round, or raise "
                f"rounds to {fault.first} or more",
            )
