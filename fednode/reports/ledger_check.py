"""`fednode ledger`: verify the chain of a ledger and price its charges again from their events."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fednode.errors import ConfigError, DataError, StoreError
from fednode.privacy import DiscreteGaussianSum, dearest, epsilon, group_epsilon, paid_by_client, renyi_epsilon
from fednode.privacy.chain import HEADER_START, ChargeRecord, History
from fednode.privacy.ledger import read_replay
from fednode.protocol.ledger_mark import LEDGER
from fednode.reports import JSON_NAME
from fednode.reports.figures import LOOSER, bound, maybe, moment, plural
from fednode.reports.run_record import GroupPrice

_CHAIN = "no line was changed, dropped or moved since the chain was written"
_SIZES = (2, 5, 10)
_LIMIT = "only a head that was noted elsewhere reveals a ledger that was cut at its end or rewritten"


def verify_lines(path: Path) -> list[str]:
    """What was verified in the ledger at `path`, its head compared with the report beside it, if any.

    Raises `DataError` if it cannot be read or is not a ledger, `StoreError` if a line was changed (with its number), if
    it lost what was confirmed, or if it does not end where the report says.
    """
    history = read_ledger(path)
    compared = _compared(path, history)
    budget, events = history.budget, dearest(entry.charge for entry in history.entries)
    limit = f"{budget.epsilon:g} at delta {budget.delta:g} per {budget.unit}"
    charges = (
        f"{plural(len(history.entries), 'charge')} of {plural(len({e.charge.task for e in history.entries}), 'run')}"
    )
    return [
        f"ledger     {history.name}",
        f"spent      epsilon {bound(epsilon(events, budget.delta))} of {limit}, priced again from {charges}",
        f"checked    epsilon {bound(renyi_epsilon(events, budget.delta))} by Renyi divergence: {LOOSER}",
        f"together   {groups_line(events, budget.delta, budget.unit)}",
        f"head       {history.head}",
        f"{_CHAIN}; {compared}",
    ]


def signed_line(path: Path, record: Path) -> str:
    """That the ledger at `path` holds each line which a holder signed, by the holder's record.jsonl.

    Raises `DataError` for a record that cannot be read, `StoreError` for a ledger without one of these lines.
    """
    name = read_ledger(path).name
    heads = [json.loads(line)["hash"] for line in path.read_bytes().splitlines()]
    try:
        entries = [json.loads(line) for line in record.read_bytes().splitlines()]
        marks = [
            (lines, head)
            for known, lines, head in (entry.get(LEDGER, ("", 0, "")) for entry in entries)
            if known == name
        ]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{record} is no record of a holder; name the record.jsonl of its key folder") from error
    for lines, head in marks:
        if heads[lines - 1 : lines] != [head]:
            raise StoreError(
                f"the ledger at {path} has not the line {lines} that this holder signed: it was cut or begun anew; "
                "stop, and find what is missing before any run goes on"
            )
    return f"signed     {plural(len(marks), 'mark')} in {record}: the ledger holds the line of each"


def group_prices(events: Sequence[DiscreteGaussianSum], delta: float) -> tuple[GroupPrice, ...]:
    """What 2, 5 and 10 units together pay; 2 is also the price of one that says something else."""
    prices = [(size, group_epsilon(events, delta, size)) for size in _SIZES]
    return tuple(GroupPrice(size, price if math.isfinite(price) else None) for size, price in prices)


def groups_line(events: Sequence[DiscreteGaussianSum], delta: float, unit: str) -> str:
    """`group_prices` as text."""
    return ", ".join(f"{one.size} {unit}s {maybe(one.epsilon)}" for one in group_prices(events, delta))


def show_lines(path: Path) -> list[str]:
    """Every charge and every change of the limit, in order. Raises as `verify_lines`, but compares no head."""
    history = read_ledger(path)
    budget, lines = history.budget, [f"ledger     {history.name}"]
    dated = [(entry.charge.time, _charge_line(entry.charge)) for entry in history.entries]
    dated += [(one.time, f"limit      epsilon {one.epsilon:g} by {one.by}: {one.reason}") for one in history.limits]
    lines += [f"{moment(when)}  {text}" for when, text in sorted(dated, key=lambda row: row[0])]
    charges = [entry.charge for entry in history.entries]
    spent = epsilon(dearest(charges), budget.delta)
    lines += _client_lines(charges, budget.delta)
    return [*lines, f"spent      epsilon {bound(spent)} of {budget.epsilon:g} at delta {budget.delta:g}"]


def price_lines(path: Path, accountant: str, delta: float | None, units: int) -> list[str]:
    """What the charges of the ledger at `path` cost by another accountant, at another delta, for several units.

    Raises as `show_lines`, and `ConfigError` where that accountant has no such price.
    """
    history = read_ledger(path)
    events, at = dearest(entry.charge for entry in history.entries), delta or history.budget.delta
    if accountant == "renyi" and units != 1:
        raise ConfigError("the Renyi bound is proven for one unit; leave out --accountant renyi")
    try:
        match accountant:
            case "gaussian":
                price = group_epsilon(events, at, units)
            case "renyi":
                price = renyi_epsilon(events, at)
            case "pld":
                price = _by_loss_distribution(events, at, units)
            case _:
                raise ConfigError(f"unknown accountant {accountant!r}: gaussian, renyi or pld")
    except ValueError as error:
        raise ConfigError(str(error)) from error
    whom = f"{plural(units, history.budget.unit)} replaced by zero"
    return [f"{maybe(price if math.isfinite(price) else None)} at delta {at:g}, {accountant}, for {whom}"]


def _by_loss_distribution(events: Sequence[DiscreteGaussianSum], delta: float, units: int) -> float:
    """The price of the Gaussian mechanisms behind the sums by dp-accounting, which shares no code with ours."""
    import dp_accounting
    from dp_accounting import pld

    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    for mu, count in Counter(event.mu for event in events).items():
        accountant.compose(dp_accounting.GaussianDpEvent(1.0 / (units * mu)), count)
    return float(accountant.get_epsilon(delta))


def read_ledger(path: Path) -> History:
    """The ledger at `path`, verified. Raises `DataError` or `StoreError`."""
    try:
        with path.open("rb") as file:
            start = file.read(len(HEADER_START))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; name the ledger.jsonl of a run") from error
    if start.strip(b"\0") and not HEADER_START.startswith(start):
        raise DataError(f"{path} is no ledger, or its start was changed; name the ledger.jsonl of a run")
    found = read_replay(path)
    if found.torn:
        raise StoreError(
            f"{path}: its last line is incomplete: the node was stopped while it wrote, or the file was cut; a node "
            "that opens the ledger removes the line, since an honest one opened no sum under it"
        )
    return found.history


def _compared(path: Path, history: History) -> str:
    """Compare the head with that in the report beside the ledger. Raises `StoreError` if they differ."""
    report = path.with_name(JSON_NAME)
    try:
        noted = json.loads(report.read_bytes())["run"]["trust"]["ledger_head"]
    except FileNotFoundError:
        return f"there is no {JSON_NAME} beside it to compare the head with: {_LIMIT}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return f"{report} cannot be read, so the head was not compared: {_LIMIT}"
    if noted == "":
        return f"{report} names no head, so the head was not compared: {_LIMIT}"
    if noted != history.head:
        raise StoreError(
            f"{path} ends with the head {history.head}, but {report} names {noted}: the ledger was cut or continued "
            "since the report was written, or one of the two belongs to another run; keep both and find out which"
        )
    return f"its head is the one in {report}; whoever can write both files could have changed both"


def _client_lines(charges: list[ChargeRecord], delta: float) -> list[str]:
    """Who paid least and most. In several runs one name may hold different records."""
    if len({charge.task for charge in charges}) != 1:
        return []
    paid = sorted((price, name) for name, price in paid_by_client(charges, delta).items())
    (least, one), (most, other) = paid[0], paid[-1]
    return [f"clients    epsilon {bound(least)} ({one}) to {bound(most)} ({other}): each for the rounds that it was in"]


def _charge_line(charge: ChargeRecord) -> str:
    survivors = plural(len(charge.survivors), "survivor")
    return f"{charge.task} round {charge.round_number}: {survivors}, epsilon {bound(charge.epsilon_after)} after"
