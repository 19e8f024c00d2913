"""A node-chosen c1: the node hands holders one client's ciphertext, and calls it the sum over an honest roster.

Attacker: a lying node, with no holder on its side. It sees every sealed update. Success: one client's update. Against
`ring` there is no c1: holders take nothing of the sum, and what they answer depends on the roster alone. Control:
against `bfv` it succeeds, once a round, as docs/threats.md says: a lying node is out of its scope.
"""

import numpy as np
import pytest
from kit.crypto.attacker import BFV, LyingNode, lying_node, real_cohort, reason_of

from fednode_crypto import Tampered
from fednode_crypto.encoding import from_bytes
from fednode_crypto.hazmat.ring import Mask
from fednode_crypto.ring.context import public_keys, ring_context
from fednode_crypto.ring.opening import RingOpening

VICTIM = "client-2"


def holders(node: LyingNode) -> tuple[str, ...]:
    return node.cohort.size.holder_names


def test_control_bfv_gives_one_clients_update_once_a_round(tmp_path):
    node = lying_node(real_cohort(tmp_path, BFV))
    chosen = node.sum_of([VICTIM]).request()
    answers = {node.point(h): node.opened_by(h, node.names, chosen) for h in holders(node)}
    assert np.array_equal(node.combined([VICTIM], answers), node.cohort.plain[VICTIM])
    other = node.frame(node.heads(node.names), node.sum_of(["client-1"]).request())
    assert {reason_of(node.cohort, h, other) for h in holders(node)} == {"already-opened"}


@pytest.fixture
def node(tmp_path):
    return lying_node(real_cohort(tmp_path))


def test_ring_holders_take_nothing_of_the_sum(node):
    heads = node.heads(node.names)
    for chosen in (node.updates[VICTIM].body, node.sum_of([VICTIM]).to_bytes(), b"\0"):
        assert {reason_of(node.cohort, h, node.frame(heads, chosen)) for h in holders(node)} == {"bad-request"}


def test_under_ring_the_same_lie_opens_nothing(node):
    answers = {node.point(h): node.opened_by(h, node.names) for h in holders(node)}
    for lie in ([VICTIM], node.names[1:], [VICTIM, VICTIM], [*node.names[:-1], VICTIM]):
        with pytest.raises(Tampered):
            node.combined(lie, answers)
    assert np.array_equal(node.combined(node.names, answers), node.cohort.sum_of(node.names))


def test_under_ring_the_sum_of_the_secrets_unmasks_no_single_update(node):
    answers = {node.point(h): node.opened_by(h, node.names) for h in holders(node)}
    params = node.spec.sum_params
    known, keys = ring_context(params), public_keys(params, node.spec.digest())
    read = {p: from_bytes(a, known.shares) for p, a in answers.items()}
    opening = RingOpening(known, keys, node.sum_of(node.names), read)
    mask = Mask.of(known.data, keys, opening.centred((1, 2, 3, 4)))
    room = np.empty((params.lanes, params.ring_degree), dtype=np.int64)
    assert mask.open(node.sum_of(node.names).words[0], 0, known.layout, room)
    for name in node.names:
        assert not mask.open(node.sum_of([name]).words[0], 0, known.layout, room)
