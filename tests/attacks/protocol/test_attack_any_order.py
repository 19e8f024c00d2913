"""Requests of every kind, in any order, to members with default limits.

Attacker: a lying node that tells tasks, asks for keys, updates, checks of boxes, confirmations and openings, closes
rounds, repeats and damages its requests, over two tasks and three rounds, while members restart. Success: a client
seals twice for one round; two rosters are answered in one round; a holder keeps the seed of a round that it opened;
anything but a typed refusal comes out. Control: with one check off, a short script of the same requests gets each of
these.
"""

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from kit.cohort import Size
from kit.crypto.attacker import Refused, asked, real_cohort
from kit.fuzz.mutations import Mutator
from kit.marks import MARKED

from fednode.protocol.boxkeys import BoxKeys, HolderKeys, box_name, client_indices
from fednode.protocol.chunks import Outline
from fednode.protocol.confirmations import Confirmations
from fednode.protocol.envelope import Envelope, Signed, Topic
from fednode.protocol.model import Layout
from fednode.protocol.requests import TaskCard, ask_frame, close_request, key_request, roster_part, spec_frame
from fednode.protocol.spec import RoundSpec, Terms
from fednode.reasons import Reason
from fednode.wire import join_parts
from fednode_clients.client.client import Client
from fednode_clients.holder.box_store import BoxStore
from fednode_clients.holder.holder import Holder
from fednode_clients.limits import MemberLimits

REASONS = {str(reason) for reason in Reason}


@dataclass(frozen=True)
class QuietSize(Size):
    """Rounds that cost little, so that default budgets allow several."""

    def terms(self) -> Terms:
        return replace(super().terms(), local_variance=1 << 24)

    __hash__ = Size.__hash__


SIZE = QuietSize(clients=4, holders=5, threshold=4, dimension=4, scheme="ring", min_survivors=3)
TASKS = st.sampled_from(["task-1", "task-1", "task-2"])
ROUNDS = st.integers(1, 3)
HOLDERS, CLIENTS = st.sampled_from(SIZE.holder_names), st.sampled_from(SIZE.client_names)
SOME = st.sets(CLIENTS, min_size=3)
MEMBERS = st.sampled_from(SIZE.client_names + SIZE.holder_names)


@cache
def model() -> tuple[Outline, dict[str, np.ndarray]]:
    array = np.arange(SIZE.dimension, dtype=np.float32)
    outline = Outline(Layout(("w",), ((SIZE.dimension,),)))
    return outline, {outline.chunks()[0].id: array}


