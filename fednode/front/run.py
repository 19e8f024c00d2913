"""What came of a simulation: the trained model, its history, its report."""

import shutil
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fednode.errors import ConfigError, DataError

if TYPE_CHECKING:
    import torch

    from fednode.front.task import Task
    from fednode.reports import RoundRecord, RunRecord


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A run that ended: the trained `model`, what it cost, and how it went.

    `folder` holds its files; `record` is the whole report as a value.
    """

    folder: Path
    record: "RunRecord" = field(repr=False)
    _model: "torch.nn.Module | None" = field(default=None, repr=False)

    @property
    def model(self) -> "torch.nn.Module":
        """The trained module. Raises `ConfigError` for a run that was loaded without its task."""
        if self._model is None:
            raise ConfigError(
                f"{self.folder} holds no module, only parameters: load it with its task, load(folder, task)"
            )
        return self._model

    @property
    def epsilon(self) -> float:
        """What the ledger holds, at `delta` of the task."""
        return self.record.guarantee.epsilon

    @property
    def accuracy(self) -> float | None:
        """Of the last model on the test records, 0 to 1; None if it was not measured."""
        return self.record.accuracies[-1] if self.record.accuracies else None

    @property
    def rounds(self) -> "Rounds":
        """A round each, in order."""
        return Rounds(self.record.rounds)

    @property
    def history(self) -> dict[str, list[Any]]:
        """By name a value a round: round, accuracy, epsilon, survivors, seconds, bytes_up."""
        return {name: [row[name] for row in self.rounds.rows()] for name in COLUMNS}

    def report(self, path: str | Path | None = None) -> Path:
        """The report as a page; with a path, a copy there. Returns where it is."""
        page = self.folder / "report.html"
        return page if path is None else Path(shutil.copyfile(page, path))

    def predict(self, inputs: Any) -> NDArray[np.generic]:
        """The most likely class of each record, int64 [n]; what the model gives where it does not classify."""
        from fednode.front.training import outputs_of

        outputs = outputs_of(self.model, inputs)
        return outputs.argmax(axis=1) if outputs.ndim == 2 and outputs.shape[1] > 1 else outputs

    def _repr_html_(self) -> str:
        from fednode.front.comparison import html_table

        cells = [["" if cell is None else f"{cell:.4g}" for cell in row.values()] for row in self.rounds.rows()]
        return f"<p>{escape(repr(self))}</p>" + html_table(COLUMNS, cells)

    def __repr__(self) -> str:
        accuracy = "" if self.accuracy is None else f", accuracy {100 * self.accuracy:.1f} %"
        return f"Run({self.record.run_id}: epsilon {self.epsilon:.4f}{accuracy}, {len(self.record.rounds)} rounds)"


COLUMNS = ("round", "accuracy", "epsilon", "survivors", "seconds", "bytes_up")


class Rounds(tuple["RoundRecord", ...]):
    """The rounds of a run, in order."""

    __slots__ = ()

    def rows(self) -> list[dict[str, Any]]:
        """A dict a round, with the names of `COLUMNS`."""
        return [
            {
                "round": one.round,
                "accuracy": one.accuracy,
                "epsilon": one.epsilon_after,
                "survivors": len(one.survivors),
                "seconds": one.seconds,
                "bytes_up": one.bytes_up,
            }
            for one in self
        ]

    def to_pandas(self) -> Any:
        """A pandas data frame, a row a round. Raises `ConfigError` if pandas is not installed."""
        try:
            import pandas as pd  # type: ignore[import-untyped]
        except ImportError as error:
            raise ConfigError("pandas is not installed: pip install pandas") from error
        return pd.DataFrame(self.rows())


def load(folder: str | Path, task: "Task | None" = None) -> Run:
    """The run in a folder, with its model if `task` says of which module it is.

    Raises `DataError` for a folder that holds no run, or a model of another module; `StoreError` for a changed ledger.
    """
    from fednode.assemble.report_facts import record_left

    place = Path(folder)
    record, _ = record_left(place)
    return Run(place, record, None if task is None else task.trained(parameters_in(place)))


def parameters_in(folder: Path) -> "dict[str, NDArray[np.generic]]":
    """The trained arrays of the run in `folder`, by name. Raises `DataError` if it released no model."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        found: dict[str, NDArray[np.generic]] = load_file(folder / "model.safetensors")
    except (OSError, SafetensorError) as error:
        raise DataError(f"there is no model in {folder}: the run released none, or it is damaged") from error
    return found
