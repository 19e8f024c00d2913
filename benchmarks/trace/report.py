"""How a replay reads: a table of hit ratios, how far each policy is over LRU, JSON."""

from typing import Any

from benchmarks.harness.tables import aligned
from benchmarks.trace.policies import REFERENCE, SAMPLED
from benchmarks.trace.suite import Ratios, Replayed


def words(found: Replayed) -> list[str]:
    """Return all that a person reads at the end."""
    return [
        "hits in % of all accesses, by entries:",
        *_hits(found),
        "",
        *_over(found),
        f"an infinite cache: {100 * found.infinite:.2f} %",
    ]


def _hits(found: Replayed) -> list[str]:
    rows = [["policy", *(f"{size:,}" for size in found.belady)]]
    for policy, sizes in found.policies.items():
        rows.append([policy, *(f"{100 * ratios.middle:.2f}" for ratios in sizes.values())])
        if policy in SAMPLED:
            rows.append([f"{policy}, range", *(_range(ratios, ".2f") for ratios in sizes.values())])
    return aligned([*rows, ["Belady", *(f"{100 * ratio:.2f}" for ratio in found.belady.values())]])


def _over(found: Replayed) -> list[str]:
    """The comparison, and an empty line; nothing where there is only the reference."""
    rows = []
    for policy in found.policies:
        over = [found.over_reference(policy, size) for size in found.belady]
        if policy != REFERENCE:
            rows.append([policy, *("-" if ratios is None else f"{100 * ratios.middle:+.1f}" for ratios in over)])
    if not rows:
        return []
    heading = ["policy", *(f"{size:,}" for size in found.belady)]
    return [f"over {REFERENCE} in % of its hits:", *aligned([heading, *rows]), ""]


def _range(ratios: Ratios, how: str) -> str:
    return f"{100 * ratios.low:{how}}-{100 * ratios.high:{how}}"


def document(found: Replayed) -> dict[str, Any]:
    """Return the replay as JSON holds it, without date and machine; ratios are shares of 1."""
    return {
        "trace": {"name": found.name, "requests": found.requests, "accesses": found.accesses, "blocks": found.blocks},
        "infinite": found.infinite,
        "rows": [
            {"policy": "belady", "entries": size, "hit_ratio": ratio} for size, ratio in found.belady.items()
        ] + [
            _row(found, policy, size, ratios)
            for policy, sizes in found.policies.items()
            for size, ratios in sizes.items()
        ],
    }  # fmt: skip


def _row(found: Replayed, policy: str, size: int, ratios: Ratios) -> dict[str, Any]:
    over = found.over_reference(policy, size)
    return {
        "policy": policy,
        "entries": size,
        "hit_ratio": ratios.middle,
        "lowest": ratios.low,
        "highest": ratios.high,
        f"over_{REFERENCE}": None if over is None else over.middle,
    }
