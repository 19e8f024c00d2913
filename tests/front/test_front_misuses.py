"""What people do wrong: each ends with one sentence of FedNode's own, before anything is trained."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import fednode

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 6)).astype(np.float32), np.arange(12) % 3


def linear() -> nn.Module:
    return nn.Linear(6, 3)


def net(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), *layers, nn.Linear(8, 3))


def frozen() -> nn.Module:
    module = linear()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    return module


def poisoned() -> nn.Module:
    module = linear()
    with torch.no_grad():
        module.weight[0, 0] = float("nan")
    return module


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(6), 0)])


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 3)

    def forward(self, x):
        return self.inner(x - x.mean(0))


class Wordy(nn.Linear):
    def forward(self, x):
        return {"logits": super().forward(x)}


def sequence_of_numbers(outputs, targets):
    return [1.0 for _ in targets]


TASKS = {
    "a class in place of a module": {"model": nn.Linear},
    "no module": {"model": lambda x: x},
    "text in place of a module": {"model": "resnet18"},
    "nothing to train": {"model": frozen()},
    "a model with NaN": {"model": poisoned()},
    "unit misspelt": {"unit": "records"},
    "unit of another word": {"unit": "user"},
    "unit none": {"unit": None},
    "epsilon as text": {"epsilon": "two"},
    "epsilon zero": {"epsilon": 0},
    "epsilon negative": {"epsilon": -1.0},
    "epsilon infinite": {"epsilon": float("inf")},
    "epsilon NaN": {"epsilon": float("nan")},
    "epsilon far too large": {"epsilon": 1e6},
    "delta one": {"delta": 1.0},
    "delta zero": {"delta": 0},
    "rounds zero": {"rounds": 0},
    "rounds negative": {"rounds": -3},
    "rounds a fraction": {"rounds": 2.5},
    "clip zero": {"clip": 0},
    "clip true": {"clip": True},
    "an option misspelt": {"options": {"min_survivers": 2}},
    "an option that Task has": {"options": {"epsilon": 2.0}},
    "options that are no mapping": {"options": ["holders"]},
    "a value that no option takes": {"options": {"scheme": "ckks"}},
    "holders below the threshold": {"options": {"holders": 2, "threshold": 4}},
    "more survivors than clients": {"options": {"min_survivors": 40}},
    "rounds per client without unit": {"options": {"rounds_per_client": 50}},
    "records zero": {"records": 0, "max_records": 10},
    "records as text": {"records": "many", "max_records": 10},
    "a loss that is no function": {"loss": "cross_entropy"},
    "a loss class": {"loss": nn.CrossEntropyLoss},
    "a loss with one value for all": {"loss": lambda outputs, targets: ((outputs.sum(1) - targets) ** 2).mean()},
    "a loss that returns a list": {"loss": sequence_of_numbers},
    "a loss of three arguments": {"loss": lambda outputs, targets, weights: outputs.sum(1)},
    "a loss that raises": {"loss": lambda outputs, targets: outputs.missing},
    "a loss for other targets": {"loss": nn.functional.binary_cross_entropy},
    "an optimiser with unit record": {"optimiser": torch.optim.Adam},
    "an optimiser that is no function": {"optimiser": "adam", "unit": "client"},
    "BatchNorm in training mode": {"model": net(nn.BatchNorm1d(8))},
    "records mixed in the forward": {"model": Mixing()},
    "a model of another width": {"model": nn.Linear(5, 3)},
    "fewer classes than labels": {"model": nn.Linear(6, 2)},
    "a model that gives a dict": {"model": Wordy(6, 3)},
    "a model that gives one number": {"model": nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))},
}


@pytest.mark.parametrize("name", TASKS)
def test_a_wrong_task_is_one_sentence(name, tmp_path):
    with pytest.raises(fednode.FednodeError) as caught:
        task = fednode.Task(**{"model": linear(), "rounds": 1} | TASKS[name])
        fednode.simulate(task, [(X, Y)] * 3, out=tmp_path)
    _one_sentence(str(caught.value), tmp_path)


DATA = {
    "a number of clients": 3,
    "no clients": [],
    "one client": [(X, Y)],
    "a dict of clients": {"a": (X, Y), "b": (X, Y)},
    "arrays in place of clients": (X, Y),
    "text": "data.csv",
    "labels missing": [X, X, X],
    "labels of another length": [(X, Y[:-1])] * 3,
    "labels as floats": [(X, Y.astype(np.float32))] * 3,
    "one-hot labels": [(X, np.eye(3)[Y])] * 3,
    "labels as text": [(X, np.array(["a"] * 12))] * 3,
    "a label beyond the classes": [(X, Y + 1)] * 3,
    "a negative label": [(X, Y - 1)] * 3,
    "features as text": [(np.array([["a"] * 6] * 12), Y)] * 3,
    "features of objects": [(np.array([[None] * 6] * 12), Y)] * 3,
    "other features at one client": [(X, Y), (X[:, :5], Y), (X, Y)],
    "no feature column": [(X[:, :0], Y)] * 3,
    "a scalar": [(np.float32(1), np.int64(1))] * 3,
    "rows as dicts": [([{"x": 1}] * 12, Y)] * 3,
    "ragged rows": [([[1.0], [1.0, 2.0]] * 6, Y)] * 3,
    "a stream": [Stream()] * 3,
    "an empty loader": [DataLoader(TensorDataset(torch.zeros(0, 6), torch.zeros(0, dtype=torch.long)))] * 3,
    "only NaN": [(np.full_like(X, np.nan), Y)] * 3,
    "customers without the unit": [(X, Y, Y)] * 3,
    "complex features": [(X.astype(np.complex64), Y)] * 3,
    "every client empty": [(X[:0], Y[:0])] * 3,
}


@pytest.mark.parametrize("name", DATA)
def test_wrong_data_is_one_sentence(name, tmp_path):
    with pytest.raises(fednode.FednodeError) as caught:
        fednode.simulate(fednode.Task(linear(), rounds=1), DATA[name], out=tmp_path)
    _one_sentence(str(caught.value), tmp_path)


CALLS = {
    "a test set of another width": lambda out: fednode.simulate(_task(), _three(), test=(X[:, :5], Y), out=out),
    "a test set that is no pair": lambda out: fednode.simulate(_task(), _three(), test=X, out=out),
    "a callback that is no function": lambda out: fednode.simulate(_task(), _three(), on_round="log", out=out),
    "no task": lambda out: fednode.simulate(linear(), _three(), out=out),
    "nothing to compare": lambda out: fednode.compare([]),
    "a folder without a run": fednode.load,
    "a folder that is not there": lambda out: fednode.compare([out / "runs"]),
    "a plan of one client": lambda out: _task().plan(clients=1),
    "a plan of clients as text": lambda out: _task().plan(clients="ten"),
    "customers missing": lambda out: fednode.simulate(fednode.Task(linear(), unit="customer"), _three(), out=out),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_is_one_sentence(name, tmp_path):
    with pytest.raises(fednode.FednodeError) as caught:
        CALLS[name](tmp_path)
    _one_sentence(str(caught.value), tmp_path)


def _task() -> fednode.Task:
    return fednode.Task(linear(), rounds=1)


def _three() -> list[tuple[np.ndarray, np.ndarray]]:
    return [(X, Y)] * 3


def _one_sentence(text: str, out) -> None:
    """One line that says something; and no run has left a charge."""
    assert 20 < len(text) < 600 and "\n" not in text
    assert not any('"epsilon_after"' in file.read_text() for file in out.rglob("*.jsonl"))
