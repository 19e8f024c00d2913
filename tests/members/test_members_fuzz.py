"""Mutated inputs leave nothing but typed refusals, at every reader of a peer's bytes.

The controls are readers with a fault each: the same fuzzer finds it, also behind a frame's digest and a signature.
"""

import os
from collections import Counter
from random import Random

import pytest
from kit.fuzz.fuzzer import Fuzzer, Target
from kit.fuzz.mutations import Mutator, parts_in
from kit.fuzz.targets import PLAIN, RING, World, all_targets
from kit.members import CLIENTS, HOLDERS, TASK, TOPIC, small_cohort, some_spec

from fednode.protocol import envelope as envelopes
from fednode.protocol.envelope import Envelope
from fednode.protocol.requests import read_spec, spec_frame
from fednode.wire import join_parts


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        # nothing here is about what outlives a power cut
        patch.setattr(os, "fsync", lambda _descriptor: None)
        ring, plain = (World(tmp_path_factory.mktemp("fuzz"), size) for size in (RING, PLAIN))
        targets = all_targets(ring, plain)
        yield Fuzzer(targets, 1, [seed for target in targets for seed in target.seeds if seed])


def test_inputs_leave_nothing_but_refusals(fuzzer):
    assert fuzzer.run(2_000) == []
    said = sum(fuzzer.outcomes.values(), Counter())
    # most are stopped early; what matters is that many are not
    assert said["malformed"] + said["unexpected"] < 0.75 * said.total()
    assert len(said) > 25 and said["accepted"] > 150


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_150_000_inputs_leave_nothing_but_refusals(fuzzer):
    fuzzer.seed = 2
    assert fuzzer.run(150_000) == []
    assert sum(said.total() for said in fuzzer.outcomes.values()) >= 150_000


# --- controls

FRAME = spec_frame("confirm", some_spec(), {"roster": join_parts({"a": b"b"})})
UPDATE = CLIENTS[0].signer.write("update", TOPIC, b"body", {"counts": [1, 2]}).to_bytes()


def sign(head: bytes) -> bytes:
    keys = {member.name: member.signing_key for member in (*CLIENTS, *HOLDERS)}
    return keys[CLIENTS[0].name].sign(envelopes._DOMAIN, head)


def careless_with_a_spec(data: bytes) -> object:
    spec, parts = read_spec("confirm", data)
    return {TASK: 1}[spec.task], parts["roster"]


def careless_with_a_head(data: bytes) -> object:
    told = Envelope.from_bytes(data, 1 << 20)
    told.signed.verified(small_cohort())
    return sum(told.head.about["counts"])


def wasteful(data: bytes) -> object:
    return len(bytes(1 << 27)) + len(data)


@pytest.mark.parametrize(
    ("reader", "seed", "errors"),
    [
        (careless_with_a_spec, FRAME, {"KeyError"}),
        (careless_with_a_head, UPDATE, {"TypeError"}),
        (wasteful, FRAME, {"takes"}),
    ],
)
def test_control_a_planted_fault_is_found(reader, seed, errors):
    leaks = Fuzzer([Target("planted", [seed], reader, sign=sign)], 1, [FRAME, UPDATE]).run(400)
    assert {leak.what.split()[0] for leak in leaks} >= errors


def test_control_a_slow_reader_is_found():
    now = [0.0]

    def slow_for_a_short_frame(data: bytes) -> None:
        now[0] += 2.0 if len(data) < 100 else 0.5

    leaks = Fuzzer([Target("planted", [FRAME], slow_for_a_short_frame)], 1, [FRAME], lambda: now[0]).run(400)
    assert [leak.what for leak in leaks] == ["takes too long"]


@pytest.mark.parametrize(("reader", "seed"), [(careless_with_a_spec, FRAME), (careless_with_a_head, UPDATE)])
def test_control_changes_that_are_not_mended_never_get_so_far(reader, seed, monkeypatch):
    monkeypatch.setattr(Mutator, "_inside", Mutator._bytes)
    assert Fuzzer([Target("planted", [seed], reader, sign=sign)], 1, [FRAME]).run(400) == []


def test_a_seed_gives_the_same_inputs_again():
    made = [
        [Mutator(draw, [UPDATE], sign).mutate(FRAME) for _ in range(50)]
        for draw in (Random("1"), Random("1"), Random("2"))
    ]
    assert made[0] == made[1] != made[2] and len(set(made[0])) > 40


def test_parts_are_found_in_what_has_them_and_in_nothing_else():
    parts = {"a": b"", "b": b"xyz"}
    assert parts_in(join_parts(parts)) == parts
    assert [parts_in(data) for data in (b"", b"{}", bytes(4), join_parts(parts)[:-1], b"\xff" * 64)] == [{}] * 5
