"""Shares that do not lie on one polynomial: different holders are given parts of different secrets.

Attacker: one corrupt client (`ring`), or a corrupt holder dealing shares of the joint key (`bfv`). Success: any set of
answers opens to anything but the exact sum. It fails: holders check that a client's shares lie on one polynomial,
surplus answers are compared, an opening must be small everywhere, and a joint key is tried before a client sees it.
Control: without these checks a round is lost after its charge, and each set of holders interpolates another secret.
"""

import hashlib
from itertools import combinations

import numpy as np
import pytest
from kit.cohort import opened_sum
from kit.crypto.algebra import interpolated
from kit.crypto.attacker import BFV, RING, Size, envelope, real_cohort
from kit.crypto.committee import CONTEXT, BoxedCommittee, updates_for
from kit.crypto.insecure import InsecureRng

from fednode.errors import OpeningRejected, TooFewHolders
from fednode.protocol.boxkeys import ClientKeys, box_context, box_name, share_challenge
from fednode.protocol.envelope import Topic, about_check
from fednode.protocol.requests import read_spec, share_context
from fednode.wire import join_parts, split_parts
from fednode_crypto import Demand, WrongAnswer, plan, scheme
from fednode_crypto.encoding import from_bytes
from fednode_crypto.identity import open_box, seal_box
from fednode_crypto.ring import share_check
from fednode_crypto.ring.context import ring_context
from fednode_crypto.secret import Sealing

SCHEME = scheme("ring")
PARAMS = plan("ring", Demand(dimension=60, summands=4, value_bound=9_000, holders=5, threshold=4))
EVERYONE = BoxedCommittee(SCHEME, PARAMS)
UPDATES = updates_for(PARAMS, 3, seed=8)


def sealings(points: tuple[int, ...]) -> list[Sealing]:
    """The first client gives these points shares of another secret."""
    made = EVERYONE.sealed(UPDATES)
    other = EVERYONE.sealer.seal(UPDATES[0], InsecureRng(99), CONTEXT)
    mixed = {p: (other if p in points else made[0]).shares[p] for p in range(1, 6)}
    return [Sealing(made[0].payload, mixed), *made[1:]]


@pytest.mark.parametrize("points", [(5,), (1,), (4, 5), (1, 2, 3)])
def test_every_set_of_answers_opens_the_exact_sum_or_nothing(points):
    given = sealings(points)
    total, exact = EVERYONE.summed(given), sum(UPDATES)
    answers = EVERYONE.answers(total, given)
    opened = 0
    for chosen in [tuple(answers), *combinations(answers, 4)]:
        try:
            assert np.array_equal(EVERYONE.combine(total, {p: answers[p] for p in chosen}), exact)
            opened += 1
        except WrongAnswer as error:
            assert set(error.points) in (set(), set(points))
    assert opened == (1 if len(points) == 1 else 0)


def test_more_than_t_answers_show_it():
    given = sealings((2,))
    answers = EVERYONE.answers(EVERYONE.summed(given), given)
    with pytest.raises(WrongAnswer) as caught:
        EVERYONE.combine(EVERYONE.summed(given), answers)
    assert caught.value.points == (2,)


def test_control_unchecked_interpolation_gives_each_set_of_holders_another_secret():
    given = sealings((4, 5))
    field = ring_context(PARAMS).shares
    answers = {p: from_bytes(a, field) for p, a in EVERYONE.answers(EVERYONE.summed(given), given).items()}
    found = {interpolated({p: answers[p] for p in chosen}, field).tobytes() for chosen in combinations(answers, 4)}
    assert len(found) == 5


# --- a client, in a round


def dealing(*points: int):
    """A client that boxes these holders shares of another secret, and signs it all, with the check of its own shares.

    What it seals is zero.
    """

    def conduct(cohort, name, request):
        spec, parts = read_spec("round", request.frame)
        keys = ClientKeys.from_parts(parts, cohort.cohort).verified(cohort.cohort, Topic(spec.task, spec.round), name)
        values, digest = np.zeros(cohort.size.dimension, dtype=np.int64), spec.digest()
        sealer = cohort.scheme.sealer(spec.sum_params)
        own, other = (sealer.seal(values, InsecureRng(seed), digest) for seed in (2, 3))
        dealt = {**own.shares, **{point: other.shares[point] for point in points}}
        boxes = {p: seal_box(key, dealt[p], box_context(digest, name, holder)) for p, (holder, key) in keys.items()}
        hashes = {point: hashlib.sha256(box).digest() for point, box in boxes.items()}
        about = about_check(own.check(share_challenge(digest, name, hashes)))
        attached = {box_name(point): box for point, box in boxes.items()}
        topic = Topic(spec.task, spec.round, digest)
        return [cohort.folder(name).signer.write("update", topic, own.payload, about, attached).to_bytes()]

    return conduct


