"""Box keys: a holder's own, for this very round and client; and a box opens nowhere else."""

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.faults import reason_of
from kit.members import CLIENTS, HOLDERS, STRANGER, TASK, flipped, small_cohort

from fednode.protocol.boxkeys import (
    BoxKeys,
    ClientKey,
    ClientKeys,
    HolderKeys,
    about_keys,
    box_context,
    client_indices,
    key_digest,
    key_tree,
)
from fednode.protocol.envelope import Envelope, Signed, Topic
from fednode_crypto.identity import BoxKey

TOPIC = Topic(TASK, 3)
NAMES = [client.name for client in small_cohort().clients]


@cache
def keys_of(point: int) -> tuple[bytes, ...]:
    """A holder's keys of the three clients: no secrets."""
    return tuple(BoxKey.from_private_bytes(bytes([0, point, index]) + bytes(29)).public.raw for index in range(3))


def signed(one, point, kind="box-key", topic=TOPIC, keys=None, root=None):
    keys = keys_of(point) if keys is None else keys
    about = about_keys(key_tree(keys)) if root is None else {"root": root}
    return one.signer.write(kind, topic, b"".join(keys), about)


GOOD = {one.point: signed(one, one.point) for one in HOLDERS}


def verified(envelope, point):
    return HolderKeys.verified(envelope, small_cohort(), point, TOPIC)


def all_keys(points=(1, 2, 3)):
    return BoxKeys({point: verified(GOOD[point], point) for point in points}, client_indices(small_cohort()))


@pytest.mark.parametrize("points", [(1, 2, 3), (1, 3), (2,), ()])
def test_each_client_gets_its_own_keys_and_the_same_digest(points):
    keys = all_keys(points)
    for index, name in enumerate(NAMES):
        parts = keys.parts_of(name) | {"roster": b"x", "box-key-9": b"x"}
        own = ClientKeys.from_parts(parts, small_cohort())
        assert own.digest() == keys.digest()
        found = own.verified(small_cohort(), TOPIC, name)
        assert {point: (member.name, key.raw) for point, (member, key) in found.items()} == {
            point: (f"holder-{point}", keys_of(point)[index]) for point in points
        }


@given(count=st.integers(1, 70), data=st.data())
def test_a_path_proves_one_key_at_one_place(count, data):
    cohort, holder = small_cohort(), HOLDERS[0]
    keys = tuple(index.to_bytes(32, "big") for index in range(9, 9 + count))
    tree = key_tree(keys)
    given = HolderKeys(holder.signer.write("box-key", TOPIC, b"", about_keys(tree)).signed, keys, tree)
    index, other = data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, count - 1))
    own = ClientKey.from_bytes(given.of(index).to_bytes(), count)
    assert own == given.of(index) and len(own.path) == 32 * (count - 1).bit_length()
    assert own.verified(cohort, 1, TOPIC, index)[1].raw == keys[index]
    if other != index:
        assert reason_of(own.verified, cohort, 1, TOPIC, other) == "bad-box-key"
        assert reason_of(replace(own, key=keys[other]).verified, cohort, 1, TOPIC, index) == "bad-box-key"
    if own.path:
        at = data.draw(st.integers(0, len(own.path) - 1))
        bad = replace(own, path=flipped(own.path, at))
        assert reason_of(bad.verified, cohort, 1, TOPIC, index) == "bad-box-key"


def test_only_the_holder_at_a_point_gives_its_keys():
    forged = Envelope(Signed(GOOD[1].head, flipped(GOOD[1].signed.signature, 3)), GOOD[1].body)
    for envelope, reason in (
        (GOOD[2], "bad-box-key"),
        (signed(CLIENTS[0], 1), "bad-box-key"),
        (signed(STRANGER, 1), "stranger"),
        (forged, "bad-signature"),
    ):
        assert reason_of(verified, envelope, 1) == reason
        own = HolderKeys(envelope.signed, keys_of(1), key_tree(keys_of(1))).of(0)
        assert reason_of(own.verified, small_cohort(), 1, TOPIC, 0) == reason


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "key-part"},
        {"topic": Topic("other", 3)},
        {"topic": Topic(TASK, 2)},
        {"topic": Topic(TASK, 3, b"s" * 32)},
    ],
    ids=str,
)
def test_keys_of_another_round_task_or_kind_are_refused(change):
    envelope = signed(HOLDERS[1], 2, **change)
    assert reason_of(verified, envelope, 2) == "bad-box-key"
    own = HolderKeys(envelope.signed, keys_of(2), key_tree(keys_of(2))).of(0)
    assert reason_of(own.verified, small_cohort(), 2, TOPIC, 0) == "bad-box-key"


@pytest.mark.parametrize("bad", [bytes(32), b"\1" + bytes(31)], ids=["zero", "low order"])
def test_a_signed_key_that_nobody_may_use_is_refused_by_node_and_client(bad):
    keys = (keys_of(2)[0], bad, keys_of(2)[2])
    envelope = signed(HOLDERS[1], 2, keys=keys)
    assert reason_of(verified, envelope, 2) == "bad-box-key"
    own = HolderKeys(envelope.signed, keys, key_tree(keys)).of(1)
    assert reason_of(own.verified, small_cohort(), 2, TOPIC, 1) == "bad-box-key"


@pytest.mark.parametrize("keys", [keys_of(1)[:2], (*keys_of(1), keys_of(2)[0]), (keys_of(1)[0] + b"x",)], ids=len)
def test_a_holder_gives_one_key_for_each_client(keys):
    assert reason_of(verified, signed(HOLDERS[0], 1, keys=keys), 1) == "bad-box-key"


@pytest.mark.parametrize("root", ["00" * 32, "00" * 31, 7, "zz" * 32], ids=str)
def test_a_root_that_is_not_that_of_the_keys_is_refused(root):
    assert reason_of(verified, signed(HOLDERS[0], 1, root=root), 1) in {"bad-box-key", "malformed"}


def test_the_digest_names_exactly_these_heads():
    heads = {point: envelope.signed for point, envelope in GOOD.items()}
    fresh = signed(HOLDERS[0], 1, keys=keys_of(2)).signed
    variants = [heads, heads | {1: fresh}, {1: heads[1], 2: heads[2]}, {}, {1: heads[1]}]
    assert len({key_digest(given) for given in variants}) == len(variants)
    assert key_digest(dict(reversed(heads.items()))) == key_digest(heads) == all_keys().digest()


@pytest.mark.parametrize("part", [b"", b"junk", bytes(96), bytes(200)], ids=len)
def test_a_part_that_is_no_key_is_refused(part):
    parts = all_keys().parts_of(NAMES[0])
    assert reason_of(ClientKeys.from_parts, parts | {"box-key-1": part}, small_cohort()) == "malformed"


def test_a_box_is_for_one_round_client_and_holder():
    contexts = {
        box_context(spec, client, holder.public)
        for spec in (bytes(32), b"\1" * 32)
        for client in ("client-1", "client-2")
        for holder in HOLDERS
    }
    assert len(contexts) == 12
