"""How the charges of many rounds compose: disjoint clients by maximum, runs by addition. The proof: docs/privacy.md."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable

from fednode.privacy.accountant import epsilon
from fednode.privacy.chain import ChargeRecord
from fednode.privacy.mechanism import DiscreteGaussianSum

_FAR = 1e-25


def dearest(
    charges: Iterable[ChargeRecord], task: str = "", clients: Collection[str] = ()
) -> tuple[DiscreteGaussianSum, ...]:
    """Return the events that price these charges: of each task, those of the client whose rounds cost most.

    Clients hold disjoint data, so within a task they compose by maximum. Tasks add up, since a name may hold other
    records in the next one. With `clients`, only these can be the dearest of `task`. Where rounds are so far from a
    Gaussian mechanism that the distances matter, all events are returned: more than any client's.
    """
    tasks: dict[str, list[ChargeRecord]] = defaultdict(list)
    for charge in charges:
        tasks[charge.task].append(charge)
    if math.fsum(charge.event.distance for found in tasks.values() for charge in found) > _FAR:
        return tuple(charge.event for found in tasks.values() for charge in found)
    events: list[DiscreteGaussianSum] = []
    for name, found in tasks.items():
        spent: dict[str, float] = dict.fromkeys(clients if name == task else (), 0.0)
        for charge in found:
            cost = charge.event.mu**2
            for client in charge.survivors:
                if not clients or name != task or client in spent:
                    spent[client] = spent.get(client, 0.0) + cost
        most = max(spent, key=spent.__getitem__)
        events += [charge.event for charge in found if most in charge.survivors]
    return tuple(events)


def paid_by_client(charges: Iterable[ChargeRecord], delta: float) -> dict[str, float]:
    """Return what the charges of one run cost a unit of each client: epsilon of the rounds whose sums it is in."""
    events: dict[str, list[DiscreteGaussianSum]] = defaultdict(list)
    for charge in charges:
        for client in charge.survivors:
            events[client].append(charge.event)
    prices = {found: epsilon(found, delta) for found in {tuple(found) for found in events.values()}}
    return {client: prices[tuple(found)] for client, found in events.items()}
