"""Mixed answers: each holder answers for one roster, no roster has enough answers, and yet a weighted sum opens.

Attacker: a lying node, no corrupt holder. With 2 of 3 it asks holder 1 about A and B together, holder 2 about A, holder
3 about B. Shamir shares are linear: in 6 f_AB(1) - 3 f_A(2) - 2 f_B(3) = 3 S_A + 4 S_B the random parts cancel; the
secrets are short, so this unmasks 3 A + 4 B. Success: that weighted sum. It fails: a holder answers only for a roster
that as many holders signed as it takes to open, one roster each. Control: holders that require no signatures.
"""

from itertools import product

import numpy as np
import pytest
from kit.cohort import Size, wide_limits
from kit.crypto.algebra import centred
from kit.crypto.attacker import LyingNode, Refused, lying_node, real_cohort

from fednode_clients.holder.holder import Holder
from fednode_crypto.encoding import from_bytes
from fednode_crypto.hazmat.ring import Mask, mask_block
from fednode_crypto.ring.context import public_keys, ring_context

SIZE = Size(clients=6, holders=3, threshold=2, dimension=40, scheme="ring", min_survivors=3)
HOLDERS = SIZE.holder_names


@pytest.fixture
def node(tmp_path):
    return lying_node(real_cohort(tmp_path, SIZE, wide_limits(floor_survivors=3)))


def rosters(node: LyingNode):
    return {"AB": node.names, "A": node.names[:3], "B": node.names[3:]}


def asked_for(node: LyingNode, plan):
    """Each holder's answer to its part of the plan, without those that refuse."""
    answers = {}
    for holder, which in zip(HOLDERS, plan, strict=True):
        try:
            answers[node.point(holder)] = node.opened_by(holder, rosters(node)[which])
        except Refused as refusal:
            assert str(refusal) in ("not-confirmed", "already-confirmed", "already-opened")
    return answers


def weighted_secret(node: LyingNode, answers):
    """3 S_A + 4 S_B from one answer each over A and B together, A and B."""
    params = node.spec.sum_params
    field = ring_context(params).shares
    both, first, second = (from_bytes(answers[point], field)[0].astype(object) for point in (1, 2, 3))
    return centred(6 * both - 3 * first - 2 * second, params.share_prime).astype(np.int64)


def residues(node: LyingNode, words):
    """The numbers mod q behind residues mod each prime, by the Chinese remainder theorem."""
    primes = node.spec.sum_params.primes
    q = int(np.prod([int(prime) for prime in primes], dtype=object))
    total = 0
    for row, prime in zip(words, primes, strict=True):
        rest = q // int(prime)
        total = total + row.astype(object) * (rest * pow(rest, -1, int(prime)))
    return total % q, q


def unmasked(node: LyingNode, secret):
    """3 A + 4 B as this secret unmasks it; junk for a wrong secret."""
    params, known = node.spec.sum_params, ring_context(node.spec.sum_params)
    keys = public_keys(params, node.spec.digest())
    masked = mask_block(keys, 0, known.data)
    Mask.of(known.data, keys, secret)._product(masked)
    first, second = (node.sum_of(rosters(node)[which]).words[0] for which in ("A", "B"))
    (a, q), (b, _), (mask, _) = (residues(node, words) for words in (first, second, masked))
    plain = centred(3 * a + 4 * b - mask, q)
    step = 1 << params.shift
    return np.array([(int(value) + step // 2) // step for value in plain[: params.dimension]], dtype=object)


def wanted(node: LyingNode):
    return 3 * node.cohort.sum_of(node.names[:3]) + 4 * node.cohort.sum_of(node.names[3:])


def test_no_holder_answers_for_a_roster_that_too_few_have_signed(node):
    for holder, which in zip(HOLDERS, ("AB", "A", "B"), strict=True):
        node.confirm(holder, rosters(node)[which])
    assert asked_for(node, ("AB", "A", "B")) == {}
    assert all("opened" not in entry for holder in HOLDERS for entry in node.cohort.folder(holder).audit_log.entries())


@pytest.mark.parametrize("signed", list(product(("AB", "A", "B"), repeat=3))[1::3])
def test_however_the_signatures_are_spread_one_roster_at_most_is_answered(node, signed):
    for holder, which in zip(HOLDERS, signed, strict=True):
        node.confirm(holder, rosters(node)[which])
        for other in {"AB", "A", "B"} - {which}:
            with pytest.raises(Refused, match="already-confirmed"):
                node.confirm(holder, rosters(node)[other])
    answered = {which: set(asked_for(node, (which,) * 3)) for which in ("AB", "A", "B")}
    # enough others signed it, but a holder that signed another roster does not open it either
    points = {which: {point for point, own in enumerate(signed, 1) if own == which} for which in answered}
    assert answered == {which: found if len(found) >= 2 else set() for which, found in points.items()}


def test_a_signature_outlives_a_restart(node):
    node.confirm("holder-1", rosters(node)["A"])
    node.cohort.restart("holder-1")
    with pytest.raises(Refused, match="already-confirmed"):
        node.confirm("holder-1", rosters(node)["B"])
    node.confirm("holder-1", rosters(node)["A"])


def test_control_without_the_signatures_a_weighted_sum_of_two_rosters_comes_out(node, monkeypatch):
    monkeypatch.setattr(Holder, "_require_confirmed", lambda *_: None)
    node.confirmed[("nobody",)] = {}
    answers = asked_for(node, ("AB", "A", "B"))
    assert sorted(answers) == [1, 2, 3]
    found = unmasked(node, weighted_secret(node, answers))
    assert np.array_equal(found, wanted(node))
