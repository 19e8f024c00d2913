"""The composition root: settings in, a running node out. What needs Flower or torch is imported when it is used."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fednode.observer import Observer, StopFlag, Unfailing
from fednode.settings import RunSettings

if TYPE_CHECKING:
    from fednode.assemble.inprocess_run import RunResult
    from fednode.assemble.planning import Plan


def plan(settings: RunSettings) -> "Plan":
    """What a run with these settings would do and cost. Raises `ConfigError`, `DataError` or `StoreError` for what
    would fail."""
    from fednode.assemble.inprocess_run import require_room
    from fednode.assemble.planning import plan_run

    require_room(settings.out)
    return plan_run(settings)


def run(settings: RunSettings, observer: Observer, stop: StopFlag) -> "RunResult":
    """A whole run, its files under `settings.out`. Raises what `plan` raises; later failures are in the result."""
    from fednode.assemble.inprocess_run import run_inproc

    if settings.engine == "flower":
        from fednode.assemble.flower_engine import run_on_flower

        return run_on_flower(settings, Unfailing(observer), stop)
    return run_inproc(settings, Unfailing(observer), stop)


def predict(folder: Path, texts: Sequence[str]) -> list[tuple[str, float]]:
    """For each text the most likely label of the model in `folder`, and its share of certainty (0 to 1)."""
    from fednode_study.model_file import predict_texts

    return predict_texts(folder, texts)
