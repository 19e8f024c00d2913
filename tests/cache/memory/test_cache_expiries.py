"""`Expiries`: the next one first, and no more stale items than live ones and a few."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.cache.expiry_heap import Expiries

ITEMS = st.lists(st.tuples(st.floats(0, 100), st.integers(0, 9), st.sampled_from("abc")), max_size=30)


@settings(max_examples=60, deadline=None)
@given(ITEMS, ITEMS, st.floats(0, 100))
def test_the_first_is_the_next_to_expire(
    made: list[tuple[float, int, str]], added: list[tuple[float, int, str]], now: float
) -> None:
    heap: Expiries[int] = Expiries.of(made)
    for item in added:
        heap.add(*item)
    items = sorted([*made, *added])
    assert sorted(heap) == items and heap[:1] == items[:1]
    assert heap.is_due(now) == any(item[0] <= now for item in items)


def test_it_is_overgrown_where_most_of_it_is_stale() -> None:
    heap: Expiries[bytes] = Expiries.of((float(number), b"", "key") for number in range(264))
    assert [heap.is_overgrown(live) for live in (99, 100)] == [True, False]
