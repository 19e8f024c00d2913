"""Many rounds and many tasks that no ledger holds: the node spends a client's privacy without its word.

Attacker: a lying node, which chooses every task (scheme, committee, name), every round's terms (clip, grid, noise,
least survivors, assumed colluders, staleness) and their order, 1,000 rounds long, and tries cheaper rounds once dear
ones are refused. The client has the default limits. Success: what the client joined composes to more than its epsilon
of 8 at delta 1e-5, by its record or by what the terms that it accepted really hide. Control: without the budget the
same rounds cost far more.
"""

import math
import random
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.cohort import FakeSum, Size
from kit.crypto.plainsum import InsecureBoxedSum

from fednode.errors import PeerFault, StoreError
from fednode.members import member_names
from fednode.privacy import DiscreteGaussianSum, epsilon
from fednode.protocol.cohort import Cohort
from fednode.protocol.model import Basis
from fednode.protocol.requests import TaskCard, ask_frame
from fednode.protocol.spec import RoundSpec, Terms
from fednode.reasons import Reason
from fednode_clients.client.client import Client, _JoinedRound
from fednode_clients.keyfolder.audit_log import AuditLog
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.retire import retire
from fednode_clients.limits import MemberLimits
from fednode_crypto import Demand, SumParams, SystemRng, plan
from fednode_crypto.identity import SigningKey

CLIENTS, DELTA, EPSILON = 6, 1e-5, 8.0
SIZE = Size(clients=CLIENTS, holders=3, threshold=3, dimension=4, scheme="ring")
SUMS = {"ring": ("ring", 3), "low": ("ring", 2), "bfv": ("bfv", 3)}
"""The secure sums that the node may name: scheme and threshold of three holders."""


@cache
def sum_params(kind: str) -> SumParams:
    scheme, threshold = SUMS[kind]
    return plan(scheme, Demand(SIZE.dimension, CLIENTS, 1 << 18, 3, threshold))


@dataclass(frozen=True)
class Offer:
    """One round as the node chooses it; `z` is the noise of one client over clip and rounding."""

    task: int
    sum: str = "ring"
    clip: float = 1.0
    grid_bits: int = 8
    z: float = 1.0
    min_survivors: int = CLIENTS
    colluders: int = 0
    staleness: int = 0
    skipped: int = 0

    def terms(self) -> Terms:
        stddev = self.z * self.clip * 2.0**self.grid_bits
        return replace(
            SIZE.terms(),
            clip=self.clip,
            grid_bits=self.grid_bits,
            local_variance=max(1, round(stddev**2)),
            max_records=1,
            min_survivors=self.min_survivors,
            assumed_colluders=min(self.colluders, self.min_survivors - 1),
            staleness=self.staleness,
        )


OFFERS = st.builds(
    Offer,
    task=st.integers(0, 3),
    sum=st.sampled_from(["ring", "ring", "ring", "ring", "low", "bfv"]),
    clip=st.sampled_from([0.01, 0.5, 1.0, 3.0]),
    grid_bits=st.sampled_from([0, 4, 8]),
    z=st.floats(0.1, 20.0),
    min_survivors=st.integers(1, CLIENTS + 1),
    colluders=st.integers(0, CLIENTS),
    staleness=st.sampled_from([0, 0, 0, 1]),
    skipped=st.integers(0, 3),
)


def random_offer(rng: random.Random, number: int) -> Offer:
    """Dear rounds first, cheaper ones later, so that every gap is tried."""
    z = rng.uniform(0.3, 3.0) * (1.0 + number / 50.0)
    return Offer(rng.randrange(8), "ring", rng.choice([0.5, 1.0]), 6, z, rng.randint(2, CLIENTS), rng.randrange(4))


@dataclass
class Victim:
    """A client, and what it joined, in the node's own words. What it seals is of no interest here."""

    root: Path
    limits: MemberLimits = field(default_factory=MemberLimits)
    joined: list[RoundSpec] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        key = SigningKey.generate()
        names = [("client", name) for name in member_names("client", CLIENTS)]
        names += [("holder", name) for name in member_names("holder", 3)]
        self.folders = {name: KeyFolder.create(self.root / name, name, key.public) for _, name in names}
        points = iter((1, 2, 3))
        members = [self.folders[n].member(role, 0 if role == "client" else next(points)) for role, n in names]
        self.cohort = Cohort.enrol(members, key, SigningKey.generate().public)
        self.folder, self.rounds = self.folders["client-1"], 0
        self.restart()

    def restart(self) -> None:
        self.client = Client(self.folder, self.limits, lambda _: InsecureBoxedSum(), SystemRng())

    def offer(self, offer: Offer) -> None:
        """Ask it for one round; refusals are noted."""
        try:
            params = sum_params(offer.sum)
            task = f"task-{offer.task}-{offer.sum}"
            self.client.take_task(ask_frame("task", task, TaskCard(task, self.cohort, params).parts()))
            self.rounds += 1 + offer.skipped
            spec = RoundSpec(task, self.rounds, 1, bytes(32), self.cohort.digest(), bytes(32), offer.terms(), params)
            self.client._check(spec)
            self.client._earlier(spec)
            self.client._joined = {spec.digest(): _JoinedRound({}, Basis(1, bytes(32)))}
            self.client.answer(spec, lambda: FakeSum(np.zeros(4), 1, spec.terms.clip))
        except PeerFault as fault:
            self.refused.add(fault.reason)
        else:
            self.joined.append(spec)

    def events(self) -> list[DiscreteGaussianSum]:
        """What its record says that it joined."""
        found = []
        for entry in self.folder.audit_log.entries():
            found += [DiscreteGaussianSum.from_dict(entry["cost"])] * entry.get("rounds", 1)
        return found