@pytest.mark.parametrize("points", [(3,), (3, 4), (1, 2, 3, 4, 5)])
def test_a_client_that_deals_wrongly_is_named_before_the_charge_and_changes_no_sum(tmp_path, points):
    """With all five the check is of another polynomial than the one they have shares of."""
    cohort = real_cohort(tmp_path, RING)
    cohort.tell("client-2", dealing(*points))
    outcome = cohort.begun().run_round(1)
    assert (outcome.cause, outcome.silent, outcome.rejected) == ("", (), (("client-2", "crooked-share"),))
    assert np.array_equal(opened_sum(outcome.release.mean, cohort.size.terms()), cohort.sum_of(outcome.survivors))


def test_a_client_that_deals_as_it_should_is_not_named(tmp_path):
    cohort = real_cohort(tmp_path, RING)
    cohort.tell("client-2", dealing())
    outcome = cohort.begun().run_round(1)
    assert (outcome.cause, outcome.silent, outcome.rejected) == ("", (), ())
    others = [name for name in outcome.survivors if name != "client-2"]
    assert np.array_equal(opened_sum(outcome.release.mean, cohort.size.terms()), cohort.sum_of(others))


@pytest.fixture
def unchecked(monkeypatch):
    monkeypatch.setattr(share_check, "check_share", lambda *_: None)


def test_control_unchecked_wrong_dealing_to_one_holder_costs_its_answer(tmp_path, unchecked):
    cohort = real_cohort(tmp_path, RING)
    cohort.tell("client-2", dealing(3))
    outcome = cohort.begun().run_round(1)
    assert outcome.cause == "" and outcome.silent == (("holder-3", "wrong-answer"),)
    others = [name for name in outcome.survivors if name != "client-2"]
    assert np.array_equal(opened_sum(outcome.release.mean, cohort.size.terms()), cohort.sum_of(others))


def test_control_unchecked_wrong_dealing_to_two_holders_stops_the_round_after_the_charge(tmp_path, unchecked):
    cohort = real_cohort(tmp_path, RING)
    cohort.tell("client-2", dealing(3, 4))
    node = cohort.node()
    outcome = cohort.begun(node).run_round(1)
    assert (outcome.cause, outcome.release, len(node.ledger.entries)) == ("opening-rejected", None, 1)


# --- a holder that deals the joint key


def crooked(*victims: int):
    """A holder that boxes these points shares of another secret than its own."""

    def conduct(cohort, name, request):
        bundle = split_parts(envelope(cohort.speak(name, request)).body, 12)
        signer, me = cohort.folder(name).signer, cohort.folder(name)
        for holder in cohort.cohort.holders:
            if holder.point in victims:
                # its own share of its own secret, in place of the victim's
                context = share_context("task-1", cohort.cohort, name, name)
                own = envelope(bundle[f"share-{cohort.cohort.member(name).point}"])
                share = open_box(me.box_key, own.body, context)
                box = seal_box(holder.box_key, share, share_context("task-1", cohort.cohort, name, holder.name))
                signed = signer.write("key-share", Topic("task-1"), box, {"to": holder.name})
                bundle[f"share-{holder.point}"] = signed.to_bytes()
        return [signer.write("key-bundle", Topic("task-1"), join_parts(bundle)).to_bytes()]

    return conduct


@pytest.mark.parametrize(
    ("size", "victims"), [(Size(clients=4, holders=3, threshold=3, dimension=5), (1,)), (BFV, (1, 2))]
)
def test_the_key_check_finds_a_holder_that_deals_crookedly(tmp_path, size, victims):
    cohort = real_cohort(tmp_path, size)
    cohort.tell("holder-3", crooked(*victims), "key-reveal")
    with pytest.raises((OpeningRejected, TooFewHolders)):
        cohort.begun()
    assert not cohort.asked("task") and not cohort.asked("round")


def test_one_victim_with_holders_to_spare_costs_its_answer_and_no_sum(tmp_path):
    """The other holders open the known vector, so the key stands; the victim's answers are left out, by name."""
    cohort = real_cohort(tmp_path, BFV)
    cohort.tell("holder-3", crooked(1), "key-reveal")
    outcome = cohort.begun().run_round(1)
    assert outcome.cause == "" and len(outcome.silent) == 1 and outcome.silent[0][1] == "wrong-answer"
    assert np.array_equal(opened_sum(outcome.release.mean, cohort.size.terms()), cohort.sum_of(outcome.survivors))
