"""A ledger read by somebody who did not write it: the chain verified, the charges priced again from their events."""

from pathlib import Path

from fednode.errors import DataError, StoreError
from fednode.privacy import epsilon, gaussian_epsilon
from fednode.privacy.chain import Charge, replay


def ledger_lines(path: Path) -> list[str]:
    """What a person wants to know of the ledger at `path`.

    Raises `DataError` if it cannot be read or is no ledger, `StoreError` with the line number if a line was changed.
    """
    try:
        found = replay(path.read_bytes(), str(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; name the ledger.jsonl of a run") from error
    history = found.history
    if history.header is None:
        raise DataError(f"{path} is empty: no run has written to it")
    if found.torn:
        raise StoreError(f"{path}: its last line was cut short by a crash; opening the ledger again mends it")
    budget, events = history.header.budget, [entry.charge.event for entry in history.entries]
    spent = epsilon(events, budget.delta) if events else 0.0
    exact = gaussian_epsilon(events, budget.delta) if events else 0.0
    limit = f"{budget.epsilon:g} at delta {budget.delta:g}"
    return [
        f"task       {history.header.task}",
        *(_charge_line(entry.charge) for entry in history.entries),
        f"spent      epsilon {spent:.4f} of {limit}, priced again from {len(events)} charges",
        f"reference  epsilon {exact:.4f} by the exact Gaussian",
        f"head       {history.head}",
        "every line and hash is as it was written; compare the head with the one in the report",
    ]


def _charge_line(charge: Charge) -> str:
    return f"round {charge.round_number:<5}{len(charge.survivors)} survivors, epsilon {charge.epsilon_after:.4f} after"
