"""The numbers of docs/crypto.md are those of the estimator and of the planner."""

import math
import re
from fractions import Fraction
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest

from fednode.assemble import claims
from fednode.assemble.planning import plan_run
from fednode.settings import RunSettings, resolve
from fednode_crypto import Demand, SumParams, plan
from fednode_crypto.bfv.planner import SMUDGING_BITS
from fednode_crypto.hazmat.gaussian import convolution_error
from fednode_crypto.hazmat.lagrange import amplification, cleared, lagrange, lift, opening_growth
from fednode_crypto.hazmat.modular import is_prime, seal_primes
from fednode_crypto.noise import sampler_error
from fednode_crypto.ring.params import MASK_VARIANCE, PRIME_BITS, RingParams
from fednode_crypto.ring.planner import candidates
from fednode_crypto.tail_bounds import TASK_DRAWS, noise_tail
from scripts import security_estimate as estimate

ROOT = Path(__file__).resolve().parents[2]
LINES = (ROOT / "docs/crypto.md").read_text(encoding="utf-8").splitlines()
TEXT = " ".join(" ".join(LINES).split())
DECISION = " ".join((ROOT / "docs/adr/0008-ring-becomes-the-default.md").read_text(encoding="utf-8").split())

VARIANCE = Fraction(4096, 100)
VALUES, VALUE = 1_000_000, 2048
MOST_ROUNDS = RunSettings().max_rounds
CAUTIOUS = {4096: (45, 45), 8192: (44, 44, 45, 45)}


def test_the_table_of_bits_is_what_the_estimator_prints():
    shown = [line for line in LINES if re.match(r"\| [48],\d{3} \| (109|218) \|", line)]
    assert shown == list(estimate.rows())


def test_its_words_about_bits_agree_with_the_table():
    floors = [estimate.ring_lwe(degree, bits, 3.2, 3.2) for degree, bits in estimate.RINGS]
    bits = sorted(round(estimate.primal(lwe).core_svp) for lwe in floors)
    assert f"core-SVP gives it {bits[0]} to {bits[1]}" in TEXT
    first, second = (estimate.primal(lwe).samples for lwe in floors)
    assert f"{first:,} samples for N = 4096 and {second:,} for N = 8192" in TEXT
    assert max(first / 4096, second / 8192) < 2


def test_the_widths_and_the_losses_of_the_hint_are_computed():
    proven = ", ".join(f"{estimate.proven_width(h):.2f} for h = {h}" for h in estimate.HONEST)
    assert proven in TEXT.replace(" and ", " ")
    assert ", ".join(f"{estimate.conditional_width(h):.2f}" for h in estimate.HONEST) in TEXT
    loss = estimate.split_loss(3.2)
    assert f"that is 2^{loss:.1f}, and 2^{loss + math.log2(4096 * 50):.1f} for all" in TEXT
    step = loss + math.log2(4096 * 50)
    few, many = (step + math.log2((honest - 1) * MOST_ROUNDS) for honest in (100, 1000))
    assert f"lose 2^{few:.1f} with 100 honest survivors, and 2^{many:.1f} with 1,000" in TEXT
    of_sums = math.log2(convolution_error(VARIANCE, 0, VARIANCE))
    assert f"one itself up to 2^{math.ceil(of_sums)}" in TEXT


def demand(clients: int) -> Demand:
    return Demand(VALUES, clients, clients * VALUE, holders=5, threshold=4)


def ratio(params: SumParams) -> float:
    return params.upload_bytes / (4 * VALUES)


def cheapest(clients: int, degree: int) -> RingParams:
    """What the planner would take if it had this ring alone."""
    return min((p for p in candidates(demand(clients)) if p.ring_degree == degree), key=lambda p: p.upload_bytes)


