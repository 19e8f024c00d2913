"""A cache that is right by being slow, for faults to be planted in; and whether threads met in one at all."""

import itertools
from collections.abc import Mapping
from threading import Lock

from kit.clocks import FakeClock
from kit.history.history import NEVER, Seen

from fednode.cache import MISSING


class LockedDict:
    """A cache that is right by being slow: one lock around everything."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.lock = Lock()
        self.held: dict[str, tuple[object, float]] = {}
        self.calls = itertools.count(1)

    def get(self, key: str) -> object:
        with self.lock:
            return self.look(key)

    def look(self, key: str) -> object:
        value, until = self.held.get(key, (MISSING, NEVER))
        return value if self.clock.now() < until else MISSING

    def get_many(self, keys: list[str]) -> dict[str, object]:
        found = {key: self.get(key) for key in keys}
        return {key: value for key, value in found.items() if value is not MISSING}

    def set(self, key: str, value: object, ttl: float | None) -> None:
        with self.lock:
            self.held[key] = (value, NEVER if ttl is None else self.clock.now() + ttl)

    def set_many(self, items: Mapping[str, object], ttl: float | None) -> None:
        for key, value in items.items():
            self.set(key, value, ttl)

    def delete(self, key: str) -> bool:
        with self.lock:
            was_there = self.look(key) is not MISSING
            self.held.pop(key, None)
            return was_there

    def sweep(self) -> int:
        return 0


def overlapping(history: list[Seen]) -> int:
    """Calls of one key that began while another of it was under way: without any, nothing was tested."""
    open_until: dict[str, int] = {}
    found = 0
    for one in sorted(history, key=lambda call: call.start):
        found += one.start < open_until.get(one.key, -1)
        open_until[one.key] = max(one.end, open_until.get(one.key, -1))
    return found
