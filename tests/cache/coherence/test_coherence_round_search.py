"""The protocol that a run drives, searched through: what holds in every world, and that what is planted is found."""

import random
from dataclasses import replace

import pytest
from kit.coherence.instances import ROUNDS, SLOW_ROUNDS, rounds_found
from kit.coherence.moves import Violation
from kit.coherence.refinement import check_step
from kit.coherence.round_parts import Down, Model, Part, Round, Shared, Up, renumbered
from kit.coherence.round_search import Trouble, search_rounds

from fednode.cache.round_directory import RoundDirectory
from fednode.driver.downloads import Downloads
from fednode.protocol.chunks import Outline
from fednode_clients.client.model_copy import ModelCopyStore, _assembled

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("name", ROUNDS)
def test_every_world_of_the_round_protocol_keeps_its_promises(name):
    covered = rounds_found(name)
    assert covered.states >= 500 and covered.counted >= 10 and covered.refined >= 10


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_ROUNDS)
def test_larger_instances_of_rounds_keep_them_too(name):
    assert rounds_found(name).states >= 5_000


class SentIsHeld(RoundDirectory):
    """Planted: what was sent counts as held before anybody said so."""

    __slots__ = ()

    def offer(self, clients, now, keys=None):
        after, parcels = RoundDirectory.offer(self, clients, now, keys)
        standings = {
            client: one._replace(held=one.held | one.sent, sent=0, parcel=0) for client, one in after.standings.items()
        }
        return replace(after, standings=standings), parcels


class ProvesTheNewest(Downloads):
    """Planted: a reply to an earlier round counts for this one."""

    def learn(self, envelope):
        self._newer = lambda version: set()
        super().learn(envelope)
        del self._newer


class ForgetsToInvalidate(RoundDirectory):
    """Planted: a release makes no copy stale."""

    __slots__ = ()

    def write(self, keys):
        return replace(RoundDirectory.write(self, keys)[0], standings=self.standings), {}


class TrustsTheNode(ModelCopyStore):
    """Planted: computes from whatever the chunks that came make with those that it holds."""

    def take(self, card, spec, parts, chunks):
        held = self._held(spec.task)
        outline = Outline.from_bytes(parts["model"])
        arrays = _assembled(outline, chunks, {} if held is None else held.arrays)
        return super().take(card, replace(spec, model_digest=outline.digest(arrays)), parts, chunks)


class LagsWithoutBound(ModelCopyStore):
    """Planted: uses a copy that the holders vouch for, however old."""

    def take(self, card, spec, parts, chunks):
        held = self._held(spec.task)
        if held is not None and not chunks:
            return held
        return super().take(card, spec, parts, chunks)


LOST = Trouble(3, faults=1, kinds=frozenset({"loss"}))
SLOW = Trouble(3, faults=1, kinds=frozenset({"slow"}))
RESTART = Trouble(2, deaths=1)
PLANTED = [
    (SentIsHeld, LOST, "held without a reply that shows it"),
    (SentIsHeld, replace(LOST, refines=False), "what is not sent is not held, and the client lost nothing"),
    (ProvesTheNewest, SLOW, "held without a reply that shows it"),
    (ProvesTheNewest, replace(SLOW, refines=False), "what is not sent is not held, and the client lost nothing"),
    (ForgetsToInvalidate, LOST, "held without a reply that shows it"),
    (ForgetsToInvalidate, replace(LOST, refines=False), "what is not sent is not held"),
    (TrustsTheNode, RESTART, "a model that is not the round's"),
    (LagsWithoutBound, RESTART, "a model that is not the round's"),
]


@pytest.mark.parametrize(("fault", "trouble", "found"), PLANTED)
def test_a_planted_fault_of_the_round_protocol_is_found(fault, trouble, found):
    place = {RoundDirectory: "directory", Downloads: "downloads", ModelCopyStore: "room"}[fault.__mro__[1]]
    sides = replace(trouble.sides, **{place: fault})
    with pytest.raises(Violation, match=found):
        search_rounds(replace(trouble, sides=sides))


# --- the map to the searched directory


def test_the_register_goes_where_the_round_protocol_goes():
    check_step((3, 1, 0), (2, 0, 0), changed=1, read=0)
    check_step((3, 1, 0), (3, 1, 2), changed=0, read=2)
    check_step((3, 1, 0), (0, 1, 0), changed=0, read=0)


@pytest.mark.parametrize(
    ("before", "after", "changed", "read"),
    [((1, 0), (1, 0), 1, 0), ((1, 0), (3, 0), 0, 0), ((1, 0), (1, 1), 0, 2), ((0, 0), (0, 1), 1, 0)],
)
def test_what_is_no_step_of_the_register_is_found(before, after, changed, read):
    with pytest.raises(Violation):
        check_step(before, after, changed, read)


# --- is one world for many sound?


def one_form(trouble, faults, deaths, shared, parts):
    """A world as the search has it at the beginning of a round, whatever numbers it came with."""
    kept = deaths and trouble.sides.durable
    tidy = []
    for part in parts:
        heard = tuple(up for up in part.up if up.basis is not None or up.round.number == shared.round.number)
        tidy.append(part._replace(up=heard, before=part.before if kept else None))
    shared, parts = renumbered(shared, tuple(tidy), trouble.sides.staleness)
    return faults, deaths, shared, tuple(sorted(parts, key=repr))


@pytest.mark.parametrize("name", ["3 clients, one fault of any kind", "1 client, one message lost, s = 1"])
def test_walks_with_numbers_as_they_are_stay_within_the_worlds_that_the_search_met(name):
    trouble, search = ROUNDS[name], rounds_found(name).search
    met = {
        one_form(trouble, faults, deaths, search.shareds[shared], [search.parts[part] for part in parts])
        for faults, deaths, shared, parts in search.places
    }
    begun = 0
    for seed in range(8):
        draws, faults, deaths = random.Random(seed), trouble.faults, trouble.deaths
        first = Model(1, (1, 1))
        shared, parts = Shared(Round(0, first), (first,)), (Part(),) * trouble.clients
        for _ in range(60):
            n = draws.randrange(trouble.clients)
            steps = [
                (step, after)
                for step, after in search.steps(shared, parts[n], tracked=True)
                if step.fault <= faults and step.death <= deaths
            ]
            if steps:
                step, after = draws.choice(steps)
                parts = (*parts[:n], after, *parts[n + 1 :])
                faults, deaths = faults - step.fault, deaths - step.death
            elif not any(part.late(shared.round.number) for part in parts):
                shared, parts = search.world.next_round(shared, parts, draws.choice([None, 0, 1, 2, 3]))
                begun += 1
            assert one_form(trouble, faults, deaths, shared, parts) in met
    assert begun > 30


def test_other_numbers_keep_what_is_compared():
    old, lately, newest = Model(20, (3, 20)), Model(47, (46, 20)), Model(48, (46, 48))
    shared = Shared(Round(9, newest), (newest,))
    part = Part(Round(2, old), None, 47, (Down(Round(9, newest), 1, None),), (Up(Round(7, lately), lately),))
    small = Shared(Round(1, Model(3, (2, 3))), (Model(3, (2, 3)),))
    at, now = Round(0, Model(2, (2, 1))), small.round
    expected = Part(Round(0, Model(1, (1, 1))), None, 2, (Down(now, 1, None),), (Up(at, at.model),))
    assert renumbered(shared, (part,), 0) == (small, (expected,))
    assert renumbered(small, (expected,), 0) == (small, (expected,))
    wide, _ = renumbered(shared, (part,), 1)
    assert wide.round == Round(4, Model(5, (4, 5)))
