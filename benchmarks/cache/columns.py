"""Row `columns`, not judged: get and set at 64 B and 1 MB beside what others do; FedNode, each peer, one table."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from benchmarks.cache import stores
from benchmarks.cache.peers import PEERS, NotInstalled, Peer
from benchmarks.harness.windows import OverKeys, Side, count_for, in_turn, spreads_to_json
from fednode.clock import Clock, SystemClock

OWN: Final = "FedNode"
HOT_KEYS: Final = 1_000
LARGE_KEYS: Final = 16
MEGABYTE: Final = 1 << 20
_SEED: Final = 20_260_102
_MOST: Final = 1_000


@dataclass(frozen=True, slots=True)
class Cell:
    """One line of the table: what is done, to how many keys, with values of how many bytes."""

    name: str
    verb: str
    keys: int
    size: int


def cells(cold_keys: int) -> tuple[Cell, ...]:
    """Return the lines. Cold: so many keys in an order that memory does not foresee."""
    return (
        Cell("get, 64 B, hot", "get", HOT_KEYS, 64),
        Cell("get, 64 B, cold", "get", cold_keys, 64),
        Cell("set, 64 B, hot", "set", HOT_KEYS, 64),
        Cell("get, 1 MB", "get", LARGE_KEYS, MEGABYTE),
        Cell("set, 1 MB", "set", LARGE_KEYS, MEGABYTE),
    )


def work(cold_keys: int, windows: int) -> dict[str, Any]:
    """Answer the seconds an operation by line and column, and why a column was left out."""
    clock = SystemClock()
    left_out: dict[str, str] = {}
    lines = {}
    for cell in cells(cold_keys):
        with ExitStack() as stack:
            columns = _opened(stack, clock, cell.keys, left_out)
            lines[cell.name] = spreads_to_json(in_turn(clock, _sides(clock, cell, columns), windows))
    return {"lines": lines, "left_out": sorted(left_out.values())}


def _opened(stack: ExitStack, clock: Clock, size: int, left_out: dict[str, str]) -> dict[str, Peer]:
    # twice the room: whether a cache with an admission filter keeps what it was given is another question
    size *= 2
    own = stores.memory(clock, max(size, stores.ENTRIES))
    found = {OWN: Peer(own.get, lambda key, value: own.set(key, value, stores.TTL))}
    for name, opens in PEERS.items():
        try:
            found[name] = stack.enter_context(opens(size, clock))
        except NotInstalled as error:
            left_out[name] = f"{name} is left out: {error}"
    return found


def _sides(clock: Clock, cell: Cell, columns: Mapping[str, Peer]) -> list[Side]:
    keys, values = stores.names(cell.keys), stores.values(cell.keys, cell.size)
    for peer in columns.values():
        peer.fill(dict(zip(keys, values, strict=True)))
    Random(_SEED).shuffle(keys)
    sides = []
    for number, (name, peer) in enumerate(columns.items()):
        operation = peer.get if cell.verb == "get" else _setting(peer.set, values[0])
        count = count_for(clock, operation, keys, _MOST)
        start = number * len(keys) // len(columns)
        sides.append(Side(name, OverKeys(operation, keys, count, start), count))
    return sides


def _setting(put: Callable[[str, Any], object], value: bytes) -> Callable[[str], object]:
    return lambda key: put(key, value)