def really_hidden(specs: list[RoundSpec]) -> float:
    """delta at epsilon 8 of the noise that the accepted terms leave, with one colluder or as many as they name.

    Counted here by hand, from the terms alone: mu^2 adds up, the sensitivity is the clip without rounding, and the
    profile is that of Balle and Wang 2018, Theorem 8. The member's own count may be larger, never smaller.
    """
    square, normal = 0.0, NormalDist()
    for spec in specs:
        terms = spec.terms
        honest = max(1, terms.min_survivors - max(1, terms.assumed_colluders))
        square += (terms.clip * 2.0**terms.grid_bits) ** 2 / (honest * terms.local_variance)
    mu = math.sqrt(square)
    if mu == 0.0:
        return 0.0
    low = normal.cdf(-mu / 2.0 - EPSILON / mu)
    return normal.cdf(mu / 2.0 - EPSILON / mu) - (math.exp(EPSILON + math.log(low)) if low > 0.0 else 0.0)


def attacked(root: Path, limits: MemberLimits, rounds: int) -> Victim:
    victim, rng = Victim(root, limits), random.Random(7)
    for number in range(rounds):
        victim.offer(random_offer(rng, number))
    return victim


@pytest.mark.thorough
def test_a_thousand_rounds_of_the_nodes_choice_cost_no_more_than_the_member_allows(tmp_path):
    victim = attacked(tmp_path, MemberLimits(), 1_000)
    events = victim.events()
    assert len(events) == len(victim.joined) > 10 and Reason.BUDGET in victim.refused
    assert 7.8 < epsilon(events, DELTA) <= EPSILON
    assert really_hidden(victim.joined) <= DELTA
    # neither a restart nor closing the tasks gives anything back
    victim.restart()
    retire(victim.folder)
    left = len(victim.joined)
    for number in range(20):
        victim.offer(Offer(task=100 + number, z=1.0))
    assert len(victim.joined) == left and epsilon(victim.events(), DELTA) <= EPSILON


def spent(root: Path) -> Victim:
    """A client with nothing left, whose disk then lost the record and its head."""
    victim = Victim(root)
    while Reason.BUDGET not in victim.refused:
        victim.offer(Offer(0))
    (victim.folder.path / "record.jsonl").unlink()
    shutil.rmtree(victim.folder.path / "state")
    victim.refused.clear()
    victim.restart()
    return victim


def test_a_record_that_is_lost_together_with_its_head_gives_nothing_back(tmp_path):
    victim = spent(tmp_path)
    joined = list(victim.joined)
    for task in (0, 1):
        with pytest.raises(StoreError, match="retire"):
            victim.offer(Offer(task))
    retire(victim.folder)
    victim.restart()
    for number in range(5):
        victim.offer(Offer(2, z=3.0 + number))
    assert (victim.joined, victim.refused) == (joined, {Reason.BUDGET}) and len(joined) > 10


@pytest.mark.parametrize("closing", [True, False])
def test_control_without_a_look_at_the_marks_the_budget_is_back(tmp_path, monkeypatch, closing):
    monkeypatch.setattr(AuditLog, "_marked", lambda _: False)
    victim = spent(tmp_path)
    before = len(victim.joined)
    if closing:
        retire(victim.folder)
    while Reason.BUDGET not in victim.refused:
        victim.offer(Offer(1))
    assert len(victim.joined) == 2 * before and really_hidden(victim.joined) > 10 * DELTA


def test_control_without_the_budget_the_same_rounds_cost_far_more(tmp_path):
    victim = attacked(tmp_path, MemberLimits(max_epsilon=math.inf), 60)
    assert len(victim.joined) > 30 and Reason.BUDGET not in victim.refused
    assert epsilon(victim.events(), DELTA) > 2 * EPSILON and really_hidden(victim.joined) > 100 * DELTA


@pytest.mark.thorough
@given(st.lists(OFFERS, min_size=1, max_size=40), st.sets(st.integers(0, 39), max_size=3))
@settings(max_examples=30, deadline=None)
def test_no_choice_of_scheme_committee_floors_colluders_or_terms_costs_more(offers, breaks):
    """In `breaks` the owner closes all tasks, or the process starts anew."""
    with tempfile.TemporaryDirectory() as root:
        victim = Victim(Path(root))
        for number, offer in enumerate(offers):
            if number in breaks:
                retire(victim.folder)
                victim.restart()
            # the name of a closed task is of no use any more
            victim.offer(replace(offer, task=offer.task + 10 * sum(at <= number for at in breaks)))
        events = victim.events()
        assert len(events) == len(victim.joined)
        assert epsilon(events, DELTA) <= EPSILON and really_hidden(victim.joined) <= DELTA
        for spec in victim.joined:
            assert (spec.sum_params.scheme, spec.sum_params.threshold, spec.terms.staleness) == ("ring", 3, 0)
            assert spec.terms.min_survivors - spec.terms.assumed_colluders >= 2


def test_the_search_does_join_rounds_of_every_kind(tmp_path):
    """The search would find nothing if nothing were joined, or only one reason ever refused."""
    victim = Victim(tmp_path)
    for offer in (Offer(0, z=3.0), Offer(1, z=9.0, grid_bits=4, clip=3.0, colluders=3), Offer(0, z=6.0, skipped=2)):
        victim.offer(offer)
    assert len(victim.joined) == 3
    for offer in (
        Offer(0, z=0.01),
        Offer(0, sum="bfv"),
        Offer(0, sum="low"),
        Offer(0, min_survivors=2, colluders=1),
        Offer(0, staleness=1),
        Offer(0, z=0.3, min_survivors=2),
    ):
        victim.offer(offer)
    assert {"noise-floor", "scheme-floor", "low-threshold", "min-survivors", "staleness"} <= victim.refused
