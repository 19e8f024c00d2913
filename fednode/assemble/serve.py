"""The node as a Flower ServerApp, for members who hold their own keys, and for simulations on Flower's engine.

    from fednode.assemble.serve import Workload, node_app

    app = node_app(Workload(layout=..., records=..., max_records=...))

Settings come from the run config. With `cohort`, the path of a cohort file, and `node-key-folder`, that of the
key folder whose key the file names, the node serves the members in the file; without, it makes all keys itself. Without
a workload it plans from the study that the settings name.
"""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fednode.assemble.enrolment import Enrolled, enrol_simulation
from fednode.assemble.lines import LineObserver
from fednode.assemble.planning import plan_run, plan_task
from fednode.assemble.run_folder import logging_to, make_run_folder
from fednode.assemble.run_result import RunResult, conclude
from fednode.assemble.session import Environment, Session
from fednode.assemble.study import Arrays, Evaluator, Workload, find_study
from fednode.clock import SystemClock
from fednode.disk.atomic import write_whole
from fednode.disk.locked_folder import remove_abandoned, temporary_folder_at
from fednode.disk.private_folder import claim_private, require_private
from fednode.errors import ConfigError, PeerFault
from fednode.observer import StopFlag, Unfailing
from fednode.protocol.cohort import Cohort
from fednode.settings import RunConfig, RunSettings, from_run_config
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.membership import SET_KEY_ROOT, key_root, shared_root

if TYPE_CHECKING:
    from fednode.server import Context, Grid, ServerApp

__all__ = ["MARK", "STOP_NAME", "Workload", "node_app", "serve"]

STOP_NAME = ".stop"
MARK = "fednode| "
"""What a line of progress starts with in Flower's log."""

_OWN_KEYS = "each member made its own keys and was enrolled from a cohort file"


def node_app(workload: Workload | None = None) -> "ServerApp":
    """A ServerApp that runs the task of its run config; an error of the run is an error of Flower's run too."""
    from fednode.server import build_server_app

    def main(grid: "Grid", context: "Context") -> None:
        result = serve(grid, context.run_id, dict(context.run_config), workload)
        if result.error is not None:
            raise result.error

    return build_server_app(main)


def serve(
    grid: "Grid",
    flower_run: int,
    config: RunConfig,
    workload: Workload | None = None,
    test: Evaluator | None = None,
) -> RunResult:
    """Run the task of this run config over `grid` and write the reports.

    Raises `ConfigError`, `DataError` or `StoreError` for what is wrong before the first round.
    """
    settings = from_run_config(config)
    enrolled = _read_cohort(Path(str(config["cohort"])), config, settings) if config.get("cohort") else None
    plan = plan_run(settings) if workload is None else plan_task(settings, workload)
    folder = (
        Path(str(config["run-folder"])) if config.get("run-folder") else make_run_folder(plan.settings, SystemClock())
    )
    # the submitter may be gone: a line that nobody reads ends no round
    observer = Unfailing(LineObserver(_write_line))

    def evaluator() -> Evaluator:
        if test is not None:
            return test
        return ArraysOnly() if workload else find_study(settings.study).evaluator(settings)

    session = Session(plan, folder, observer, StopFile(folder), evaluator, Environment(clock=SystemClock()))
    with logging_to(folder / "run.log"), _members(session, enrolled, flower_run, config) as members:
        result = conclude(session, lambda: session.execute(grid, members))
    logging.getLogger("fednode.run").info("%s", result.record.outcome_sentence)
    return result


class ArraysOnly:
    """Saves the arrays of the model under their names; tests nothing, since the node has no records."""

    def hits(self, arrays: Arrays) -> Mapping[str, tuple[int, int]]:
        """Not measured."""
        del arrays
        return {}

    def save(self, folder: Path, arrays: Mapping[str, NDArray[np.float32]], run_id: str) -> None:
        """Write model.safetensors. Raises `StoreError`."""
        from safetensors.numpy import save

        write_whole(folder / "model.safetensors", save(dict(arrays), metadata={"run": run_id}))


class StopFile(StopFlag):
    """A request to stop that another process on this machine leaves as an empty file in the run's folder."""

    __slots__ = ("_path",)

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._path = folder / STOP_NAME

    @property
    def raised(self) -> bool:
        """Whether the file is there."""
        return self._path.exists()


@contextmanager
def _members(session: Session, enrolled: Enrolled | None, flower_run: int, config: RunConfig) -> Iterator[Enrolled]:
    """Those of the cohort file, or simulated ones with keys that exist as long as this block."""
    session.announce()
    if enrolled is not None:
        session.enrolled = _OWN_KEYS
        yield enrolled
        return
    settings = session.plan.settings
    with simulated_keys(flower_run, config) as keys:
        yield enrol_simulation(keys, settings.clients, settings.holders, session.observer.progress)


def _read_cohort(path: Path, config: RunConfig, settings: RunSettings) -> Enrolled:
    """The cohort file and the node's own key. Raises `ConfigError` or `DataError` before anything is asked."""
    if not config.get("node-key-folder"):
        raise ConfigError("a cohort needs the node's own key: set node-key-folder in the run config to its key folder")
    folder = KeyFolder.open(Path(str(config["node-key-folder"])))
    try:
        cohort = Cohort.verified_from_bytes(path.read_bytes(), folder.enrolment_key)
        folder.cohorts.require_current(cohort)
    except (OSError, PeerFault) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"the cohort file {path} cannot be used: {why}; check `cohort` in the run config") from error
    if folder.signer.key.public != cohort.node:
        raise ConfigError(
            f"{path} names another node key than that of {folder.path}: members would refuse every request; let the "
            "enroller make the next cohort with this node's card"
        )
    found = (len(cohort.clients), len(cohort.holders))
    if found != (settings.clients, settings.holders):
        raise ConfigError(
            f"{path} has {found[0]} clients and {found[1]} holders, and the settings say {settings.clients} and "
            f"{settings.holders}: set clients and holders to what the cohort has"
        )
    return Enrolled(cohort, folder.signer)


@contextmanager
def simulated_keys(flower_run: int, config: RunConfig) -> Iterator[Path]:
    """The folder of this run's keys, for the time of the run. Keys of killed runs beside it are removed first."""
    keys, shared = key_root(flower_run, config), shared_root(config)
    if shared is not None:
        require_private(shared, SET_KEY_ROOT)
        claim_private(shared, SET_KEY_ROOT)
        remove_abandoned("", shared)
    with temporary_folder_at(keys):
        yield keys


def _write_line(text: str) -> None:
    """Write to standard error, which Flower streams to whoever submitted the run."""
    sys.stderr.write(f"{MARK}{text}\n")
    sys.stderr.flush()
