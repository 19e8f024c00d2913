"""`fednode ledger`: verify the chain of a ledger and price its charges again from their events."""

import json
from pathlib import Path

from fednode.errors import DataError, StoreError
from fednode.privacy import epsilon, renyi_epsilon
from fednode.privacy.chain import HEADER_START, ChargeRecord, History, replay
from fednode.reports import JSON_NAME
from fednode.reports.figures import LOOSER, bound, plural

_CHAIN = "no line was changed, dropped or moved since the chain was written"
_LIMIT = "only a head that was noted elsewhere reveals a ledger that was cut at its end or rewritten"


def ledger_lines(path: Path) -> list[str]:
    """The ledger at `path` as lines of text, its head compared with the report beside it, if any.

    Raises `DataError` if it cannot be read or is not a ledger, `StoreError` if a line was changed (with its number) or
    if the ledger does not end where the report says.
    """
    history = _history(path)
    if history.header is None:
        raise DataError(f"{path} is empty: no run has written to it")
    compared = _compared(path, history)
    budget, events = history.header.budget, [entry.charge.event for entry in history.entries]
    spent = epsilon(events, budget.delta) if events else 0.0
    renyi = renyi_epsilon(events, budget.delta) if events else 0.0
    limit = f"{budget.epsilon:g} at delta {budget.delta:g}"
    return [
        f"task       {history.header.task}",
        *(_charge_line(entry.charge) for entry in history.entries),
        f"spent      epsilon {bound(spent)} of {limit}, priced again from {plural(len(events), 'charge')}",
        f"checked    epsilon {bound(renyi)} by Renyi divergence: {LOOSER}",
        f"head       {history.head}",
        f"{_CHAIN}; {compared}",
    ]


def _history(path: Path) -> History:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; name the ledger.jsonl of a run") from error
    if not HEADER_START.startswith(content[: len(HEADER_START)]):
        raise DataError(f"{path} is no ledger, or its start was changed; name the ledger.jsonl of a run")
    found = replay(content, str(path))
    if found.torn and found.history.header is not None:
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


def _charge_line(charge: ChargeRecord) -> str:
    survivors = plural(len(charge.survivors), "survivor")
    return f"round {charge.round_number:<5}{survivors}, epsilon {bound(charge.epsilon_after)} after"
