"""What the scheme `ring` must hold, each limit with the figure it is held against."""

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.harness.suite import Measured
from benchmarks.harness.verdicts import LimitCheck, Verdict, figure, with_broken
from benchmarks.sums.cases import CHECK_BOX, CHECK_CLIENT, CHECK_HEAD, CHECK_HOLDER, FLOAT_BYTES, ConfirmStep

DIMENSION: Final = 1_000_000
"""Values an update that times and bytes are judged at: a fold of 1 s is a rate of one million values a second."""

COHORTS: Final = (10, 100, 1_000)
ROUNDS: Final = 10_000


def judged(measured: Measured) -> tuple[Verdict, ...]:
    """Return the eight verdicts, the last two by limits of our own.

    Times that depend on the cohort are judged at their worst over the measured cohorts.
    """
    found = _Found(measured.answers)
    rounds = measured.answers.get("exact", {}).get("rounds", ROUNDS)
    verdicts = (
        Verdict("ring", "ring: bytes a client, boxes and signatures included", (
            LimitCheck("n = 100", figure(lambda: found.upload(100)), "<=", 0.75, "x float32"),
            LimitCheck("n = 1,000", figure(lambda: found.upload(1_000)), "<=", 0.90, "x float32"),
        )),
        Verdict("ring", "ring: pack, mask, share, box and sign", (
            LimitCheck("one core", figure(lambda: 1e3 * found.worst("client")), "<=", 60.0, "ms"),
            LimitCheck("faster than CKKS", figure(lambda: found.best_ckks() / found.worst("client")), ">=", 25.0, "x"),
        )),
        Verdict("ring", "ring: fold on the node", (
            LimitCheck("one core", figure(lambda: 1.0 / found.worst("node")), ">=", 600.0, "million values a second"),
        )),
        Verdict("ring", "ring: opening", (
            LimitCheck("without the holders' part", figure(lambda: found.worst("opening")), "<=", 0.25, "s"),
            LimitCheck("a holder at 100 clients", figure(found.holder), "<=", 60.0, "ms"),
        )),
        Verdict("memory", "node's peak memory", (
            LimitCheck("1,000 clients against 10", figure(found.memory), "<=", 1.1, "x"),
        )),
        Verdict("exact", "exact", (
            LimitCheck(f"differences in {rounds:,} rounds", figure(found.differences), "<=", 0),
        )),
        Verdict("confirm", "ring: a holder confirms the roster", (
            LimitCheck("at 100 clients", figure(lambda: 1e3 * found.confirm().holder.median), "<=", 60.0, "ms"),
            LimitCheck("a client", figure(lambda: found.confirm().total / 100), "<=", 1_024.0, "bytes"),
        )),
        Verdict("ring", "ring: the check of shares at 100 clients", (
            LimitCheck("client", figure(lambda: 1e3 * found.part(CHECK_CLIENT)), "<=", 3.0, "ms"),
            LimitCheck("holder, box opened", figure(lambda: 1e3 * found.part(CHECK_HOLDER)), "<=", 3.0, "ms a client"),
            LimitCheck("head", figure(lambda: found.part(CHECK_HEAD)), "<=", 100.0, "bytes"),
            LimitCheck("a box", figure(lambda: found.part(CHECK_BOX)), "<=", 300.0, "bytes more"),
        )),
    )  # fmt: skip
    return with_broken(verdicts, measured.broken)


class _Found:
    """The judged figures; each method raises LookupError where this run did not measure its figure in full."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers = answers

    def upload(self, clients: int) -> float:
        return float(self._answers["ring"][DIMENSION, clients].bytes_up / (FLOAT_BYTES * DIMENSION))

    def worst(self, role: str) -> float:
        return max(self._medians("ring", role))

    def best_ckks(self) -> float:
        return min(self._medians("ckks", "client"))

    def _medians(self, row: str, role: str) -> list[float]:
        measured = self._answers[row]
        found = [getattr(measured[DIMENSION, n], role).median for n in COHORTS if (DIMENSION, n) in measured]
        if not found:
            raise LookupError(row)
        return found

    def holder(self) -> float:
        return float(1e3 * self._answers["ring"][DIMENSION, 100].holder.median)

    def part(self, name: str) -> float:
        return float(self._answers["ring"][DIMENSION, 100].parts[name])

    def memory(self) -> float:
        row = self._answers["memory"]
        if (row["dimension"], row["few"], row["many"]) != (DIMENSION, COHORTS[0], COHORTS[-1]):
            raise LookupError("memory")
        return float(row["peak_many"] / row["peak_few"])

    def differences(self) -> float:
        row = self._answers["exact"]
        if not row["differences"] and row["rounds"] < ROUNDS:
            raise LookupError("exact")
        return float(row["differences"])

    def confirm(self) -> ConfirmStep:
        step: ConfirmStep = self._answers["confirm"][100]
        return step
