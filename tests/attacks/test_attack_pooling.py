"""t - 1 holders pool what they have: their shares of every client, or of the joint key.

Attacker: t - 1 holders together, with any client's payload. Success: anything about a client's secret or update, or
an opening. It fails: what they interpolate is uniform (chi-square over the whole field), unrelated to the secret, and
opens nothing; `combine` refuses too few answers and notices an invented one. Control: with one share more, the same
interpolation is exactly the secret, and the same statistic shows that it is not uniform.
"""

from itertools import combinations

import numpy as np
import pytest
from kit.crypto.algebra import centred, interpolated
from kit.crypto.attacker import Refused
from kit.crypto.committee import CONTEXT, BoxedCommittee, keyed, updates_for
from kit.crypto.insecure import InsecureRng
from numpy.typing import NDArray

from fednode_crypto import Demand, NotEnoughShares, WrongAnswer, plan, scheme
from fednode_crypto.bfv.context import bfv_context
from fednode_crypto.encoding import from_bytes
from fednode_crypto.hazmat.shamir import share
from fednode_crypto.noise import discrete_gaussian
from fednode_crypto.ring.context import ring_context
from fednode_crypto.ring.params import MASK_VARIANCE

RING = scheme("ring")
PARAMS = plan("ring", Demand(dimension=60, summands=4, value_bound=9_000, holders=5, threshold=4))
EVERYONE = BoxedCommittee(RING, PARAMS)
P, FIELD = PARAMS.share_prime, ring_context(PARAMS).shares


def chi_square(values: NDArray[np.uint64], bins: int) -> float:
    """How far the counts are from even, in standard deviations."""
    counts = np.bincount(values.astype(np.int64), minlength=bins)
    statistic = float(((counts - values.size / bins) ** 2 / (values.size / bins)).sum())
    return (statistic - (bins - 1)) / np.sqrt(2 * (bins - 1))


def secret_and_shares(seed: int) -> tuple[NDArray[np.int64], dict[int, NDArray[np.uint64]]]:
    """What a client draws and deals under this seed, from the sealing itself."""
    secret = discrete_gaussian(MASK_VARIANCE, PARAMS.ring_degree, InsecureRng(seed))
    sealing = EVERYONE.sealer.seal(np.zeros(PARAMS.dimension, dtype=np.int64), InsecureRng(seed), CONTEXT)
    masked = ring_context(PARAMS).masked
    found = {p: from_bytes(s, masked)[:, : PARAMS.ring_degree] for p, s in sealing.shares.items()}
    return secret, {p: np.ascontiguousarray(words) for p, words in found.items()}


@pytest.fixture(scope="module")
def dealt():
    return [secret_and_shares(seed) for seed in range(12)]


@pytest.mark.parametrize("points", list(combinations(range(1, 6), 3)))
def test_three_of_four_see_uniform_numbers_unrelated_to_the_secret(dealt, points):
    found = [interpolated({p: shares[p] for p in points}, FIELD)[0] for _, shares in dealt]
    assert abs(chi_square(np.concatenate(found), P)) < 6
    related = np.corrcoef(np.concatenate([centred(f, P) for f in found]), np.concatenate([s for s, _ in dealt]))[0, 1]
    assert abs(related) < 6 / np.sqrt(12 * PARAMS.ring_degree)
    assert np.mean([(centred(f, P) == s).mean() for f, (s, _) in zip(found, dealt, strict=True)]) < 3 / P


@pytest.mark.parametrize("point", range(1, 6))
def test_the_share_of_a_secret_that_is_always_the_same_is_uniform(point):
    secret = FIELD.residues(np.full(PARAMS.ring_degree, 5, dtype=np.int64))
    shares = [share(secret, FIELD, PARAMS.threshold, [point], InsecureRng(s))[point][0] for s in range(6)]
    assert abs(chi_square(np.concatenate(shares), P)) < 6


def test_control_four_of_four_have_the_secret_and_the_statistic_sees_it(dealt):
    for points in ((1, 2, 3, 4), (2, 3, 4, 5)):
        found = [interpolated({p: shares[p] for p in points}, FIELD)[0] for _, shares in dealt]
        assert all(np.array_equal(centred(f, P), s) for f, (s, _) in zip(found, dealt, strict=True))
        assert chi_square(np.concatenate(found), P) > 1_000


def test_control_a_sharing_of_too_low_degree_gives_it_to_three(dealt):
    secret = FIELD.residues(dealt[0][0])
    shares = share(secret, FIELD, PARAMS.threshold - 1, range(1, 6), InsecureRng(5))
    assert np.array_equal(interpolated({p: shares[p] for p in (1, 2, 5)}, FIELD), secret)


def test_three_answers_open_nothing_and_no_invented_fourth_helps(dealt):
    updates = updates_for(PARAMS, 3, seed=6)
    sealings = EVERYONE.sealed(updates)
    total = EVERYONE.summed(sealings)
    answers = EVERYONE.answers(total, sealings)
    three = {p: answers[p] for p in (1, 2, 3)}
    with pytest.raises(NotEnoughShares):
        EVERYONE.combine(total, three)
    of_another = RING.answer(PARAMS, [s.shares[3] for s in sealings])
    for guess in (bytes(PARAMS.answer_bytes), answers[1], sealings[0].shares[4], of_another):
        with pytest.raises(WrongAnswer):
            EVERYONE.combine(total, {**three, 4: guess})
    assert np.array_equal(EVERYONE.combine(total, {**three, 4: answers[4]}), sum(updates))


def test_three_corrupt_holders_and_the_node_open_no_single_client(ring):
    corrupt = {ring.point(h): ring.corrupt_answer(h, ["client-1"]) for h in ("holder-1", "holder-2", "holder-3")}
    with pytest.raises(NotEnoughShares):
        ring.combined(["client-1"], corrupt)
    for holder in ("holder-4", "holder-5"):
        with pytest.raises(Refused, match="min-survivors"):
            ring.opened_by(holder, ["client-1"])
    # the honest opening of everybody tells them S at every point, and still no client's own value there
    rest = {ring.point(h): ring.opened_by(h, ring.names) for h in ("holder-4", "holder-5")}
    with pytest.raises(WrongAnswer):
        ring.combined(["client-1"], {**corrupt, **rest})


def test_control_four_corrupt_holders_do(ring):
    corrupt = {ring.point(h): ring.corrupt_answer(h, ["client-1"]) for h in ring.holders[:4]}
    assert np.array_equal(ring.combined(["client-1"], corrupt), ring.cohort.plain["client-1"])


# --- bfv


def test_one_of_two_holders_of_a_joint_key_sees_uniform_numbers():
    params = plan("bfv", Demand(dimension=50, summands=4, value_bound=1_000, holders=3, threshold=2))
    everyone, known = keyed(scheme("bfv"), params), bfv_context(params).data
    for point, held in everyone.shares.items():
        words = held.words(params)
        for row, p in zip(words, known.primes, strict=True):
            assert abs(chi_square(row // np.uint64(p // 64 + 1), 64)) < 6
        whole = interpolated({q: s.words(params) for q, s in everyone.shares.items() if q != point}, known)
        known.inverse(whole)
        # control: two of them have the joint secret, a sum of three ternary ones
        assert np.abs(centred(whole[0], known.primes[0])).max() <= 3
        alone = words.copy()
        known.inverse(alone)
        assert np.abs(centred(alone[0], known.primes[0])).min() > 3
