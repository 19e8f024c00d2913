"""The instances that the default run searches: each once for all tests that ask for it."""

from functools import cache

from kit.coherence.moves import Rules
from kit.coherence.round_search import Covered, Trouble, search_rounds
from kit.coherence.round_world import Sides
from kit.coherence.search import Found, search

LOSS = frozenset({"loss"})
INSTANCES = {
    "4 agents, 1 key, one message lost, one agent dies": Rules(4, faults=1, deaths=1, kinds=LOSS),
    "2 agents, 2 keys and both at once, one message lost, one agent dies": Rules(
        2, "kl", faults=1, deaths=1, kinds=LOSS, wishes=frozenset({"reads", "writes"})
    ),
    "3 agents, 1 key, one fault of any kind": Rules(3, faults=1),
    "2 agents, 1 key, two faults of any kind, one agent dies": Rules(2, faults=2, deaths=1),
}
SLOW = {
    "3 agents, 1 key, one fault of any kind, one agent dies": Rules(3, faults=1, deaths=1),
    "4 agents, 1 key, one fault of any kind": Rules(4, faults=1),
    "4 agents, 1 key, one fault of any kind, one agent dies": Rules(4, faults=1, deaths=1),
    "3 agents, 1 key, two faults of any kind": Rules(3, faults=2),
    "2 agents, 2 keys, every wish, one agent dies": Rules(2, "kl", deaths=1),
}


@cache
def found(name: str) -> Found:
    """The finished search of an instance. Raises `Violation`."""
    return search({**INSTANCES, **SLOW}[name])


LATE = Sides(staleness=1)
SLOWLY = frozenset({"slow"})
ROUNDS = {
    "3 clients, one fault of any kind": Trouble(3, faults=1),
    "3 clients, one fault of any kind, nothing kept on disk": Trouble(3, faults=1, sides=Sides(durable=False)),
    "3 clients, one message lost, one restart": Trouble(3, faults=1, deaths=1, kinds=LOSS),
    "1 client, one message lost, s = 1": Trouble(1, faults=1, kinds=LOSS, sides=LATE),
}
SLOW_ROUNDS = {
    "2 clients, one message slow, one restart": Trouble(2, faults=1, deaths=1, kinds=SLOWLY),
    "1 client, one fault of any kind, one restart": Trouble(1, faults=1, deaths=1),
    "1 client, two faults of any kind": Trouble(1, faults=2),
    "1 client, one fault of any kind, s = 1": Trouble(1, faults=1, sides=LATE),
    "1 client, one restart, s = 1": Trouble(1, deaths=1, sides=LATE),
    "2 clients, one restart, s = 1": Trouble(2, deaths=1, sides=LATE),
}


@cache
def rounds_found(name: str) -> Covered:
    """The finished search of an instance of the round protocol. Raises `Violation`."""
    return search_rounds({**ROUNDS, **SLOW_ROUNDS}[name])
