"""`EntryIndex`: its totals are those of its entries after any calls, and its heap does not grow with overwriting."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.cache import Limits, Usage
from fednode.cache.entry_index import CacheEntry, EntryIndex

LIMITS = Limits(entries=4, total_bytes=20, value_bytes=9)
KEYS = st.sampled_from("abcde")
LIVES = st.sampled_from([1.0, 2.0, 3.0, inf])
STEPS = st.lists(st.tuples(KEYS, st.integers(0, 9), LIVES, st.booleans()) | KEYS | st.sampled_from([1.0, 2.0]))


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_totals_are_those_of_the_entries(steps: list[tuple[str, int, float, bool] | str | float]) -> None:
    index: EntryIndex[CacheEntry] = EntryIndex(LIMITS)
    model: dict[str, CacheEntry] = {}
    for step in steps:
        if isinstance(step, tuple):
            key, size, expires_at, pinned = step
            assert index.fits(key, size) == fits({**model, key: CacheEntry(size)})
            beside = {other: entry for other, entry in model.items() if entry.pinned}
            assert index.fits_beside_pins({key: size}) == fits({**beside, key: CacheEntry(size)})
            if key in model:
                index.drop(key)
            model[key] = CacheEntry(size, inf if pinned else expires_at, pinned=pinned)
            index.add(key, model[key])
        elif isinstance(step, str):
            if step in model:
                assert index.drop(step) is model.pop(step)
        else:
            due = {key for key, entry in model.items() if entry.expires_at <= step}
            assert index.first_due(step) in (due or {None})
            dropped, more = index.drop_due(step, most=100)
            assert len(dropped) == len(due) and not more
            model = {key: entry for key, entry in model.items() if key not in due}
        pins = [entry.size for entry in model.values() if entry.pinned]
        assert index.entries == model and index.within_limits() == fits(model)
        assert index.usage() == Usage(
            len(model), sum(entry.size for entry in model.values()), len(pins), sum(pins), expiries=index.expiries
        )


def fits(entries: dict[str, CacheEntry]) -> bool:
    total = sum(entry.size for entry in entries.values())
    return len(entries) <= LIMITS.entries and total <= LIMITS.total_bytes


@pytest.mark.parametrize("live", [1, 100])
def test_overwriting_for_ever_does_not_grow_the_heap(live: int) -> None:
    index: EntryIndex[CacheEntry] = EntryIndex(Limits(1_000, 1_000, 1))
    for turn in range(5_000):
        key = str(turn % live)
        if key in index.entries:
            index.drop(key)
        index.add(key, CacheEntry(1, 10.0 + turn))
    assert len(index._heap) <= 2 * live + 65
