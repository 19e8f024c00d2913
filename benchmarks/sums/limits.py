"""What the scheme `ring` must hold, each limit with the figure it is held against."""

from collections.abc import Callable
from typing import Final

from benchmarks.harness.verdicts import Check, Verdict
from benchmarks.sums.cases import Case, Figures
from benchmarks.sums.report import Measured

DIMENSION: Final = 1_000_000
COHORTS: Final = (10, 100, 1_000)
ROUNDS: Final = 10_000

_BYTES: Final = {100: 0.75, 1_000: 0.90}
_CLIENT_MS: Final = 60.0
_FASTER: Final = 25.0
_FOLD: Final = 600.0
_OPENING: Final = 0.25
_HOLDER_MS: Final = 60.0
_HOLDER_COHORT: Final = 100
_MEMORY: Final = 1.1
_CONFIRM_MS: Final = 60.0
_CONFIRM_BYTES: Final = 1_024.0


def judged(measured: Measured) -> tuple[Verdict, ...]:
    """Return the seven verdicts, the last by limits of our own.

    Times that depend on the cohort are judged at their worst over the measured cohorts.
    """
    return (
        _bytes(measured),
        _client(measured),
        _fold(measured),
        _opening(measured),
        _memory(measured),
        _exact(measured),
        _confirm(measured),
    )


def _bytes(measured: Measured) -> Verdict:
    checks = []
    for clients, limit in _BYTES.items():
        figures = measured.get("ring", DIMENSION, clients)
        ratio = None if figures is None else figures.bytes_up / Case(DIMENSION, clients).float_bytes
        checks.append(Check(f"n = {clients:,}", ratio, "<=", limit, "x float32"))
    return Verdict("ring: bytes a client, boxes and signatures included", tuple(checks))


def _client(measured: Measured) -> Verdict:
    seconds = _worst(measured, lambda figures: figures.client.median)
    ckks = [f.client.median for n in COHORTS if (f := measured.get("ckks", DIMENSION, n)) is not None]
    faster = min(ckks) / seconds if ckks and seconds else None
    return Verdict(
        "ring: pack, mask, share, box and sign",
        (
            Check("one core", None if seconds is None else 1e3 * seconds, "<=", _CLIENT_MS, "ms"),
            Check("faster than CKKS", faster, ">=", _FASTER, "x"),
        ),
    )


def _fold(measured: Measured) -> Verdict:
    seconds = _worst(measured, lambda figures: figures.node.median)
    rate = DIMENSION / seconds / 1e6 if seconds else None
    return Verdict("ring: fold on the node", (Check("one core", rate, ">=", _FOLD, "million values a second"),))


def _opening(measured: Measured) -> Verdict:
    seconds = _worst(measured, lambda figures: figures.opening.median)
    figures = measured.get("ring", DIMENSION, _HOLDER_COHORT)
    holder = None if figures is None or figures.holder is None else 1e3 * figures.holder.median
    return Verdict(
        "ring: opening",
        (
            Check("without the holders' part", seconds, "<=", _OPENING, "s"),
            Check(f"a holder at {_HOLDER_COHORT} clients", holder, "<=", _HOLDER_MS, "ms"),
        ),
    )


def _memory(measured: Measured) -> Verdict:
    found = measured.memory
    ratio = None
    if found is not None and (found.dimension, found.few, found.many) == (DIMENSION, COHORTS[0], COHORTS[-1]):
        ratio = found.ratio
    return Verdict("node's peak memory", (Check("1,000 clients against 10", ratio, "<=", _MEMORY, "x"),))


def _exact(measured: Measured) -> Verdict:
    found = measured.exact
    differences = None
    if found is not None and (found.differences or found.rounds >= ROUNDS):
        differences = found.differences
    rounds = ROUNDS if found is None else found.rounds
    return Verdict("exact", (Check(f"differences in {rounds:,} rounds", differences, "<=", 0),))


def _confirm(measured: Measured) -> Verdict:
    step = measured.confirmed.get(_HOLDER_COHORT)
    return Verdict(
        "ring: a holder confirms the roster",
        (
            Check(
                f"at {_HOLDER_COHORT} clients",
                None if step is None else 1e3 * step.holder.median,
                "<=",
                _CONFIRM_MS,
                "ms",
            ),
            Check("a client", None if step is None else step.total / _HOLDER_COHORT, "<=", _CONFIRM_BYTES, "bytes"),
        ),
    )


def _worst(measured: Measured, of: Callable[[Figures], float]) -> float | None:
    found = [of(figures) for n in COHORTS if (figures := measured.get("ring", DIMENSION, n)) is not None]
    return max(found, default=None)
