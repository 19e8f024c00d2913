"""A split view: the node opens two rosters of one round that differ by one client, and subtracts.

Attacker: a lying node with one or two corrupt holders of five, who answer anything and record nothing. It sees every
sealed update, every answer, and what is in the corrupt holders' boxes. Success: one client's update, the difference
of two sums. It fails with t = 4 of 5 and up to two corrupt holders (2 t - k > c), however the honest ones are
divided. Control: the same with t = 3 of 5 and one corrupt holder, which succeeds.
"""

from dataclasses import replace

import numpy as np
import pytest
from kit.crypto.attacker import RING, LyingNode, Refused, lying_node, real_cohort

from fednode.protocol.requests import roster_part
from fednode.wire import digest
from fednode_crypto import NotEnoughShares
from fednode_crypto.encoding import from_bytes
from fednode_crypto.hazmat.lagrange import lagrange
from fednode_crypto.hazmat.ring import Mask
from fednode_crypto.ring.context import public_keys, ring_context

VICTIM = "client-1"


def two_views(node: LyingNode, corrupt: int, first: int) -> list[dict[int, bytes]]:
    """Answers for everybody and for everybody but the victim: `first` honest holders sign, and answer, everybody."""
    everybody, rest = node.names, node.names[1:]
    views: list[dict[int, bytes]] = [{}, {}]
    for number, holder in enumerate(node.cohort.size.holder_names):
        if number < corrupt:
            node.corrupt_confirm(holder, everybody)
            node.corrupt_confirm(holder, rest)
        else:
            node.confirm(holder, everybody if number < corrupt + first else rest)
    for number, holder in enumerate(node.cohort.size.holder_names):
        rosters = list(zip(views, (everybody, rest), strict=True))
        if number >= corrupt + first:
            rosters.reverse()
        for view, names in rosters:
            try:
                ask = node.corrupt_answer if number < corrupt else node.opened_by
                view[node.point(holder)] = ask(holder, names)
            except Refused as refusal:
                assert str(refusal) in ("already-opened", "already-confirmed", "not-confirmed")
    return views


def interpolated(node: LyingNode, values: dict[int, np.ndarray], at: int) -> np.ndarray:
    p, field = node.spec.sum_params.share_prime, ring_context(node.spec.sum_params).shares
    found = np.zeros((1, node.spec.sum_params.ring_degree), dtype=np.uint64)
    points = tuple(sorted(values))
    for point, weight in zip(points, lagrange(points, at), strict=True):
        field.add_scaled(found, values[point], weight.numerator * pow(weight.denominator, -1, p) % p)
    return found


def victims_points(node: LyingNode, views: list[dict[int, bytes]]) -> dict[int, np.ndarray]:
    """Every value of the victim's sharing polynomial that follows from both views, by subtraction."""
    params = node.spec.sum_params
    field, read = (
        ring_context(params).shares,
        [{p: from_bytes(a, ring_context(params).shares) for p, a in v.items()} for v in views],
    )
    for view in read:
        if len(view) >= params.threshold:
            known = dict(list(view.items())[: params.threshold])
            view.update({p: interpolated(node, known, p) for p in range(1, params.holders + 1)})
    found = {}
    for point in read[0].keys() & read[1].keys():
        value = read[0][point].copy()
        field.subtract(value, read[1][point])
        found[point] = value
    return found


def opens_with(node: LyingNode, secret: np.ndarray) -> bool:
    """Whether this (1, n) of residues unmasks the victim's payload to what a client may have sealed."""
    params = node.spec.sum_params
    known, s = ring_context(params), secret[0].astype(np.int64)
    s = np.where(s > params.share_prime // 2, s - params.share_prime, s)
    mask = Mask.of(known.data, public_keys(params, node.spec.digest()), s)
    room = np.empty((params.lanes, params.ring_degree), dtype=np.int64)
    opened = mask.open(node.sum_of([VICTIM]).words[0], 0, known.layout, room)
    return opened and bool(np.array_equal(room.reshape(-1)[: params.dimension], node.cohort.plain[VICTIM]))


@pytest.mark.parametrize(("corrupt", "first"), [(1, 4), (1, 3), (1, 2), (1, 1), (2, 3), (2, 2), (2, 1)])
def test_two_rosters_never_both_open_with_four_of_five(tmp_path, corrupt, first):
    node = lying_node(real_cohort(tmp_path))
    views = two_views(node, corrupt, first)
    assert all(len(view) >= corrupt for view in views)
    opened = []
    for names, view in zip((node.names, node.names[1:]), views, strict=True):
        try:
            opened.append(node.combined(names, view))
            assert np.array_equal(opened[-1], node.cohort.sum_of(names))
        except NotEnoughShares:
            continue
    assert len(opened) <= 1
    points = victims_points(node, views)
    assert len(points) < node.spec.sum_params.threshold
    if points:
        assert not opens_with(node, interpolated(node, points, 0))


def test_control_three_of_five_and_one_corrupt_holder_give_one_update_away(tmp_path, monkeypatch):
    # members would refuse this threshold: the control is what would happen if they did not
    monkeypatch.setattr("fednode_clients.keyfolder.tasks.least_threshold", lambda holders: holders // 2 + 1)
    node = lying_node(real_cohort(tmp_path, replace(RING, threshold=3)))
    views = two_views(node, corrupt=1, first=2)
    everybody, rest = (
        node.combined(names, view) for names, view in zip((node.names, node.names[1:]), views, strict=True)
    )
    assert np.array_equal(everybody - rest, node.cohort.plain[VICTIM])
    assert opens_with(node, interpolated(node, victims_points(node, views), 0))


def test_control_three_corrupt_holders_of_five_are_one_too_many(tmp_path):
    node = lying_node(real_cohort(tmp_path))
    views = two_views(node, corrupt=3, first=1)
    assert opens_with(node, interpolated(node, victims_points(node, views), 0))


def test_two_holders_are_told_of_two_box_lists_and_still_answer_for_one_roster(tmp_path):
    """The roster of the boxes is not the roster that is opened: what is recorded is the one that was answered."""
    node = lying_node(real_cohort(tmp_path))
    for holder in node.cohort.size.holder_names:
        node.opened_by(holder, node.names[1:])
        with pytest.raises(Refused, match="already-opened"):
            node.opened_by(holder, node.names)
        confirmed, entry = node.cohort.folder(holder).audit_log.entries()
        assert confirmed["roster"] == entry["roster"]
        assert entry["roster"] == digest("roster", roster_part(node.heads(node.names[1:]))).hex()
