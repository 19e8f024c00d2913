"""The settings of a run, complete and free of contradictions: one rule for each way in which they can contradict."""

from collections.abc import Iterator
from typing import Self

from pydantic import model_validator

from fednode.members import clients_a_round, least_threshold, member_names
from fednode.settings.fields import SettingFields
from fednode.settings.nearest import guess

HONEST_SURVIVORS = 2
"""Fewest honest updates in an opened sum: with one alone, the colluders could subtract their own and read it."""


class ClashError(ValueError):
    """Two settings contradict each other: `fields` names them, the sentence says what to change."""

    def __init__(self, fields: tuple[str, ...], sentence: str) -> None:
        super().__init__(sentence)
        self.fields = fields


class RunSettings(SettingFields):
    """Everything that decides what a run does; frozen, complete, and free of contradictions once it exists.

    Raises pydantic's ValidationError, which `resolve` turns into a ConfigError.
    """

    @model_validator(mode="after")
    def _free_of_contradictions(self) -> Self:
        for rule in (_survivors, _unit, _committee, _floors, _cache, _faults):
            for clash in rule(self):
                raise clash
        return self


def _survivors(settings: SettingFields) -> Iterator[ClashError]:
    least, colluders, clients = settings.min_survivors, settings.assumed_colluders, settings.clients
    each, rounds = settings.rounds_per_client, settings.rounds
    if each is not None and each > rounds:
        yield ClashError(
            ("rounds_per_client", "rounds"), f"rounds_per_client is {each} of {rounds} rounds: lower it, or run more"
        )
    most = clients_a_round(clients, rounds, each)
    if least > most:
        where = "take part" if each is None else "are to be expected in a round"
        yield ClashError(
            ("min_survivors", "clients" if each is None else "rounds_per_client"),
            f"min_survivors is {least} but only {most} clients {where}: lower it to {most} or less",
        )
    if least - colluders < HONEST_SURVIVORS:
        enough = colluders + HONEST_SURVIVORS
        raised = "min_survivors" if enough <= clients else "clients and min_survivors"
        yield ClashError(
            ("min_survivors", "assumed_colluders", "clients"),
            f"min_survivors - assumed_colluders must be {HONEST_SURVIVORS} or more, and {least} - {colluders} is less: "
            f"the others could work out an honest survivor's update; raise {raised} to {enough} or more, "
            f"or lower assumed_colluders to {least - HONEST_SURVIVORS}",
        )


def _unit(settings: SettingFields) -> Iterator[ClashError]:
    if settings.customer_column is not None and settings.unit == "record":
        yield ClashError(
            ("customer_column", "unit"),
            "customer_column would do nothing: the run protects a record; set unit to customer or client, or leave "
            "customer_column out",
        )
    if settings.clip_quantile is not None and settings.unit != "client":
        yield ClashError(
            ("clip_quantile", "unit"),
            f"clip_quantile is of clients' updates, but unit is {settings.unit}: set unit to client, or leave it out",
        )


def _committee(settings: SettingFields) -> Iterator[ClashError]:
    needed, holders = settings.threshold, settings.holders
    least = least_threshold(holders)
    if needed > holders:
        allowed = str(holders) if least == holders else f"anything from {least} to {holders}"
        yield ClashError(
            ("threshold", "holders"),
            f"threshold is {needed} but there are only {holders} holders: no sum could ever be opened; "
            f"set threshold to {allowed}, or holders to {needed} or more",
        )
    if needed < least:
        yield ClashError(
            ("threshold", "holders"),
            f"threshold {needed} of {holders} holders lets a lying node have two sums opened, so members refuse it: "
            f"raise threshold to {least} or more",
        )


def _floors(settings: SettingFields) -> Iterator[ClashError]:
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


def _cache(settings: SettingFields) -> Iterator[ClashError]:
    location = settings.cache
    tls = [name for name in ("cache_ca", "cache_certificate", "cache_key") if getattr(settings, name) is not None]
    given = [*tls, "cache_password_file"] if settings.cache_password_file else tls
    if given and location in ("file", "memory"):
        names, verb = " and ".join(given), "is" if len(given) == 1 else "are"
        yield ClashError(
            (*given, "cache"),
            f"{names} {verb} for a Redis server, and cache is {location}: give cache the server's address, or leave "
            f"{names} out",
        )
    if tls and not location.startswith("rediss"):
        names = " and ".join(tls)
        yield ClashError(
            (*tls, "cache"),
            f"{names} would do nothing without TLS: give cache an address that begins with rediss, or leave {names} "
            "out",
        )
    if ("cache_certificate" in tls) != ("cache_key" in tls):
        there, missing = sorted(("cache_certificate", "cache_key"), key=lambda name: name not in tls)
        yield ClashError((there,), f"{there} needs {missing} beside it: give both or none")


def _faults(settings: SettingFields) -> Iterator[ClashError]:
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
