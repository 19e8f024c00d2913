"""How a replay reads: tables of hit ratios, how far each policy is over LRU, JSON, and the plot."""

from typing import TYPE_CHECKING, Any, Final

from benchmarks.harness.results import Results, svg
from benchmarks.harness.tables import aligned
from benchmarks.trace.suite import REFERENCE, SAMPLED, Ratios, Replayed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS: Final = {"lru": "o", "lfu": "s", "adaptive": "P", "s3fifo": "D"}


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
            ranges = (f"{100 * ratios.low:.2f}-{100 * ratios.high:.2f}" for ratios in sizes.values())
            rows.append([f"{policy}, range", *ranges])
    return aligned([*rows, ["Belady", *(f"{100 * ratio:.2f}" for ratio in found.belady.values())]])


def _over(found: Replayed) -> list[str]:
    """The comparison and an empty line; nothing where there is only the reference."""
    rows = [
        [policy, *(_percent(found.over_reference(policy, size)) for size in found.belady)]
        for policy in found.policies
        if policy != REFERENCE
    ]
    if not rows:
        return []
    heading = ["policy", *(f"{size:,}" for size in found.belady)]
    return [f"over {REFERENCE} in % of its hits:", *aligned([heading, *rows]), ""]


def _percent(ratios: Ratios | None) -> str:
    return "-" if ratios is None else f"{100 * ratios.middle:+.1f}"


def results(found: Replayed) -> Results:
    """Return the replay's JSON document and plot."""
    return Results("trace", document(found), svg((6.0, 4.0), lambda figure: draw(figure.subplots(), found)))


def document(found: Replayed) -> dict[str, Any]:
    """Return the replay as JSON holds it; ratios are shares of 1."""
    return {
        "trace": {"name": found.name, "requests": found.requests, "accesses": found.accesses, "blocks": found.blocks},
        "infinite": found.infinite,
        "rows": [
            *({"policy": "belady", "entries": size, "hit_ratio": ratio} for size, ratio in found.belady.items()),
            *(_row(found, policy, size) for policy, sizes in found.policies.items() for size in sizes),
        ],
    }


def _row(found: Replayed, policy: str, size: int) -> dict[str, Any]:
    ratios, over = found.policies[policy][size], found.over_reference(policy, size)
    return {
        "policy": policy,
        "entries": size,
        "hit_ratio": ratios.middle,
        "lowest": ratios.low,
        "highest": ratios.high,
        f"over_{REFERENCE}": None if over is None else over.middle,
    }


def draw(axes: "Axes", found: Replayed) -> None:
    """Draw a line for each policy, Belady's above them, and the infinite cache as the line that nothing crosses."""
    sizes = sorted(found.belady)
    axes.plot(sizes, [100 * found.belady[size] for size in sizes], color="grey", linestyle="--", label="Belady")
    axes.axhline(100 * found.infinite, color="grey", linestyle=":", label="infinite")
    for colour, (policy, marker) in enumerate(_MARKERS.items()):
        points = found.policies.get(policy, {})
        if points:
            hits = [100 * points[size].middle for size in sizes]
            axes.plot(sizes, hits, marker=marker, color=f"C{colour}", label=policy)
    axes.set(xscale="log", xlabel="entries", ylabel="hits, % of accesses", title=found.name)
    axes.legend()
