"""Box keys: a holder's own, for this very round; and a box opens nowhere else."""

import pytest
from kit.faults import reason_of
from kit.members import CLIENTS, HOLDERS, STRANGER, TASK, flipped, small_cohort

from fednode.protocol.boxkeys import BoxKeys, box_context
from fednode.protocol.envelope import Envelope, Signed, Topic

RAW = {one.point: one.box_key.public.raw for one in HOLDERS}


def signed(one, point, kind="box-key", task=TASK, number=3, body=None):
    return one.signer.write(kind, Topic(task, number), RAW[point] if body is None else body)


GOOD = {one.point: signed(one, one.point) for one in HOLDERS}


def reason(envelopes):
    return reason_of(BoxKeys(envelopes).verified, small_cohort(), TASK, 3)


@pytest.mark.parametrize("points", [(1, 2, 3), (1, 3), (2,), ()])
def test_the_keys_of_the_holders_that_are_there_travel_and_verify(points):
    keys = BoxKeys({point: GOOD[point] for point in points})
    again = BoxKeys.from_parts(keys.parts() | {"roster": b"x", "box-key-9": b"x"}, small_cohort())
    assert again == keys and again.digest() == keys.digest()
    found = again.verified(small_cohort(), TASK, 3)
    assert {point: (member.name, key.raw) for point, (member, key) in found.items()} == {
        point: (f"holder-{point}", RAW[point]) for point in points
    }


def test_only_the_holder_at_a_point_gives_its_key():
    assert reason(GOOD | {1: GOOD[2]}) == "bad-box-key"
    assert reason(GOOD | {1: GOOD[2], 2: GOOD[1]}) == "bad-box-key"
    assert reason(GOOD | {1: signed(CLIENTS[0], 1)}) == "bad-box-key"
    assert reason(GOOD | {1: signed(STRANGER, 1)}) == "stranger"
    forged = Envelope(Signed(GOOD[1].head, flipped(GOOD[1].signed.signature, 3)), GOOD[1].body)
    assert reason(GOOD | {1: forged}) == "bad-signature"


@pytest.mark.parametrize("change", [{"kind": "key-part"}, {"task": "other"}, {"number": 2}, {"number": 4}], ids=str)
def test_a_key_of_another_round_task_or_kind_is_refused(change):
    assert reason(GOOD | {2: signed(HOLDERS[1], 2, **change)}) == "bad-box-key"


@pytest.mark.parametrize("body", [b"", bytes(32), b"\1" + bytes(31), b"x" * 31], ids=len)
def test_signed_bytes_that_are_no_key_are_refused(body):
    assert reason(GOOD | {2: signed(HOLDERS[1], 2, body=body)}) == "bad-box-key"


def test_the_digest_names_exactly_these_keys():
    fresh = signed(HOLDERS[0], 1, body=STRANGER.box_key.public.raw)
    variants = [GOOD, GOOD | {1: fresh}, {1: GOOD[1], 2: GOOD[2]}, {}, {1: GOOD[1]}]
    assert len({BoxKeys(envelopes).digest() for envelopes in variants}) == len(variants)
    assert BoxKeys(dict(reversed(GOOD.items()))).digest() == BoxKeys(GOOD).digest()


def test_a_part_that_is_no_envelope_is_refused():
    parts = BoxKeys(GOOD).parts()
    assert reason_of(BoxKeys.from_parts, parts | {"box-key-1": b"junk"}, small_cohort()) == "malformed"
    large = signed(HOLDERS[0], 1, body=bytes(33)).to_bytes()
    assert reason_of(BoxKeys.from_parts, parts | {"box-key-1": large}, small_cohort()) == "oversize"


def test_a_box_is_for_one_round_client_and_holder():
    contexts = {
        box_context(spec, client, holder.public)
        for spec in (bytes(32), b"\1" * 32)
        for client in ("client-1", "client-2")
        for holder in HOLDERS
    }
    assert len(contexts) == 12
