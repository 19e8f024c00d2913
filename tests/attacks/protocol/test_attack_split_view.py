"""A split view: the node opens two rosters of one round that differ by one client, and subtracts.

Attacker: a lying node with one or two corrupt holders of five, which answer anything and record nothing. It sees every
sealed update, every answer and the corrupt holders' boxes. Success: one client's update, the difference of two sums. It
fails with t = 4 of 5 and up to two corrupt holders (2t - k > c), however the honest ones are divided. Control: it
succeeds with t = 3 of 5 and one corrupt holder, and with t = 4 and three.
"""

from dataclasses import replace

import numpy as np
import pytest
from kit.cohort import wide_limits
from kit.crypto.algebra import centred, interpolated, unmasked
from kit.crypto.attacker import RING, LyingNode, Refused, lying_node, real_cohort

from fednode.protocol.requests import roster_part
from fednode.wire import digest
from fednode_crypto import NotEnoughShares
from fednode_crypto.encoding import from_bytes
from fednode_crypto.ring.context import ring_context

VICTIM = "client-1"


def two_views(node: LyingNode, corrupt: int, first: int) -> list[dict[int, bytes]]:
    """Answers for everybody and for everybody but the victim: `first` honest holders sign, and answer, everybody."""
    everybody, rest = node.names, node.names[1:]
    views: list[dict[int, bytes]] = [{}, {}]
    for number, holder in enumerate(node.holders):
        if number < corrupt:
            node.corrupt_confirm(holder, everybody)
            node.corrupt_confirm(holder, rest)
        else:
            node.confirm(holder, everybody if number < corrupt + first else rest)
    for number, holder in enumerate(node.holders):
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


def victims_points(node: LyingNode, views: list[dict[int, bytes]]) -> dict[int, np.ndarray]:
    """Every value of the victim's sharing polynomial that follows from both views, by subtraction."""
    params = node.spec.sum_params
    field = ring_context(params).shares
    read = [{p: from_bytes(a, field) for p, a in view.items()} for view in views]
    for view in read:
        if len(view) >= params.threshold:
            known = dict(list(view.items())[: params.threshold])
            view.update({p: interpolated(known, field, p) for p in range(1, params.holders + 1)})
    found = {}
    for point in read[0].keys() & read[1].keys():
        value = read[0][point].copy()
        field.subtract(value, read[1][point])
        found[point] = value
    return found


def opens_victim(node: LyingNode, points: dict[int, np.ndarray]) -> bool:
    """Whether the secret through these points opens the victim's update."""
    field = ring_context(node.spec.sum_params).shares
    secret = centred(interpolated(points, field)[0], field.primes[0])
    found = unmasked(node.sum_of([VICTIM]), node.spec.digest(), secret)
    return found is not None and np.array_equal(found, node.cohort.plain[VICTIM])


@pytest.mark.parametrize(("corrupt", "first"), [(1, 4), (1, 3), (1, 2), (1, 1), (2, 3), (2, 2), (2, 1)])
def test_two_rosters_never_both_open_with_four_of_five(ring, corrupt, first):
    views = two_views(ring, corrupt, first)
    assert all(len(view) >= corrupt for view in views)
    opened = []
    for names, view in zip((ring.names, ring.names[1:]), views, strict=True):
        try:
            opened.append(ring.combined(names, view))
            assert np.array_equal(opened[-1], ring.cohort.sum_of(names))
        except NotEnoughShares:
            continue
    assert len(opened) <= 1
    points = victims_points(ring, views)
    assert len(points) < ring.spec.sum_params.threshold
    assert not points or not opens_victim(ring, points)


def test_control_three_of_five_and_one_corrupt_holder_give_one_update_away(tmp_path):
    # members whose max-corrupt is 0; by default they would refuse this threshold
    node = lying_node(real_cohort(tmp_path, replace(RING, threshold=3), wide_limits()))
    views = two_views(node, corrupt=1, first=2)
    everybody, rest = (
        node.combined(names, view) for names, view in zip((node.names, node.names[1:]), views, strict=True)
    )
    assert np.array_equal(everybody - rest, node.cohort.plain[VICTIM])
    assert opens_victim(node, victims_points(node, views))


def test_control_three_corrupt_holders_of_five_are_one_too_many(ring):
    views = two_views(ring, corrupt=3, first=1)
    assert opens_victim(ring, victims_points(ring, views))


def test_two_holders_are_told_of_two_box_lists_and_still_answer_for_one_roster(ring):
    """The roster of the boxes may differ from the one that is opened; the record holds the one that was answered."""
    for holder in ring.holders:
        ring.opened_by(holder, ring.names[1:])
        with pytest.raises(Refused, match="already-opened"):
            ring.opened_by(holder, ring.names)
        confirmed, entry = ring.cohort.folder(holder).audit_log.entries()
        assert confirmed["roster"] == entry["roster"]
        assert entry["roster"] == digest("roster", roster_part(ring.heads(ring.names[1:]))).hex()
