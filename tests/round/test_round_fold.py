"""The running sum: exact, in any order, each update once, and bad bytes leave no trace."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.crypto.insecure import InsecureRng
from kit.crypto.plainsum import InsecurePlainSum
from kit.members import small_sum

from fednode.aggregate import Fold
from fednode.errors import PeerFault
from fednode_crypto import Overflow

PLAIN, PARAMS = InsecurePlainSum(), small_sum()
KEY = PLAIN.joint_key(
    PARAMS,
    b"task",
    {p: PLAIN.contribute(PARAMS, b"task", p, InsecureRng(p)).reveal() for p in (1, 2, 3)},
    {p: PLAIN.contribute(PARAMS, b"task", p, InsecureRng(p)).commitment for p in (1, 2, 3)},
)
EMPTY = Fold(PLAIN.zero(PARAMS))


def sealed(*values) -> bytes:
    vector = np.resize(np.array(values, dtype=np.int64), PARAMS.dimension)
    return PLAIN.sealer(PARAMS, KEY).seal(vector, InsecureRng(0)).payload


def opened(fold: Fold):
    shares = {
        p: PLAIN.join(
            PARAMS, b"task", {j: PLAIN.contribute(PARAMS, b"task", j, InsecureRng(j)).shares()[p] for j in (1, 2, 3)}
        )
        for p in (1, 2)
    }
    answers = {p: PLAIN.answer(PARAMS, share, fold.total.request(), InsecureRng(p)) for p, share in shares.items()}
    return PLAIN.combine(PARAMS, fold.total, answers)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-250, 250), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_sum_is_exact_in_any_order(values, random):
    order = list(enumerate(values))
    random.shuffle(order)
    fold = EMPTY
    for number, value in order:
        fold = fold.add(f"client-{number}", sealed(value, -value, 0))
    expected = np.resize([1, -1, 0], PARAMS.dimension) * sum(values)
    assert np.array_equal(opened(fold), expected)
    assert fold.names == tuple(f"client-{number}" for number, _ in order) and fold.total.count == len(values)


def test_adding_leaves_the_fold_before_as_it_was():
    one = EMPTY.add("a", sealed(1))
    before = one.total.to_bytes()
    two = one.add("b", sealed(2))
    assert (EMPTY.names, one.names, two.names) == ((), ("a",), ("a", "b"))
    assert EMPTY.total.count == 0 and one.total.to_bytes() == before
    # two branches of one fold do not know of each other
    assert opened(one.add("c", sealed(5)))[0] == 6 and opened(two)[0] == 3


def test_no_update_is_counted_twice():
    one = EMPTY.add("a", sealed(1))
    before = one.total.to_bytes()
    for payload in (sealed(1), sealed(2), b"junk"):
        with pytest.raises(ValueError, match="a is in this sum already"):
            one.add("a", payload)
    assert one.total.to_bytes() == before and one.names == ("a",)


@pytest.mark.parametrize(
    "payload",
    [b"", b"junk", sealed(1)[:-1], sealed(1) + b"\0", sealed(1)[:-1] + b"\1"],
    ids=lambda payload: str(len(payload)),
)
def test_a_bad_payload_is_the_peers_fault_and_leaves_no_trace(payload):
    one = EMPTY.add("a", sealed(1))
    before = one.total.to_bytes()
    with pytest.raises(PeerFault) as caught:
        one.add("b", payload)
    assert caught.value.reason == "bad-payload"
    assert one.total.to_bytes() == before and one.names == ("a",)
    assert opened(one.add("b", sealed(2)))[0] == 3


def test_more_updates_than_were_planned_are_our_mistake_not_the_peers():
    fold = EMPTY
    for name in "abcd":
        fold = fold.add(name, sealed(1))
    with pytest.raises(Overflow):
        fold.add("e", sealed(1))


def test_a_fold_does_not_print_its_sum():
    assert "values" not in repr(EMPTY.add("a", sealed(123)))