class HostileNode(RuleBasedStateMachine):
    """All that the node has learned, and what members must never have done. `reached` has the kinds of all answers."""

    reached: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(os, "fsync", lambda _descriptor: None)
        self.cohort = real_cohort(Path(self._folder.name), SIZE, MemberLimits())
        self.keys: dict[tuple[str, int], dict[int, HolderKeys]] = {}
        self.specs: list[RoundSpec] = []
        self.updates: dict[bytes, dict[str, Envelope]] = {}
        self.confirmed: dict[tuple[bytes, frozenset[str]], dict[int, Signed]] = {}
        self.sealed: dict[tuple[str, str, int], bytes] = {}
        self.rosters: dict[tuple[str, int], frozenset[str]] = {}
        self.opened: list[tuple[str, str, int]] = []
        self.seeds: dict[tuple[str, str, int], bytes] = {}
        self.sent: list[tuple[str, bytes]] = []

    def teardown(self) -> None:
        self._patch.undo()
        self._folder.cleanup()

    def ask(self, name: str, frame: bytes, chunks: dict[str, np.ndarray] | None = None) -> Envelope | None:
        """The answer, or None for a refusal with a code that there is."""
        if chunks is None:
            self.sent.append((name, frame))
        try:
            said = asked(self.cohort, name, frame, chunks)
        except Refused as refused:
            if str(refused) not in REASONS:
                raise AssertionError(f"{name} refused as {refused}, which is no reason") from refused
            return None
        self.reached.add(said.head.kind)
        return said

    # --- what the node may ask

    @initialize()
    def begin(self) -> None:
        for task in ("task-1", "task-2"):
            for name in SIZE.client_names + SIZE.holder_names:
                self.tell(name, task, 4)

    @rule(name=MEMBERS, task=TASKS, threshold=st.sampled_from([3, 4, 4, 5]))
    def tell(self, name: str, task: str, threshold: int) -> None:
        card = TaskCard(task, self.cohort.cohort, replace(SIZE.sum_params(), threshold=threshold))
        self.ask(name, ask_frame("task", task, card.parts()))

    @rule(holder=HOLDERS, task=TASKS, number=ROUNDS)
    def ask_keys(self, holder: str, task: str, number: int) -> None:
        given, point = self.ask(holder, key_request(task, number)), self.point(holder)
        if given is not None:
            known = HolderKeys.verified(given, self.cohort.cohort, point, Topic(task, number))
            self.keys.setdefault((task, number), {})[point] = known
            kept = self.cohort.folder(holder).state.get(f"box-key/{task}")
            self.seeds[holder, task, number] = kept[8:]

    @rule(task=TASKS, number=ROUNDS, variant=st.integers(0, 2), names=SOME)
    def collect(self, task: str, number: int, variant: int, names: set[str]) -> None:
        """Keys from every holder, one spec of several for this round, updates, boxes."""
        for holder in SIZE.holder_names:
            self.ask_keys(holder, task, number)
        outline, chunks = model()
        keys = BoxKeys(self.keys.get((task, number), {}), client_indices(self.cohort.cohort))
        terms = replace(SIZE.terms(), divisor=1.0 + variant)
        arrays = {"w": next(iter(chunks.values()))}
        named = (outline.digest(arrays), self.cohort.cohort.digest(), keys.digest())
        spec = RoundSpec(task, number, number, *named, terms, SIZE.sum_params())
        if spec not in self.specs:
            self.specs.append(spec)
        for name in sorted(names):
            parts = {**keys.parts_of(name), "model": outline.to_bytes()}
            self.keep(spec, name, self.ask(name, spec_frame("round", spec, parts), chunks))
        for holder in SIZE.holder_names:
            self.send_boxes(holder, len(self.specs) - 1, names)

    def keep(self, spec: RoundSpec, name: str, update: Envelope | None) -> None:
        if update is not None:
            self.updates.setdefault(spec.digest(), {})[name] = update
            first = self.sealed.setdefault((name, spec.task, spec.round), update.to_bytes())
            if first != update.to_bytes():
                raise AssertionError(f"{name} sealed round {spec.round} of {spec.task} twice")

    def roster(self, spec: RoundSpec, names: set[str]) -> dict[str, Envelope]:
        had = self.updates.get(spec.digest(), {})
        return {name: had[name] for name in sorted(names) if name in had}

    def point(self, holder: str) -> int:
        return self.cohort.cohort.member(holder).point

    @rule(holder=HOLDERS, which=st.integers(0, 5), names=SOME)
    def send_boxes(self, holder: str, which: int, names: set[str]) -> None:
        if self.specs:
            spec = self.specs[which % len(self.specs)]
            roster, name = self.roster(spec, names), box_name(self.point(holder))
            boxes = {client: update.attached[name] for client, update in roster.items() if name in update.attached}
            heads = roster_part(update.signed for update in roster.values())
            self.ask(holder, spec_frame("boxes", spec, {"roster": heads, "boxes": join_parts(boxes)}))

    @rule(holders=st.sets(HOLDERS, min_size=1), which=st.integers(0, 5), names=SOME)
    def confirm(self, holders: set[str], which: int, names: set[str]) -> None:
        for holder in sorted(holders) if self.specs else ():
            spec = self.specs[which % len(self.specs)]
            roster = self.roster(spec, names)
            heads = roster_part(update.signed for update in roster.values())
            said = self.ask(holder, spec_frame("confirm", spec, {**MARKED, "roster": heads}))
            if said is not None:
                self.confirmed.setdefault((spec.digest(), frozenset(roster)), {})[self.point(holder)] = said.signed

    @rule(holders=st.sets(HOLDERS, min_size=1), which=st.integers(0, 5), names=SOME)
    def open(self, holders: set[str], which: int, names: set[str]) -> None:
        for holder in sorted(holders) if self.specs else ():
            spec = self.specs[which % len(self.specs)]
            roster = self.roster(spec, names)
            heads = roster_part(update.signed for update in roster.values())
            signed = Confirmations(self.confirmed.get((spec.digest(), frozenset(roster)), {}))
            parts = {**MARKED, "roster": heads, "request": bytes(spec.sum_params.request_bytes), **signed.parts()}
            if self.ask(holder, spec_frame("open", spec, parts)) is not None:
                self.opened.append((holder, spec.task, spec.round))
                first = self.rosters.setdefault((spec.task, spec.round), frozenset(roster))
                if first != frozenset(roster):
                    raise AssertionError(f"round {spec.round} of {spec.task} was answered over two rosters")

    @rule(task=TASKS, number=ROUNDS, variant=st.integers(0, 1), names=SOME, holders=st.sets(HOLDERS, min_size=4))
    def whole_round(self, task: str, number: int, variant: int, names: set[str], holders: set[str]) -> None:
        """As an honest node, up to the choice of who is asked."""
        self.collect(task, number, variant, names)
        self.confirm(holders, len(self.specs) - 1, names)
        self.open(holders, len(self.specs) - 1, names)

    @rule(holder=HOLDERS, task=TASKS, number=ROUNDS)
    def close(self, holder: str, task: str, number: int) -> None:
        self.ask(holder, close_request(task, number))

    @rule(name=MEMBERS)
    def restart(self, name: str) -> None:
        self.cohort.restart(name)

    @rule(name=MEMBERS, which=st.integers(0, 1_000), seed=st.integers(0, 1_000), damaged=st.booleans())
    def repeat(self, name: str, which: int, seed: int, damaged: bool) -> None:
        """An earlier request once more, to whom it was for or to another, as it was or changed."""
        first, frame = self.sent[which % len(self.sent)]
        sent = Mutator(Random(seed), [one for _, one in self.sent]).mutate(frame) if damaged else frame
        self.ask(first if seed % 2 else name, sent)

    # --- what must never have happened

    @invariant()
    def no_seed_of_an_opened_round_is_left(self) -> None:
        for holder, task, number in self.opened:
            seed = self.seeds.get((holder, task, number), b"")
            folder = self.cohort.root / "keys" / holder
            if seed and any(seed in path.read_bytes() for path in folder.rglob("*") if path.is_file()):
                raise AssertionError(f"{holder} keeps the seed of round {number} of {task}, which it opened")


