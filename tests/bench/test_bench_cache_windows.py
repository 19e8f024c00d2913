"""Short windows in turn: what is timed, and how two sides are held against each other."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.clocks import FakeClock

from benchmarks.harness.windows import OverKeys, Side, Spread, answer, count_for, in_turn, once

seconds = st.lists(st.floats(1e-9, 1e3), min_size=2, max_size=40)


def test_sides_take_turns_and_the_first_window_of_each_does_not_count():
    clock, order = FakeClock(), []

    def side(name, *taken):
        left = list(taken)

        def work():
            order.append(name)
            clock.sleep(left.pop(0))

        return Side(name, work, 10)

    found = in_turn(clock, [side("a", 640, 10, 20, 30, 40, 50), side("b", 640, 1, 1, 1, 1, 1)], 5)
    assert order == ["a", "b"] + ["a", "b", "b", "a"] * 2 + ["a", "b"]
    assert found["a"].middle == pytest.approx(3.0) and found["b"].middle == pytest.approx(0.1)
    assert (found["a"].low, found["a"].windows) == (pytest.approx(1.4), 5)


def test_what_is_prepared_takes_no_time():
    clock = FakeClock()
    assert once(clock, Side("a", lambda: clock.sleep(3.0), 2, before=lambda: clock.sleep(100.0))) == 1.5


def test_too_few_windows_and_two_of_one_name_are_refused():
    side = Side("a", lambda: None)
    for sides, windows in (([side], 4), ([side, side], 5)):
        with pytest.raises(ValueError, match="windows"):
            in_turn(FakeClock(), sides, windows)


@settings(max_examples=50, deadline=None)
@given(seconds)
def test_a_spread_lies_within_its_windows_and_survives_json(taken):
    found = Spread.of(taken)
    slack = 1e-12 * max(taken)
    assert min(taken) - slack <= found.low <= found.middle + slack <= max(taken) + 2 * slack
    assert Spread.from_dict(json.loads(json.dumps(answer({"a": found})))["a"]) == found


def test_a_ratio_is_the_worse_of_low_and_middle():
    assert Spread(1.0, 6.0, 5).over(Spread(1.0, 3.0, 5)) == 2.0
    assert Spread(3.0, 6.0, 5).over(Spread(1.0, 3.0, 5)) == 3.0


def test_windows_walk_over_all_keys_from_where_they_start_and_round_again():
    seen = []
    work = OverKeys(seen.append, list("abcdefg"), 2, start=4)
    for _ in range(4):
        work()
    assert "".join(seen) == "efabcdef"
    for wrong in (0, 8):
        with pytest.raises(ValueError, match="window"):
            OverKeys(seen.append, list("abcdefg"), wrong)


@pytest.mark.parametrize(("each", "count"), [(0.0, 90), (1e-6, 90), (1e-4, 10), (7.0, 1)])
def test_a_window_is_about_a_millisecond_long(each, count):
    clock = FakeClock()
    assert count_for(clock, lambda key: clock.sleep(each), ["a"] * 90, 500) == pytest.approx(count, abs=1)
