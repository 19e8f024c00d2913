"""One figure: a whole encrypted run of the product in this process, or the reference without privacy."""

import math
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from scipy.optimize import brentq
from scipy.stats import norm

from fednode.assemble import run, study_step
from fednode.assemble.study import find_study
from fednode.observer import Observer, StopFlag
from fednode.settings import RunSettings
from privacy_utility.inputs import SOURCES, data_settings
from privacy_utility.rows import START, Row

PUBLIC = {"banking77": "clinc150", "clinc150": "banking77", "multidogo": "clinc150"}
"""By set: the other set on which its preparation is fitted."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Accuracy in percent, epsilon as the ledger has it (None without privacy), rounds released, seconds."""

    accuracy: float
    epsilon: float | None
    rounds: int
    seconds: float


def measure(row: Row, seed: int, root: Path, work: Path) -> Figure:
    """The row's figure with this seed, which deals the records; noise never depends on it."""
    settings = settings_of(row, seed, root, work)
    if row.kind == "reference":
        return _without_privacy(settings)
    result = run(settings, Observer(), StopFlag())
    if result.error is not None:
        raise result.error
    record = result.record
    last = record.rounds[-1].accuracy
    if last is None:
        raise RuntimeError("the last round was not measured")
    spent = float(str(row.settings["epsilon"])) if row.kind == "local" else record.guarantee.epsilon
    shutil.rmtree(result.folder)
    return Figure(100 * last, spent, len(record.rounds), record.ended - record.started)


def settings_of(row: Row, seed: int, root: Path, work: Path) -> RunSettings:
    """The settings of the row's run; its preparation is made if it is not there."""
    values = data_settings(row.data, root, work, hashed=row.hashed) | dict(row.settings)
    # a ledger of its own for each figure: the sets are public, and figures are not to share a budget
    values |= {"seed": seed, "out": work / "runs", "population": f"figure-{secrets.token_hex(8)}"}
    if row.kind == "local":
        values["epsilon"] = shared_epsilon(float(str(row.settings["epsilon"])), int(str(row.settings["clients"])))
    if row.prepared:
        values["preparation"] = _preparation(row, root, work)
    return RunSettings.model_validate(values)


def _preparation(row: Row, root: Path, work: Path) -> Path:
    public = PUBLIC[row.data]
    path = work / f"{public}-{'hashed' if row.hashed else 'minilm'}-{row.columns}.safetensors"
    if not path.exists():
        settings = RunSettings.model_validate(data_settings(public, root, work, hashed=row.hashed))
        study_step("prepare", settings, path, row.columns, START, SOURCES[public])
    return path


def shared_epsilon(local: float, clients: int, delta: float = 1e-5) -> float:
    """The epsilon of a run in which each client's noise alone costs `local`: that of all but one colluder adds up."""

    def mu(epsilon: float) -> float:
        def excess(value: float) -> float:
            left = norm.cdf(-epsilon / value + value / 2)
            return float(left - math.exp(epsilon) * norm.cdf(-epsilon / value - value / 2) - delta)

        return float(brentq(excess, 1e-6, 20))

    wanted = mu(local) / math.sqrt(clients - 1)
    return float(brentq(lambda epsilon: mu(epsilon) - wanted, 1e-3, local))


def _without_privacy(settings: RunSettings) -> Figure:
    from sklearn.linear_model import LogisticRegression

    from fednode_study.experiment import Experiment
    from fednode_study.features import ROW_LENGTH

    experiment = find_study(settings.study).evaluator(settings)
    if not isinstance(experiment, Experiment):
        raise TypeError("the reference needs the study of this project")
    model = LogisticRegression(C=30, max_iter=1000)
    model.fit(experiment.train / ROW_LENGTH, experiment.dataset.train.labels)
    right = model.score(experiment.test / ROW_LENGTH, experiment.dataset.test.labels)
    return Figure(100 * float(right), None, 0, 0.0)