def ring_row(clients: int) -> str:
    both = [cheapest(clients, degree) for degree in PRIME_BITS]
    cells = [f"{p.lanes} x {p.lane_bits}, {p.blocks}, {ratio(p):.2f}" for p in both]
    first = both[0]
    return f"| {clients:,} | {first.small:,} | {first.shift} | {first.share_prime:,} | {' | '.join(cells)} |"


@pytest.mark.parametrize("clients", [10, 100, 1000])
def test_the_planner_table_is_what_the_planner_finds(clients):
    assert ring_row(clients) in LINES
    assert plan("ring", demand(clients)) == min(map(partial(cheapest, clients), PRIME_BITS), key=ratio)


@pytest.mark.parametrize("clients", [10, 100, 1000])
def test_what_is_planned_keeps_the_inequalities_of_the_page(clients):
    params, value = plan("ring", demand(clients)), clients * VALUE
    bound, lanes, width, q = params.small, params.lanes, params.lane_bits, math.prod(params.primes)
    assert bound == noise_tail(clients * MASK_VARIANCE, TASK_DRAWS) and MASK_VARIANCE == VARIANCE
    assert value < 2 ** (width - 1) and 2**params.shift > 2 * bound
    assert (value << params.shift) * sum(1 << (width * i) for i in range(lanes)) + bound < q / 2
    assert 8 * (2 * bound + 1) * (2 * value + 1) ** lanes <= 7 * q
    assert is_prime(params.share_prime) and params.share_prime > 2 * bound
    numbers, bits = params.ring_degree + params.check_rows, params.share_prime.bit_length()
    boxes = 5 * (8 * -(-numbers * bits // 64) + 49)
    assert params.upload_bytes == params.payload_bytes + boxes


@pytest.mark.parametrize("clients", [10, 100, 1000])
def test_the_table_of_the_check_is_what_is_planned(clients):
    params = cheapest(clients, 4096)
    chance = params.check_rows * math.log2(params.share_prime)
    row = (
        f"| {clients:,} | {params.share_prime:,} | {params.check_rows} | 2^-{chance:.1f} | {params.check_bytes} | 24 |"
    )
    assert row in LINES and cheapest(clients, 8192).check_bytes == params.check_bytes
    assert {p.share_bytes - p.answer_bytes for p in (params, cheapest(clients, 8192))} == {24}


def cautious(clients: int, degree: int, sizes: tuple[int, ...]) -> float:
    """Bytes against float32, boxes included, by the inequalities of the page, with primes of these sizes."""
    like, value = cheapest(clients, degree), clients * VALUE
    room = math.prod(seal_primes(degree, sizes))
    lanes = 0
    while 2 * ((value << like.shift) * sum(1 << (like.lane_bits * i) for i in range(lanes + 1)) + like.small) < room:
        lanes += 1
    blocks = -(-VALUES // (lanes * degree))
    payload = blocks * degree * sum(sizes) // 8
    return (payload + like.upload_bytes - like.payload_bytes) / (4 * VALUES)


def test_what_128_bits_by_core_svp_would_cost():
    found = [estimate.largest_modulus(degree, 3.2, 128) for degree in CAUTIOUS]
    assert found == [sum(sizes) for sizes in CAUTIOUS.values()]
    few, many = (min(cautious(n, degree, sizes) for degree, sizes in CAUTIOUS.items()) for n in (100, 1000))
    assert f"log q at most {found[0]} or {found[1]}, and {few:.2f} and {many:.2f} of float32" in TEXT
    assert f"{few:.2f} and {many:.2f}" in DECISION
    now = [f"{ratio(plan('ring', demand(clients))):.2f}" for clients in (100, 1000)]
    assert f"sends {now[0]} (100 clients) and {now[1]} (1,000)" in DECISION


def test_the_bytes_of_the_default_run_are_the_plans():
    params = plan_run(resolve(None, {}, {"scheme": "ring"})).sum_params
    sizes = f"{params.dimension:,} values of {params.lane_bits} bits, sends {params.upload_bytes:,} bytes"
    assert f"{sizes}, {params.upload_bytes / (4 * params.dimension):.2f} of float32" in TEXT


def compare_row(clients: int) -> str:
    ring, bfv = (ratio(plan(scheme, demand(clients))) for scheme in ("ring", "bfv"))
    willow = {100: "0.85, 16 bits (N)", 1000: "0.95, 16 bits (N)"}[clients]
    others = f"2.0 (N) | {willow} | 14.4 (N)"
    return f"| bytes up, n = {clients:,} | {ring:.2f} (P) | {bfv:.1f} (P) | {others} |"


@pytest.mark.parametrize("clients", [100, 1000])
def test_the_comparison_has_the_planners_bytes(clients):
    assert compare_row(clients) in LINES


def measured(row: str) -> list[float]:
    """A client's milliseconds at 1,000,000 values, as docs/benchmarks.md has them."""
    lines = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [float(c[5].replace(",", "")) for c in cells if c[:2] == [row, "1,000,000"]]


def test_the_comparison_has_the_times_that_were_measured_last():
    (shown,) = [line for line in LINES if line.startswith("| client's time |")]
    ring, bfv, secagg, ckks = map(measured, ("ring", "bfv", "secagg", "ckks"))
    assert f"| {min(ring):.0f} to {max(ring):.0f} ms (M)" in shown
    assert f"| {min(bfv) / 1000:.2f} to {max(bfv) / 1000:.2f} s at N = 8192 (M) |" in shown
    assert f"| {min(secagg) / 1000:.2f} to {max(secagg) / 1000:.2f} s (M) |" in shown
    assert f"| {max(ckks) / 1000:.1f} s (M) |" in shown


def test_only_the_floor_is_called_proven():
    rows = [line for line in LINES if re.match(r"\| [48],\d{3} \| (109|218) \|", line)]
    assert {row.split(" | ")[2] for row in rows if " proven " in row} == {"2"}
    report = claims.STRENGTH
    assert "96 to 98 by core-SVP" in report["ring"] and "core-SVP gives it 96 to 98" in TEXT
    bfv = {row.split(" | ")[6] for row in rows if "`bfv`" in row}
    assert bfv == {"95"} and "95 by core-SVP" in report["bfv"]


def test_the_denominators_of_bfv_are_those_of_the_code():
    least = max(cleared(lagrange(points))[0] for points in combinations(range(1, 6), 4))
    squares = opening_growth(5, 4)[1]
    assert (
        f"M = {lift(5, 4)}, D at most {least}, M / λ_i at most {amplification(5, 4)}, Σ (D λ_i)² at most {squares}"
    ) in TEXT
    assert f"standard deviation 2^{SMUDGING_BITS} times" in TEXT


@pytest.mark.parametrize(("threshold", "corrupt", "safe"), [(4, 2, True), (4, 3, False), (3, 0, True), (3, 1, False)])
def test_two_rosters_need_more_answers_than_there_are(threshold, corrupt, safe):
    honest = 5 - corrupt
    # the best a node can do: corrupt holders answer both rosters, each honest one is put under one of them
    both_open = any(min(corrupt + a, corrupt + honest - a) >= threshold for a in range(honest + 1))
    assert both_open is not safe
    assert safe is (2 * threshold - 5 > corrupt)


def test_two_ternary_secrets_are_given_away_as_often_as_the_page_says():
    pairs = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
    unique = [p for p in pairs if sum(1 for other in pairs if sum(other) == sum(p)) == 1]
    assert len(unique) == 2 and len(pairs) == 9 and "two coefficients in nine" in TEXT


@pytest.mark.parametrize("width", [estimate.WIDTH, 3.2])
def test_the_sampler_is_as_near_to_the_gaussian_as_the_page_says(width):
    assert sampler_error(Fraction(round(width * 10) ** 2, 100)) < 2.0**-130 and "within 2^-130 of χ" in TEXT
