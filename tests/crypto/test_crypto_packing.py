"""Values to slots and back, and residues to bytes and back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.crypto.committee import updates_for
from kit.crypto.insecure import InsecureRng

from fednode_crypto import Demand, Overflow, SumParams, Tampered, plan
from fednode_crypto.bfv.slots import from_slots, to_slots
from fednode_crypto.encoding import from_bytes, size_of, to_bytes
from fednode_crypto.hazmat.modular import seal_primes
from fednode_crypto.hazmat.ntt import ring
from fednode_crypto.hazmat.uniform import uniform_rows


def params_for(dimension: int, value_bound: int) -> SumParams:
    return plan("bfv", Demand(dimension, 6, value_bound, holders=3, threshold=2))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60_000), st.integers(6, 2**40), st.integers(1, 6), st.integers(0, 2**32))
def test_slots_add_up_as_values_do(dimension: int, value_bound: int, clients: int, seed: int) -> None:
    params = params_for(dimension, value_bound)
    updates = updates_for(params, clients, seed)
    slots = sum(to_slots(u, params) for u in updates)
    assert slots.shape == (params.blocks, params.ring_degree)
    assert np.abs(slots).max() <= params.plain_modulus // 2
    assert np.array_equal(from_slots(slots, params), sum(updates))


def test_bounds_fit_in_every_lane() -> None:
    params = params_for(60_000, 2**19 - 1)
    assert params.lanes >= 2
    for value in (-params.value_bound, params.value_bound):
        values = np.full(params.dimension, value)
        assert np.array_equal(from_slots(to_slots(values, params), params), values)
    with pytest.raises(Overflow):
        to_slots(np.full(params.dimension, params.value_bound + 1), params)


def test_slots_that_no_values_make_are_refused() -> None:
    params = params_for(60_000, 300_000)
    honest = to_slots(np.ones(params.dimension, dtype=np.int64), params)
    room = params.blocks * params.ring_degree
    assert params.dimension < params.lanes * room
    beyond, unused = honest.copy(), honest.copy()
    beyond[0, 0] += params.value_bound
    unused.reshape(-1)[-1] += 1 << ((params.lanes - 1) * params.lane_bits)
    overfull = honest.copy()
    overfull[0, 0] += 1 << (params.lanes * params.lane_bits)
    for bad in (beyond, unused, overfull):
        with pytest.raises(Tampered):
            from_slots(bad, params)


@pytest.mark.parametrize("bits", [(46, 46, 46), (46, 46, 59), (60,), (30, 31)])
@pytest.mark.parametrize("lead", [(), (3,), (2, 2)])
def test_residues_survive_and_take_their_bits_only(bits: tuple[int, ...], lead: tuple[int, ...]) -> None:
    r = ring(64, seal_primes(64, bits))
    rows = uniform_rows(r.primes, (*lead, 64), InsecureRng(1))
    data = to_bytes(rows, r)
    assert len(data) == size_of(r, lead) == int(np.prod(lead)) * 64 * sum(bits) // 8
    assert np.array_equal(from_bytes(data, r, lead), rows)


def test_bytes_of_another_size_or_range_are_refused() -> None:
    r = ring(64, seal_primes(64, (46, 59)))
    rows = uniform_rows(r.primes, (64,), InsecureRng(1))
    data = to_bytes(rows, r)
    for bad in (b"", data[:-1], data + b"\0", bytearray(data), None):
        with pytest.raises(Tampered, match="size"):
            from_bytes(bad, r)  # type: ignore[arg-type]
    for row, p in enumerate(r.primes):
        for value in (p, (1 << p.bit_length()) - 1):
            rows[row, 63], kept = value, rows[row, 63]
            with pytest.raises(Tampered, match="range"):
                from_bytes(to_bytes(rows, r), r)
            rows[row, 63] = kept
