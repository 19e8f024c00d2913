"""Row `many`: 1,000 keys in one get_many, and the same keys in a loop over get."""

from typing import Any, Final

from benchmarks.cache import stores
from benchmarks.harness.windows import OverKeys, Side, in_turn, spreads_to_json
from fednode.clock import SystemClock

TOGETHER: Final = "get_many"
LOOP: Final = "loop over get"
KEYS: Final = 1_000


def work(windows: int) -> dict[str, Any]:
    """Answer the seconds a key, values of 64 B. Raises RuntimeError where the two do not find the same."""
    clock = SystemClock()
    backend = stores.memory(clock)
    wanted = dict(zip(stores.names(KEYS), stores.values(KEYS, 64), strict=True))
    backend.set_many(wanted, None)
    keys = list(wanted)
    if backend.get_many(keys) != wanted or [backend.get(key) for key in keys] != list(wanted.values()):
        raise RuntimeError("get_many and get do not find the same, so the row is not measured")
    sides = [
        Side(TOGETHER, lambda: backend.get_many(keys), KEYS),
        Side(LOOP, OverKeys(backend.get, keys, KEYS), KEYS),
    ]
    return {"spreads": spreads_to_json(in_turn(clock, sides, windows))}
