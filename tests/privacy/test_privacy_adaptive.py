"""The adaptive clip: what is sent is never longer than the clip that is charged, and the clip finds its quantile."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.cohort import FakeSum, Size

from fednode.privacy.adaptive import AdaptiveClip, with_bit
from fednode_clients.client import privatise
from fednode_clients.training.local import clipped

TERMS = Size(records=1, adaptive_clip=1.0).terms()
CLIPS = [5e-324, 1e-300, 1e-9, 1.0, 1e9, 1e300]


def sent(vector, clip, charged=1.0):
    """What a client seals, before rounding, of an update that moved by `vector`."""
    terms = replace(TERMS, adaptive_clip=clip, clip=charged)
    return privatise.bound(FakeSum(clipped(np.array(vector), clip), clip=clip, unit="client"), terms).vector, terms


@pytest.mark.parametrize("clip", CLIPS)
@given(st.lists(st.floats(-1e160, 1e160), min_size=3, max_size=3), st.sampled_from([1e-3, 1.0, 1e6]))
@settings(max_examples=60, deadline=None)
def test_whatever_clip_a_node_asks_for_no_update_is_longer_than_what_is_charged(clip, vector, charged):
    try:
        found, _ = sent(vector, clip, charged)
    except ValueError:
        # zeros are sent then
        assert clip < 1e-300
    else:
        assert found.shape == (4,) and np.linalg.norm(found) <= charged


@pytest.mark.parametrize("vector", [[1e9, 0.0], [1e200, 1e200], [3.0, 4.0]])
def test_an_update_that_is_not_clipped_is_as_short_as_any_other(vector):
    """Training that does not clip fails, or its update is cut to the ball: the bit does not come on top."""
    for clip in (1e-9, 1.0, 2.0):
        terms = replace(TERMS, adaptive_clip=clip)
        try:
            found = privatise.bound(FakeSum(np.array(vector), clip=clip, unit="client"), terms).vector
        except ValueError:
            assert vector[0] == 1e200
        else:
            assert np.linalg.norm(found) <= TERMS.clip
            # without the cut it would be longer
            assert np.linalg.norm(with_bit(np.array(vector), clip, terms)) > TERMS.clip


def test_training_that_clips_to_more_than_the_round_asks_is_refused():
    with pytest.raises(ValueError, match=r"the round's clip is 0\.5"):
        privatise.bound(FakeSum(np.zeros(3), clip=1.0, unit="client"), replace(TERMS, adaptive_clip=0.5))


def test_the_bit_says_whether_the_update_was_within_the_clip():
    short, terms = sent([0.3, 0.4], 0.6)
    long, _ = sent([3.0, 4.0], 0.6)
    assert short[-1] == pytest.approx(-long[-1]) and 0.0 < short[-1] <= 0.14
    assert np.linalg.norm(long) == pytest.approx(1.0, abs=1e-9)
    assert np.allclose(short[:2], np.array([0.5, 2 / 3]) * math.sqrt(1 - short[-1] ** 2))
    # and a client with no records is within it
    assert sent([0.0, 0.0], 0.6)[0][-1] == short[-1] and terms.training_clip == 0.6


def test_a_sum_gives_back_the_updates_and_the_share_within_the_clip():
    rule = AdaptiveClip(0.5, 100)
    updates = np.random.default_rng(1).normal(size=(9, 50)) * np.arange(1, 10)[:, None]
    norms = np.linalg.norm(updates, axis=1)
    clip = float(np.sort(norms)[5]) * 1.001
    parts = [sent(update, clip, 7.0) for update in updates]
    found, following = rule.read(sum(part for part, _ in parts), parts[0][1], 9)
    assert np.allclose(found, sum(clipped(update, clip) for update in updates), rtol=1e-9)
    assert following == pytest.approx(clip * math.exp(-0.2 * (6 / 9 - 0.5)))


@pytest.mark.parametrize(
    ("variance", "survivors", "share"), [(1 << 16, 3, 0.14), (1 << 16, 10_000, 0.1), (4, 100, 0.0078)]
)
def test_the_bit_takes_as_little_as_it_needs(variance, survivors, share):
    terms = replace(TERMS, local_variance=variance, min_survivors=survivors, assumed_colluders=0)
    bit = with_bit(np.zeros(2), 1.0, terms)[-1]
    assert bit == pytest.approx(share, rel=0.03)
    error = terms.noise_multiplier() / (2 * bit * survivors)
    assert error == pytest.approx(0.05) if bit < 0.14 else error > 0.05


@pytest.mark.parametrize("noisy", [-1e9, -0.1, 1.1, 1e9])
def test_noise_moves_the_clip_by_no_more_than_a_true_share_could(noisy):
    true = 0.0 if noisy < 0.0 else 1.0
    assert AdaptiveClip(0.5, 10).next_clip(2.0, noisy) == AdaptiveClip(0.5, 10).next_clip(2.0, true)


@pytest.mark.parametrize("rounds", [10, 20, 60, 200])
def test_half_of_the_rounds_can_correct_a_clip_by_a_factor_of_twenty(rounds):
    for within, factor in ((0.0, 20.0), (1.0, 1 / 20.0)):
        clip = 1.0
        for _ in range(rounds // 2):
            clip = AdaptiveClip(0.5, rounds).next_clip(clip, within)
        assert abs(math.log(clip)) >= 0.999 * abs(math.log(factor)) and (clip > 1) == (factor > 1)
