"""The composition root: settings in, a running node out. What needs Flower or torch is imported when it is used."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fednode.errors import ConfigError
from fednode.observer import Observer, StopFlag, Unfailing
from fednode.settings import RunSettings

if TYPE_CHECKING:
    from fednode.assemble.planning import Plan
    from fednode.assemble.run_result import RunResult


def plan(settings: RunSettings) -> "Plan":
    """What a run with these settings would do and cost. Raises `ConfigError`, `DataError` or `StoreError` for what
    would fail."""
    from fednode.assemble.planning import plan_run
    from fednode.assemble.run_folder import require_writable

    require_writable(settings.out)
    return plan_run(settings)


def run(settings: RunSettings, observer: Observer, stop: StopFlag) -> "RunResult":
    """A whole run, its files under `settings.out`. Raises what `plan` raises; later failures are in the result."""
    from fednode.assemble.inprocess_run import run_inproc

    if settings.engine == "flower":
        from fednode.assemble.flower_engine import run_on_flower

        return run_on_flower(settings, Unfailing(observer), stop)
    return run_inproc(settings, Unfailing(observer), stop)


def report(folder: Path) -> tuple[str, ...]:
    """Write the reports of the run in `folder` from what it left; the lines to print.

    Raises `DataError` or `StoreError` for a folder that does not hold a whole run.
    """
    from fednode.assemble.report_facts import record_left
    from fednode.assemble.run_result import closing_lines
    from fednode.reports import write_reports

    record, spending = record_left(folder)
    write_reports(record, folder, spending.charges)
    return closing_lines(record, folder)


def predict(folder: Path, texts: Sequence[str]) -> list[tuple[str, float]]:
    """For each text the most likely label of the model in `folder`, and its score, 0 to 1."""
    from fednode.assemble.study import PYTHON, find_study

    study = _study_of(folder)
    if study == PYTHON:
        raise ConfigError(f"{folder} holds a model trained from Python: fednode.load(folder, task).predict(inputs)")
    return find_study(study).predict(folder, texts)


def study_step(step: str, settings: RunSettings, *arguments: object) -> list[str]:
    """Do one of the study's own steps before a run, and say what it did; raises `ConfigError` or `DataError`."""
    from fednode.assemble.study import find_study

    make = getattr(find_study(settings.study), step, None)
    if make is None:
        raise ConfigError(f"the study {settings.study!r} has no step {step!r}; use it without one")
    return list(make(settings, *arguments))


def _study_of(folder: Path) -> str:
    """The study whose run made this folder; the default one for a folder without settings."""
    default = RunSettings.model_fields["study"].default
    try:
        return str(tomllib.loads((folder / "config.toml").read_text("utf-8")).get("study", default))
    except (OSError, ValueError):
        return str(default)
