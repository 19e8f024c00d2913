"""The benchmark's row of a half-frozen model: counted bytes of real rounds."""

import pytest

from benchmarks.cache.frozen import Downloaded, downloads, work


def test_a_frozen_half_over_twenty_rounds_costs_little_more_than_half():
    found = downloads(20, half=8_000)
    assert len(found.rounds) == 20 and found.rounds[0] > 2 * 4 * 8_000
    assert all(later < 0.55 * found.rounds[0] for later in found.rounds[1:])
    assert 0.5 < found.ratio <= 0.55


def test_the_answer_is_what_was_counted():
    answer = work({"rounds": 2, "half": 500})
    assert answer["ratio"] == pytest.approx(sum(answer["rounds"]) / (2 * answer["rounds"][0]))
    assert Downloaded((100.0, 50.0, 50.0, 50.0)).ratio == 0.625
