"""A whole federation in this process: members with keys made for the run, sealed updates, ledger and report."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fednode.errors import ConfigError
from fednode.front.run import Run, parameters_in
from fednode.front.task import Task
from fednode.observer import Observer, RoundProgress, StopFlag, Unfailing

if TYPE_CHECKING:
    from fednode.assemble.session import Environment

Callback = Callable[[RoundProgress], None]


def simulate(  # noqa: PLR0913 - all but the first two by name, each with a default
    task: Task,
    clients: Sequence[Any],
    *,
    test: Any = None,
    progress: bool = False,
    on_round: Callback | None = None,
    out: str | Path | None = None,
    environment: "Environment | None" = None,
) -> Run:
    """Train the task over these clients' records, as `fednode run` trains a study: the same node, members and ledger.

    `clients` holds each client's records: (inputs, targets) as numpy arrays or tensors, a `Dataset` or a `DataLoader`;
    with unit customer (inputs, targets, customers). `test` is one of these, looked at by the node alone. With
    `progress`, lines go to standard error; `on_round` gets each round as it ends. Files are written under `out`, the
    task's own option otherwise. `environment` is for tests.

    Raises `ConfigError` and `DataError` for what is wrong beforehand, and what ended the run early; the report of what
    there was is then in the folder.
    """
    from fednode.assemble.inprocess_run import run_study
    from fednode.disk.no_dumps import keep_keys_in_memory
    from fednode.flower_env import quieten_flower
    from fednode.front.python_study import PythonStudy

    if not isinstance(task, Task) or not (on_round is None or callable(on_round)):
        raise ConfigError("simulate takes a fednode.Task, then the clients' records; on_round is a function")
    study = PythonStudy(task, clients, test)
    settings = task.settings(len(clients))
    if out is not None:
        settings = settings.model_copy(update={"out": Path(out)})
    keep_keys_in_memory()
    quieten_flower(settings.out / ".flower", os.environ)
    result = run_study(settings, study, _watcher(progress, on_round), StopFlag(), environment)
    if result.error is not None:
        raise result.error
    if not progress:
        for sentence in (*result.record.warnings, *result.record.deviations):
            warnings.warn(sentence, stacklevel=2)
    return Run(result.folder, result.record, task.trained(parameters_in(result.folder)))


def _watcher(progress: bool, on_round: Callback | None) -> Observer:  # noqa: FBT001 - private
    from fednode.assemble.lines import LineObserver

    def write(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    inner = LineObserver(write) if progress else Observer()
    return inner if on_round is None else _Calling(inner, on_round)


class _Calling(Unfailing):
    """Tells the caller of each round."""

    def __init__(self, inner: Observer, on_round: Callback) -> None:
        super().__init__(inner)
        self._on_round = on_round

    def round_done(self, progress: RoundProgress) -> None:
        super().round_done(progress)
        self._on_round(progress)