def must_hold(examples: int, steps: int, same: bool) -> None:
    HostileNode.reached.clear()
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    chosen = settings(max_examples=examples, stateful_step_count=steps, derandomize=same, database=None, deadline=None)
    run_state_machine_as_test(HostileNode, settings=settings(chosen, suppress_health_check=checks))
    kinds = {"ready", "box-key", "update", "checked", "confirmed", "answer", "closed"}
    assert kinds - HostileNode.reached == set()


@pytest.mark.thorough
def test_no_order_of_requests_gets_more_than_one_roster_of_one_seal_each():
    must_hold(10, 12, same=True)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_no_long_order_of_requests_does_either():
    must_hold(150, 40, same=False)


# --- controls, and that the search gets anywhere

ALL, MOST = set(SIZE.client_names), set(SIZE.client_names[:3])
EVERYBODY = set(SIZE.holder_names)


@pytest.fixture
def hostile():
    node = HostileNode()
    node.begin()
    yield node
    node.teardown()


def test_an_honest_order_of_requests_opens_rounds(hostile):
    hostile.whole_round("task-1", 1, 0, ALL, EVERYBODY)
    hostile.whole_round("task-1", 2, 0, MOST, EVERYBODY)
    hostile.whole_round("task-2", 1, 0, ALL, EVERYBODY)
    assert len(hostile.opened) == 15 and len(hostile.rosters) == 3 and len(hostile.sealed) == 11
    hostile.no_seed_of_an_opened_round_is_left()


def test_control_a_client_that_forgets_seals_twice(hostile, monkeypatch):
    hostile.collect("task-1", 1, 0, ALL)
    hostile.collect("task-1", 1, 1, ALL)
    monkeypatch.setattr(Client, "_earlier", lambda *_: None)
    with pytest.raises(AssertionError, match="twice"):
        hostile.collect("task-1", 1, 1, ALL)


def test_control_holders_that_need_no_confirmations_answer_two_rosters(hostile, monkeypatch):
    hostile.collect("task-1", 1, 0, ALL)
    hostile.open(EVERYBODY, 0, ALL)
    assert hostile.opened == []
    monkeypatch.setattr(Holder, "_require_confirmed", lambda *_: None)
    hostile.open({"holder-1"}, 0, ALL)
    with pytest.raises(AssertionError, match="two rosters"):
        hostile.open({"holder-2"}, 0, MOST)


def test_control_a_holder_that_destroys_nothing_keeps_the_seed(hostile, monkeypatch):
    monkeypatch.setattr(BoxStore, "close", lambda *_: None)
    hostile.whole_round("task-1", 1, 0, ALL, EVERYBODY)
    with pytest.raises(AssertionError, match="keeps the seed"):
        hostile.no_seed_of_an_opened_round_is_left()


def test_control_an_error_that_is_no_refusal_comes_out(hostile, monkeypatch):
    def broken(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(Holder, "_require_unopened", broken)
    with pytest.raises(KeyError), suppress(Refused):
        hostile.whole_round("task-1", 1, 0, ALL, EVERYBODY)
