"""The ServerApp for Flower's own engines: the same session, over whatever `Grid` Flower brings."""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fednode.assemble.enrolment import enrol_simulation
from fednode.assemble.inprocess_run import conclude, logging_to, make_run_folder
from fednode.assemble.lines import LineObserver
from fednode.assemble.planning import plan_run
from fednode.assemble.session import Session, Tools
from fednode.clock import SystemClock
from fednode.disk.locked_folder import remove_abandoned, temporary_folder_at
from fednode.disk.private import make_private, require_private
from fednode.observer import StopFlag, Unfailing
from fednode.settings import RunSettings, resolve
from fednode_clients.membership import SET_KEY_ROOT, key_root, shared_root
from fednode_crypto import scheme

if TYPE_CHECKING:
    from fednode.server import Context, Grid, ServerApp

STOP_NAME = ".stop"
MARK = "fednode| "
"""What a line of progress starts with in Flower's log."""

_OWN_KEYS = frozenset({"run-folder", "key-root"})


def _write_line(text: str) -> None:
    """Write to standard error, which Flower streams to whoever submitted the run."""
    sys.stderr.write(f"{MARK}{text}\n")
    sys.stderr.flush()


class StopFile(StopFlag):
    """A wish to stop that another process on this machine leaves as an empty file in the run's folder."""

    __slots__ = ("_path",)

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._path = folder / STOP_NAME

    @property
    def raised(self) -> bool:
        """Whether the file is there."""
        return self._path.exists()


def to_run_config(settings: RunSettings) -> dict[str, str | int | float]:
    """All settings as Flower's run config: dashes in the names, "" for what is not set."""
    config: dict[str, str | int | float] = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if name == "faults":
            continue
        config[name.replace("_", "-")] = (
            value if isinstance(value, int | float) else "" if value is None else str(value)
        )
    return config


def default_run_config() -> dict[str, str | int | float]:
    """The run config of `experiments/customer_service`: the defaults, and "" for what follows from other settings."""
    config = to_run_config(resolve(None, {}, {"engine": "flower"}))
    return config | dict.fromkeys(("min-survivors", "run-folder", "key-root"), "")


def from_run_config(config: Mapping[str, object]) -> RunSettings:
    """The settings in a run config. Raises `ConfigError` as `resolve` does."""
    flags = {key.replace("-", "_"): value for key, value in config.items() if key not in _OWN_KEYS and value != ""}
    return resolve(None, {}, flags)


def main(grid: "Grid", context: "Context") -> None:
    """Enrol the simulated members, run the session, write the reports; an error ends the run as failed in Flower's
    eyes too."""
    config = dict(context.run_config)
    settings = from_run_config(config)
    plan = plan_run(settings)
    # whoever submitted the run may be gone: nobody to tell is no reason to lose a round
    clock, observer = SystemClock(), Unfailing(LineObserver(_write_line))
    given = str(config.get("run-folder") or "")
    run_id, folder = (Path(given).name, Path(given)) if given else make_run_folder(settings, clock)
    observer.writing_to(folder)
    observer.started(settings.rounds)
    session = Session(plan, run_id, folder, observer, Tools(clock, scheme, StopFile(folder)))
    with logging_to(folder / "run.log"), _keys(context.run_id, config) as keys:
        cohort = enrol_simulation(keys, settings.clients, settings.holders, observer.progress)
        result = conclude(session, lambda: session.execute(grid, cohort))
    logging.getLogger("fednode.run").info("%s", result.record.outcome_sentence)
    if result.error is not None:
        raise result.error


@contextmanager
def _keys(run_id: int, config: Mapping[str, object]) -> Iterator[Path]:
    """Where this run's keys lie as long as it lasts. Keys of killed runs beside it go first."""
    keys, shared = key_root(run_id, config), shared_root(config)
    if shared is not None:
        require_private(shared, SET_KEY_ROOT)
        make_private(shared, SET_KEY_ROOT)
        remove_abandoned("", shared)
    with temporary_folder_at(keys):
        yield keys


def build() -> "ServerApp":
    """The ServerApp around `main`."""
    from fednode.server import build_server_app

    return build_server_app(main)
