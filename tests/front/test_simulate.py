"""A simulation from Python: any module, each unit, data of each kind, the same bits as the command line."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import fednode


def _records(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 6)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)


def _module() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_module_is_trained(unit, tmp_path):
    task = fednode.Task(model=_module(), unit=unit, epsilon=8.0, rounds=2)
    seen = []
    clients = [_records(30, seed) for seed in range(4)]
    run = fednode.simulate(task, clients, test=_records(50, 99), on_round=seen.append, out=tmp_path)
    assert run.epsilon <= 8.0
    assert [one.round for one in seen] == run.history["round"] == [1, 2]
    assert run.accuracy == pytest.approx((run.predict(_records(50, 99)[0]) == _records(50, 99)[1]).mean())
    assert not torch.equal(run.model[0].weight, task.model[0].weight)
    assert run.report().exists()


def test_tensors_datasets_and_loaders_are_the_same_records(tmp_path):
    x, y = _records(12, 0)
    tensors = (torch.from_numpy(x), torch.from_numpy(y))
    dataset = TensorDataset(*tensors)
    given = [(x, y), tensors, dataset, DataLoader(dataset, batch_size=5)]
    from fednode.front.data import client_data, digest

    assert len({digest([client_data(one, "record", "client 0")]) for one in given}) == 1
