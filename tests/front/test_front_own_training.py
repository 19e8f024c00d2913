"""Training code of one's own returns one of two types, and neither passes as the other."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

import fednode
from fednode.errors import ConfigError

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(24, 4)).astype(np.float32), RNG.integers(0, 3, 24)
SGD = partial(torch.optim.SGD, lr=0.5)


def linear() -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 3)


def summed(module, data, clip):
    return fednode.gradient_sum(module, *data[:2], clip, groups=data[2] if len(data) > 2 else None)


def moved(module, data, clip):
    batches = DataLoader(TensorDataset(*map(torch.from_numpy, data)), batch_size=8)
    return fednode.local_update(module, batches, clip, optimiser=SGD, epochs=2)


def raw(module, data, clip):
    return np.zeros(15)


@pytest.mark.parametrize(("unit", "train"), [("record", summed), ("customer", summed), ("client", moved)])
def test_own_code_is_run_at_each_client(unit, train, tmp_path):
    one = (X, Y, np.arange(24) // 3) if unit == "customer" else (X, Y)
    calls = []

    def counted(module, data, clip):
        calls.append(len(data[1]))
        return train(module, data, clip)

    task = fednode.Task(linear(), unit=unit, train=counted, rounds=2, clip=0.7)
    run = fednode.simulate(task, [one, one, one], out=tmp_path)
    assert calls.count(24) == 6
    assert not torch.equal(run.model.weight, task.model.weight)


@pytest.mark.parametrize(("unit", "train"), [("record", moved), ("client", summed), ("record", raw), ("client", raw)])
def test_another_type_or_unit_is_refused_before_the_run(unit, train, tmp_path):
    with pytest.raises(ConfigError, match=r"return what fednode"):
        fednode.simulate(fednode.Task(linear(), unit=unit, train=train), [(X, Y)] * 3, out=tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.name != ".flower"]


def test_each_says_what_it_bounds():
    tensors = torch.from_numpy(X), torch.from_numpy(Y)
    total, update = summed(linear(), tensors, 0.1), moved(linear(), (X, Y), 0.1)
    assert (total.unit, update.unit) == ("record", "client")
    assert summed(linear(), (X, Y, np.arange(24)), 0.1).unit == "customer"
    assert np.linalg.norm(total.vector) <= 24 * 0.1
    assert np.linalg.norm(update.vector) == pytest.approx(0.1)


def test_a_loss_of_ones_own_moves_the_model_by_its_gradient():
    model, targets = linear(), torch.from_numpy(X[:, :3])
    mse_loss(model(torch.from_numpy(X)), targets).backward()
    batch = (torch.from_numpy(X), targets)
    update = fednode.local_update(linear(), [batch], 100.0, optimiser=SGD, loss=mse_loss)
    gradient = torch.cat([part.grad.ravel() for part in model.parameters()])
    assert np.allclose(update.vector, 0.5 * gradient.numpy(), atol=1e-6)
