"""Results: a JSON file that grows by a figure at a time, means with their intervals, and the table."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from scipy.stats import t as student

from fednode.disk.atomic import write_whole
from privacy_utility.measure import Figure
from privacy_utility.rows import GAPS, ROWS

Results = dict[str, dict[str, dict[str, object]]]


def read(path: Path) -> Results:
    """By row and seed, what was measured so far."""
    if not path.exists():
        return {}
    found: Results = json.loads(path.read_text("utf-8"))
    return found


def add(path: Path, row: str, seed: int, figure: Figure, commit: str) -> None:
    """Add one figure, and write the file whole."""
    results = read(path)
    results.setdefault(row, {})[str(seed)] = asdict(figure) | {"commit": commit}
    write_whole(path, (json.dumps(results, indent=1, sort_keys=True) + "\n").encode())


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half of its 95 % interval by Student's t; of one value the half is not known."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, float(student.ppf(0.975, len(values) - 1)) * math.sqrt(variance / len(values))


def table(results: Results) -> list[str]:
    """In Markdown: a line for each row that was measured, in the order of `ROWS`."""
    means = {row: interval(accuracies(results[row])) for row in ROWS if row in results}
    lines = ["| row | epsilon | seeds | accuracy, 95 % interval | has to reach | |", "|---|---|---|---|---|---|"]
    for row, (mean, half) in means.items():
        figures = list(results[row].values())
        spent = [float(str(figure["epsilon"])) for figure in figures if figure["epsilon"] is not None]
        shown = f"{max(spent):.3f}" if spent else "none"
        within = f"{mean:.2f}" + ("" if math.isnan(half) else f" ± {half:.2f}")
        wanted, verdict = _verdict(row, means)
        lines.append(f"| {row} | {shown} | {len(figures)} | {within} | {wanted} | {verdict} |")
    return lines


def accuracies(figures: Mapping[str, Mapping[str, object]]) -> list[float]:
    """Those of one row."""
    return [float(str(figure["accuracy"])) for figure in figures.values()]


def _verdict(row: str, means: Mapping[str, tuple[float, float]]) -> tuple[str, str]:
    least, mean, words, good = ROWS[row].least, means[row][0], [], []
    if least is not None:
        words.append(f"{least:g}")
        good.append(mean >= least)
    if row in GAPS and GAPS[row][0] in means:
        other, gap, what = GAPS[row]
        words.append(f"{abs(gap):g} {what}: {mean - means[other][0]:+.2f}")
        good.append(mean - means[other][0] >= gap)
    return "; ".join(words) or "-", "" if not good else "yes" if all(good) else "NO"
