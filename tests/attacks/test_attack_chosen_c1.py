"""A node-chosen c1: the node presents one client's ciphertext to holders as the sum over an honest roster.

Attacker: a lying node without corrupt holders; it sees every sealed update. Success: one client's update. `ring` has
no c1: holders receive nothing of the sum and answer for the roster alone. Control: against `bfv` it succeeds once a
round; a lying node is out of its scope (docs/threats.md).
"""

import numpy as np
import pytest
from kit.crypto.algebra import centred, interpolated, unmasked
from kit.crypto.attacker import BFV, lying_node, real_cohort, reason_of

from fednode_crypto import Tampered
from fednode_crypto.encoding import from_bytes
from fednode_crypto.ring.context import ring_context

VICTIM = "client-2"


def test_control_bfv_gives_one_clients_update_once_a_round(tmp_path):
    node = lying_node(real_cohort(tmp_path, BFV))
    chosen = node.sum_of([VICTIM]).request()
    assert np.array_equal(node.combined([VICTIM], node.answers(node.names, chosen)), node.cohort.plain[VICTIM])
    other = node.frame(node.heads(node.names), node.sum_of(["client-1"]).request())
    assert {reason_of(node.cohort, h, other) for h in node.holders} == {"already-opened"}


def test_ring_holders_take_nothing_of_the_sum(ring):
    heads = ring.heads(ring.names)
    for chosen in (ring.updates[VICTIM].body, ring.sum_of([VICTIM]).to_bytes(), b"\0"):
        assert {reason_of(ring.cohort, h, ring.frame(heads, chosen)) for h in ring.holders} == {"bad-request"}


def test_under_ring_the_same_lie_opens_nothing(ring):
    answers = ring.answers(ring.names)
    for lie in ([VICTIM], ring.names[1:], [VICTIM, VICTIM], [*ring.names[:-1], VICTIM]):
        with pytest.raises(Tampered):
            ring.combined(lie, answers)
    assert np.array_equal(ring.combined(ring.names, answers), ring.cohort.sum_of(ring.names))


def test_under_ring_the_sum_of_the_secrets_unmasks_no_single_update(ring):
    field, digest = ring_context(ring.spec.sum_params).shares, ring.spec.digest()
    read = {point: from_bytes(answer, field) for point, answer in ring.answers(ring.names).items()}
    secret = centred(interpolated({point: read[point] for point in (1, 2, 3, 4)}, field)[0], field.primes[0])
    assert np.array_equal(unmasked(ring.sum_of(ring.names), digest, secret), ring.cohort.sum_of(ring.names))
    assert not any(unmasked(ring.sum_of([name]), digest, secret) is not None for name in ring.names)
