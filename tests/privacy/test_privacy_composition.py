"""Clients hold disjoint data: the price is that of the client that paid most, whatever rosters a node chooses."""

import math
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.clocks import FakeClock

from fednode.errors import BudgetExhausted
from fednode.privacy import (
    Budget,
    ChargeRecord,
    DiscreteGaussianSum,
    Ledger,
    dearest,
    epsilon,
    gaussian_epsilon_of_mu,
    gaussian_mu,
    group_epsilon,
    paid_by_client,
)

DELTA = 1e-5
NAMES = tuple(f"client-{number}" for number in range(5))
EVENT = DiscreteGaussianSum(clip=1.0, grid_bits=16, dimension=100, local_variance=2**36, contributors=2, failure=0.0)

ROSTERS = st.lists(
    st.tuples(st.sets(st.sampled_from(NAMES), min_size=2).map(sorted), st.integers(34, 38)), min_size=1, max_size=12
)


def charges_of(rosters: list[tuple[list[str], int]]) -> list[ChargeRecord]:
    return [
        ChargeRecord(number, replace(EVENT, local_variance=2**bits), tuple(roster), 0.0, 0.0, "run")
        for number, (roster, bits) in enumerate(rosters, start=1)
    ]


def events_of(charges: list[ChargeRecord], client: str) -> list[DiscreteGaussianSum]:
    return [charge.event for charge in charges if client in charge.survivors]


@settings(max_examples=60, deadline=None)
@given(rosters=ROSTERS)
def test_the_price_is_the_largest_of_what_each_client_paid(rosters):
    charges = charges_of(rosters)
    paid = paid_by_client(charges, DELTA)
    assert paid == {name: epsilon(events_of(charges, name), DELTA) for name in NAMES if events_of(charges, name)}
    assert epsilon(dearest(charges), DELTA) == pytest.approx(max(paid.values()), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(rosters=ROSTERS, size=st.integers(2, 3))
def test_a_group_at_several_clients_pays_no_more_than_the_group_figure(rosters, size):
    charges = charges_of(rosters)
    most = size * gaussian_mu(dearest(charges))
    for group in combinations(NAMES, size):
        moved = [sum(name in charge.survivors for name in group) * charge.event.mu for charge in charges]
        assert math.hypot(*moved) <= most * (1 + 1e-12)
    # it is met where all of the group are in every round
    whole = charges_of([(list(NAMES), bits) for _, bits in rosters])
    met = math.hypot(*(size * charge.event.mu for charge in whole))
    assert met == pytest.approx(size * gaussian_mu(dearest(whole)))
    assert group_epsilon(dearest(whole), DELTA, size) == pytest.approx(gaussian_epsilon_of_mu(met, DELTA), rel=1e-6)


def test_a_node_that_chooses_rosters_to_spend_most_brings_no_client_above_the_limit(tmp_path):
    """Greedy: each round goes to the four clients that have paid least, then to those that still have room."""
    limit = 3.0
    with Ledger.open(tmp_path / "ledger.jsonl", Budget(limit, DELTA), FakeClock(), "run") as ledger:
        number, refused = 0, set()
        while len(refused) < len(NAMES):
            paid = paid_by_client([entry.charge for entry in ledger.entries], DELTA)
            roster = sorted(set(NAMES) - refused, key=lambda name: (paid.get(name, 0.0), name))[:4]
            roster += sorted(refused)[: max(0, 2 - len(roster))]
            try:
                ledger.charge(EVENT, number + 1, tuple(roster))
                number += 1
            except BudgetExhausted:
                refused |= {max(roster, key=lambda name: paid.get(name, 0.0))}
        charges = [entry.charge for entry in ledger.entries]
        paid = paid_by_client(charges, DELTA)
        assert 0.9 * limit < max(paid.values()) <= limit
        # more was opened than one client alone could pay for
        assert epsilon([charge.event for charge in charges], DELTA) > limit
        assert ledger.spent == pytest.approx(max(paid.values()), rel=1e-12)
