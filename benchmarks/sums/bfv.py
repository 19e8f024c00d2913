"""Row `bfv`: the reference scheme, through the same interface that a run uses."""

from typing import Final

from benchmarks.harness.timing import Stopwatch
from benchmarks.harness.worker import peak_bytes
from benchmarks.sums.cases import FOLDED, HOLDERS, THRESHOLD, Case, Figures, check_sum, some_values
from fednode_crypto import Demand, SumParams, SystemRng, plan
from fednode_crypto.bfv.keys import BfvKey, BfvShare
from fednode_crypto.bfv.scheme import Bfv

_TASK: Final = b"fednode bench"


def planned(case: Case) -> SumParams:
    """Return the cheapest parameters for a full cohort of values of `VALUE_BITS`."""
    return plan("bfv", Demand(case.dimension, case.clients, case.largest_sum, HOLDERS, THRESHOLD))


def measure(case: Case, watch: Stopwatch) -> Figures:
    """Time sealing, folding, one holder's answer, and opening; checks first that the sum is exact."""
    params, rng, bfv = planned(case), SystemRng(), Bfv()
    key, shares = _committee(params)
    sealer = bfv.sealer(params, key)
    updates = [some_values(case, client) for client in range(min(FOLDED, case.clients))]
    payloads = [sealer.seal(update, rng).payload for update in updates]
    total = bfv.zero(params)
    for payload in payloads:
        total.absorb(payload)
    request = total.request()
    answers = {p: bfv.answer(params, shares[p], request, rng) for p in range(1, THRESHOLD + 1)}
    check_sum(bfv.combine(params, total, answers), updates)
    base = bfv.zero(params).add(payloads[0])
    return Figures(
        bytes_up=len(payloads[0]),
        bytes_down=case.float_bytes,
        client=watch.time(lambda: sealer.seal(updates[0], rng)),
        node=watch.time(lambda: base.add(payloads[0])),
        opening=watch.time(lambda: bfv.combine(params, total, answers)),
        holder_bytes=len(request) + len(answers[1]),
        holder=watch.time(lambda: bfv.answer(params, shares[1], request, rng)),
        peak_bytes=peak_bytes(),
    )


def _committee(params: SumParams) -> tuple[BfvKey, dict[int, BfvShare]]:
    bfv, points = Bfv(), range(1, HOLDERS + 1)
    made = {point: bfv.contribute(params, _TASK, point, SystemRng()) for point in points}
    reveals = {point: one.reveal() for point, one in made.items()}
    key = bfv.joint_key(params, _TASK, reveals, {point: one.commitment for point, one in made.items()})
    sent = {point: one.shares() for point, one in made.items()}
    shares = {point: bfv.join(params, _TASK, {j: of[point] for j, of in sent.items()}) for point in points}
    return key, shares
