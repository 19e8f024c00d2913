"""Chunks follow from names and shapes; outlines, statements of the model and holders' words come from anywhere."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.faults import reason_of
from kit.members import CLIENTS, HOLDERS, STRANGER, TASK, TOPIC, small_cohort

from fednode.protocol.chunks import CHUNK_VALUES, MAX_MODEL_VALUES, Outline, chunks_of
from fednode.protocol.envelope import Signed
from fednode.protocol.model import Basis, Layout, model_digest
from fednode.protocol.openings import opened_by, opening_parts
from fednode.wire import canonical

LAYOUT, ICE = Layout(("w", "b"), ((3, 2), (3,))), Layout(("ice",), ((4,),))
OUTLINE = Outline(LAYOUT, ICE)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=10), st.integers(0, 5 * CHUNK_VALUES))
def test_chunks_cover_an_array_once_and_in_order(name, size):
    chunks = chunks_of(name, size)
    assert [chunk.first for chunk in chunks] == list(range(0, max(size, 1), CHUNK_VALUES))
    assert sum(chunk.count for chunk in chunks) == size
    assert all(chunk.count == CHUNK_VALUES for chunk in chunks[:-1]) and len({c.id for c in chunks}) == len(chunks)


def test_no_two_arrays_share_a_chunk_id():
    names = ("a", "a/0", "a/0/0", "a%2F0", "")
    ids = [chunk.id for name in names for chunk in chunks_of(name, 2 * CHUNK_VALUES)]
    assert len(set(ids)) == len(ids)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.text("abc.é", min_size=1), st.lists(st.integers(1, 9), max_size=3)), unique_by=lambda r: r[0])
)
def test_an_outline_comes_back(rows):
    layout = Layout(tuple(name for name, _ in rows), tuple(tuple(shape) for _, shape in rows))
    for outline in (Outline(layout), Outline(Layout((), ()), layout)):
        assert Outline.from_bytes(outline.to_bytes()) == outline


def test_the_digest_says_which_arrays_are_frozen():
    arrays = {"w": np.ones((3, 2)), "b": np.zeros(3), "ice": np.arange(4)}
    digests = {
        OUTLINE.digest(arrays),
        Outline(Layout(("w", "b", "ice"), ((3, 2), (3,), (4,)))).digest(arrays),
        Outline(Layout(("w",), ((3, 2),)), Layout(("b", "ice"), ((3,), (4,)))).digest(arrays),
    }
    assert len(digests) == 3
    plain = {name: arrays[name] for name in LAYOUT.names}
    assert Outline(LAYOUT).digest(arrays) == model_digest(plain)


def test_names_are_there_once_and_models_have_a_size():
    with pytest.raises(ValueError):
        Outline(LAYOUT, Layout(("w",), ((1,),)))
    with pytest.raises(ValueError, match="values"):
        Outline(Layout(("w", "v"), ((MAX_MODEL_VALUES,), (1,))))


ROW = {"name": "w", "shape": [1]}
HOSTILE = {
    "nothing": {},
    "one half": {"trained": [ROW]},
    "more": {"trained": [ROW], "frozen": [], "more": 1},
    "no list": {"trained": ROW, "frozen": []},
    "no rows": {"trained": ["w"], "frozen": []},
    "twice": {"trained": [ROW], "frozen": [ROW]},
    "no name": {"trained": [{"shape": [1]}], "frozen": []},
    "an empty name": {"trained": [{"name": "", "shape": [1]}], "frozen": []},
    "a long name": {"trained": [{"name": "w" * 257, "shape": [1]}], "frozen": []},
    "an offset": {"trained": [{**ROW, "first": 3}], "frozen": []},
    **{
        f"shape {shape}": {"trained": [{"name": "w", "shape": shape}], "frozen": []}
        for shape in (1, None, [-1], [True], [1.0], ["1"], [1] * 33, [1 << 40], [1 << 16, 1 << 16])
    },
    "too much together": {"trained": [{"name": str(n), "shape": [1 << 30]} for n in range(3)], "frozen": []},
}


@pytest.mark.parametrize("document", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_outline_is_malformed(document):
    assert reason_of(Outline.from_bytes, canonical(document)) == "malformed"


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60))
def test_bytes_that_are_no_outline_or_statement_are_malformed(data):
    for read in (Outline.from_bytes, Basis.from_bytes):
        if read is Basis.from_bytes and len(data) == Basis.SIZE:
            continue
        assert reason_of(read, data) == "malformed"


def test_a_statement_of_the_model_comes_back_and_has_one_size():
    basis = Basis(7, bytes(range(32)))
    assert Basis.from_bytes(basis.to_bytes()) == basis and len(basis.to_bytes()) == Basis.SIZE == 40


# --- holders' words


def words(members=HOLDERS, kind="answer", topic=TOPIC) -> dict[int, Signed]:
    return {max(member.point, 1): member.signer.write(kind, topic).signed for member in members}


def vouched(answers) -> frozenset[int]:
    return opened_by(opening_parts(answers), small_cohort(), TASK, TOPIC.spec)


def test_holders_that_answered_for_this_round_vouch_for_it():
    assert vouched(words()) == {1, 2, 3}
    assert vouched(words(HOLDERS[1:])) == {2, 3}
    assert opened_by({}, small_cohort(), TASK, TOPIC.spec) == frozenset()


def test_nobody_else_does_and_for_nothing_else():
    signed = words()[1]
    forged = {
        "another round": words(topic=replace(TOPIC, spec=bytes(32))),
        "another task": words(topic=replace(TOPIC, task="other")),
        "another kind": words(kind="checked"),
        "a client": {1: words(CLIENTS[:1])[1]},
        "a stranger": {1: words((STRANGER,))[1]},
        "unsigned": {1: Signed(signed.head, bytes(64))},
        "one holder, many points": {2: signed, 3: signed},
    }
    for case, answers in forged.items():
        assert vouched(answers) == frozenset(), case
    assert vouched({1: signed, 2: signed, 3: signed}) == {1}
    assert opened_by({"opened-1": b"junk", "opened-2": b""}, small_cohort(), TASK, TOPIC.spec) == frozenset()


@pytest.mark.parametrize(
    "shape",
    [[0], [3, 0], [0] + [2**31 - 1] * 4, [2**31 - 1] * 3 + [0], [0] * 32, [2**31, 0], [2**31] * 2, [2**16] * 32],
)
@pytest.mark.parametrize("place", ["trained", "frozen"])
def test_a_shape_without_values_or_with_too_many_is_malformed(shape, place):
    rows = {"trained": [{"name": "w", "shape": [40]}], "frozen": []}
    rows[place] = [*rows[place], {"name": "z", "shape": shape}]
    assert reason_of(Outline.from_bytes, canonical(rows)) == "malformed"
