"""Shapes of a model whose product is 0 or beyond every integer, which pass for small and cannot be made.

Attacker: a lying node that describes the model. Success: a member raises, so that its error leaves as text in place of
a signed refusal, or allocates what the shape claims. It fails: `malformed`, signed, before anything is allocated.
Control: without the check of the outline, numpy's error leaves the member's app.
"""

import tracemalloc

import numpy as np
import pytest
from kit.cohort import Size, failing
from kit.crypto.attacker import real_cohort
from kit.overheard import Overheard, Said, offered, offering

from fednode.driver import Request
from fednode.protocol.chunks import MAX_MODEL_VALUES, Outline
from fednode.protocol.model import Layout
from fednode.wire import canonical
from fednode_clients.limits import MemberLimits

VICTIM, DIMENSION = "client-2", 40
LAYOUT = Layout(("w",), ((DIMENSION,),))
LARGE = 2**31 - 1
EMPTY = {
    "0, then large": [0, LARGE, LARGE, LARGE, LARGE],
    "large, then 0": [LARGE, LARGE, LARGE, 0],
    "0 between": [2**31, 0, 2**31],
    "as many dimensions as there may be": [0] + [2**31] * 31,
    "nothing but 0": [0] * 32,
    "one 0": [0],
}
BEYOND = {
    "a product beyond 2^31": [2**16, 2**16],
    "a product of 2^64, which is 0 in 64 bits": [2**31, 2**31, 4],
    "a product of 2^64 + 40": [2**16, 2**16, 2**16, 2**16, 40],
    "a negative size": [-1, -DIMENSION],
    "two large negative sizes": [-(2**40), -(2**40)],
    "a size beyond 64 bits": [2**70],
    "too many dimensions": [1] * 33,
    "a size that is a truth value": [True],
    "a fraction": [0.5],
}


def test_the_shapes_are_what_they_claim():
    assert np.prod(np.array(BEYOND["a product of 2^64, which is 0 in 64 bits"], dtype=np.uint64)) == 0
    assert all(0 in shape for shape in EMPTY.values()) and MAX_MODEL_VALUES == 2**31


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    size = Size(clients=4, holders=3, threshold=3, dimension=DIMENSION, scheme="ring")
    cohort = real_cohort(tmp_path_factory.mktemp("cohort"), size, MemberLimits())
    return cohort, [request for name, request in offered(cohort, LAYOUT) if name == VICTIM]


def described(round_one: Request, frozen: list, trained: list | None = None) -> Request:
    """The round over a model with one more array of this shape, and the one chunk that it would have."""
    rows = [{"name": "w", "shape": [DIMENSION] if trained is None else trained}]
    shapes = frozen if frozen and isinstance(frozen[0], list) else [frozen]
    more = [{"name": f"z{number}", "shape": shape} for number, shape in enumerate(shapes)]
    outline = canonical({"trained": rows, "frozen": more if frozen else []})
    lie = offering(round_one, outline=outline)
    empty = {f"z{number}/0": np.zeros(0, np.float32) for number in range(len(more))}
    return Request("train", lie.tag, lie.frame, {**lie.chunks, **empty})


def heard(asked, folder, lie: Request) -> tuple[Said, int]:
    """The answer, and the most bytes that were allocated meanwhile."""
    cohort, (task, _) = asked
    clients = Overheard(cohort, folder, failing(AssertionError("trained")))
    clients.hear([(VICTIM, task)])
    tracemalloc.start()
    try:
        return clients.hear([(VICTIM, lie)])[-1], tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def check_refused(asked, folder, lie: Request) -> None:
    said, most = heard(asked, folder, lie)
    assert (said.kind, said.reason, said.error) == ("refusal", "malformed", "")
    assert said.envelope.signed.verified(asked[0].cohort).name == VICTIM
    assert most < 1 << 22


@pytest.mark.parametrize("shape", [*EMPTY.values(), *BEYOND.values()], ids=[*EMPTY, *BEYOND])
@pytest.mark.parametrize("part", ["trained", "frozen"])
def test_a_shape_that_cannot_be_is_a_signed_refusal(asked, tmp_path, shape, part):
    lie = described(asked[1][1], shape) if part == "frozen" else described(asked[1][1], [], shape)
    check_refused(asked, tmp_path / "keys", lie)


def test_arrays_that_are_too_many_values_only_together(asked, tmp_path):
    check_refused(asked, tmp_path / "keys", described(asked[1][1], [[2**30], [2**30], [2**30]]))


def test_the_honest_outline_is_taken(asked, tmp_path):
    """What fails here is training, which is nobody's business."""
    assert heard(asked, tmp_path / "keys", asked[1][1])[0].kind == "update"


@pytest.mark.parametrize("shape", ["0, then large", "0 between", "as many dimensions as there may be"])
def test_control_without_the_check_an_error_leaves_the_member(asked, tmp_path, monkeypatch, shape):
    monkeypatch.setattr(Outline, "__post_init__", lambda _: None)
    said, _ = heard(asked, tmp_path / "keys", described(asked[1][1], EMPTY[shape]))
    assert said.kind == "error" and said.error.startswith("ValueError")
