"""The instances that the default run searches: each once for all tests that ask for it."""

from functools import cache

from kit.coherence_moves import Rules
from kit.coherence_search import Found, search

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
    "4 agents, 1 key, one message twice": Rules(4, faults=1, kinds=frozenset({"twice"})),
    "4 agents, 1 key, one late lease or one request given up": Rules(4, faults=1, kinds=frozenset({"late"})),
    "2 agents, 2 keys, every wish, one agent dies": Rules(2, "kl", deaths=1),
}


@cache
def found(name: str) -> Found:
    """The finished search of an instance. Raises `Violation`."""
    return search({**INSTANCES, **SLOW}[name])
