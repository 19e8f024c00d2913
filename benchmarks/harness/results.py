"""What a run leaves behind: a JSON file, and a plot beside it."""

import io
import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fednode.disk.atomic import write_whole
from fednode.errors import StoreError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PACKAGES: Final = ("fednode", "numpy", "numba", "cryptography", "flwr", "tenseal")
_STYLE: Final = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9.0,
    "grid.linewidth": 0.4,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "fednode-bench",
}


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """Return what a reader needs to compare runs: cores and versions."""
    packages = {name: found for name in PACKAGES if (found := _version(name))}
    return {"cores": cores(), "python": platform.python_version(), "packages": packages}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def svg(size: tuple[float, float], draw: "Callable[[Figure], object]") -> str:
    """Return what `draw` draws into an empty figure of `size` inches; the same bytes every time."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that one run of `bench` leaves: the JSON document without date and machine, and the plot."""

    bench: str
    document: Mapping[str, Any]
    plot: str

    def write(self, folder: Path, seconds: float) -> tuple[Path, Path]:
        """Write `<day>-<bench>.json` and `.svg`, whole or not at all, over an older pair of that name.

        `seconds` since 1970 give the day, UTC. Raises StoreError.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"could not make {folder}: {error.strerror or error}; choose another folder") from error
        date = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")
        found = {"bench": self.bench, "date": date, "machine": machine(), **self.document}
        paths = folder / f"{date}-{self.bench}.json", folder / f"{date}-{self.bench}.svg"
        write_whole(paths[0], (json.dumps(found, indent=1) + "\n").encode(), 0o644)
        write_whole(paths[1], self.plot.encode(), 0o644)
        return paths
