"""Modules of every kind that a task takes, and what is refused before a run starts."""

import numpy as np
import pytest
import torch
from torch import nn

import fednode
from fednode.errors import ConfigError
from fednode.front.models import mixing_layers
from fednode_clients.training.gradients import clipped_gradient_sum
from fednode_clients.training.models import frozen_parts


def images(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 1, 6, 6)).astype(np.float32)
    return x, (x.mean(axis=(1, 2, 3)) > 0).astype(np.int64)


def cnn() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 2))


def test_batch_norm_is_refused_with_its_name_and_replaced(capsys):
    with pytest.raises(ConfigError, match=r"'1' \(BatchNorm2d\).*prepare_model"):
        fednode.Task(cnn())
    before = cnn()
    model = fednode.prepare_model(before)
    assert isinstance(before[1], nn.BatchNorm2d)
    assert (model[1].num_groups, model[1].num_channels) == (2, 8)
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(mixing_layers(model))
    clipped_gradient_sum(model, *images(5), 1.0)


def test_frozen_batch_norm_keeps_its_statistics():
    model = cnn()
    model[1].requires_grad_(False)
    assert fednode.prepare_model(model)[1].running_mean is not None
    clipped_gradient_sum(fednode.prepare_model(model), *images(5), 1.0)
    with pytest.raises(ConfigError):
        fednode.Task(model, unit="client")


def test_each_width_of_batch_norm_gets_groups_that_carry_values():
    for channels in (1, 3, 6, 7, 12, 64):
        layer = fednode.prepare_model(nn.Sequential(nn.Linear(channels, channels), nn.BatchNorm1d(channels)))
        assert channels % layer[1].num_groups == 0
        assert channels < 4 or channels // layer[1].num_groups >= 4


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_stay_and_are_right(kind, capsys):
    class Reader(nn.Module):
        def __init__(self, first: bool) -> None:
            super().__init__()
            self.table, self.reader, self.head = nn.Embedding(9, 4), kind(4, 4, batch_first=first), nn.Linear(4, 2)

        def forward(self, ids):
            return self.head(self.reader(self.table(ids))[0][:, -1])

    torch.manual_seed(0)
    model = fednode.prepare_model(Reader(True))
    assert "stays" in capsys.readouterr().err
    ids, labels = np.arange(15).reshape(3, 5) % 9, np.array([0, 1, 1])
    alone = []
    for one, label in zip(torch.from_numpy(ids), torch.from_numpy(labels), strict=True):
        model.zero_grad()
        nn.functional.cross_entropy(model(one[None]), label[None]).backward()
        alone.append(torch.cat([p.grad.ravel() for p in model.parameters()]).double().numpy())
    summed = sum(row * min(1, 0.3 / np.linalg.norm(row)) for row in alone)
    np.testing.assert_allclose(clipped_gradient_sum(model, ids, labels, 0.3).vector, summed, atol=1e-5)
    with pytest.raises(ConfigError, match="'reader'"):
        clipped_gradient_sum(Reader(False), ids, labels, 0.3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("unit", ["record", "client"])
def test_each_precision_is_trained(dtype, unit, tmp_path):
    torch.manual_seed(0)
    task = fednode.Task(nn.Sequential(nn.Flatten(), nn.Linear(36, 2)).to(dtype), unit=unit, rounds=1)
    run = fednode.simulate(task, [images(20, seed) for seed in range(3)], test=images(20, 3), out=tmp_path)
    assert run.model[1].weight.dtype is dtype
    assert not torch.equal(run.model[1].weight, task.model[1].weight)


class TwoTied(nn.Module):
    """Takes floats and token ids, named; one table is used twice; a buffer scales the result."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.mix, self.out = nn.Embedding(7, 4), nn.Linear(3, 4), nn.Linear(4, 7, bias=False)
        self.out.weight = self.table.weight
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, values, ids):
        return self.out(self.table(ids).mean(1) + self.mix(values)) * self.scale


def test_several_inputs_tied_weights_and_buffers(tmp_path):
    rng = np.random.default_rng(0)
    one = ({"values": rng.normal(size=(12, 3)), "ids": rng.integers(0, 7, (12, 5))}, rng.integers(0, 7, 12))
    task = fednode.Task(TwoTied(), rounds=1)
    assert task.with_counts([12]).workload().layout.dimension == 28 + 16
    run = fednode.simulate(task, [one, one, one], test=one, out=tmp_path)
    assert run.model.out.weight is run.model.table.weight
    assert run.accuracy is not None


def test_what_is_frozen_does_not_travel_and_has_a_fingerprint(tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.Tanh(), nn.Linear(4, 2))
    model[1].requires_grad_(False)
    task = fednode.Task(model, rounds=1)
    workload = task.with_counts([20]).workload()
    count, digest = frozen_parts(model)
    assert (count, workload.layout.names) == (2, ("3.weight", "3.bias"))
    assert digest in workload.public_inputs[1]
    run = fednode.simulate(task, [images(20, seed) for seed in range(3)], out=tmp_path)
    assert frozen_parts(run.model)[1] == digest
    with torch.no_grad():
        model[1].bias[0] += 1
    assert frozen_parts(model)[1] != digest


def test_frozen_statistics_stay_where_the_client_trains(tmp_path):
    model = cnn()
    model[1].eval()
    task = fednode.Task(model, unit="client", rounds=1, options={"local_epochs": 1})
    run = fednode.simulate(task, [images(20, seed) for seed in range(3)], out=tmp_path)
    assert torch.equal(run.model[1].running_mean, torch.zeros(8))


def several(scores, targets):
    return nn.functional.binary_cross_entropy_with_logits(scores, targets, reduction="none")


@pytest.mark.parametrize("loss", [nn.BCEWithLogitsLoss(), nn.functional.mse_loss, several, nn.SmoothL1Loss()])
def test_losses_of_several_values_a_record(loss, tmp_path):
    rng = np.random.default_rng(0)
    one = rng.normal(size=(15, 4)).astype(np.float32), rng.integers(0, 2, (15, 3)).astype(np.float32)
    task = fednode.Task(nn.Linear(4, 3), loss=loss, rounds=1)
    run = fednode.simulate(task, [one, one, one], test=one, out=tmp_path)
    assert run.accuracy is None
    assert run.predict(one[0]).shape == (15,)


def test_records_that_add_nothing_are_told(tmp_path):
    x, y = images(10)
    x[:3, 0, 0, 0] = np.nan
    task = fednode.Task(nn.Sequential(nn.Flatten(), nn.Linear(36, 2)), rounds=1)
    run = fednode.simulate(task, [images(10), (x, y), images(10)], out=tmp_path)
    assert any("client 1: 3 of 10" in sentence for sentence in run.record.warnings)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
def test_a_module_on_a_gpu_is_trained_there(tmp_path):
    task = fednode.Task(nn.Sequential(nn.Flatten(), nn.Linear(36, 2)).cuda(), rounds=1)
    run = fednode.simulate(task, [images(20, seed) for seed in range(3)], test=images(20, 3), out=tmp_path)
    assert run.model[1].weight.is_cuda
    assert run.accuracy is not None


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_the_servers_optimiser_and_its_schedule_are_options(name, tmp_path):
    options = {"server_optimiser": name, "schedule": "constant", "learning_rate": 0.1}
    task = fednode.Task(nn.Sequential(nn.Flatten(), nn.Linear(36, 2)), rounds=2, options=options)
    run = fednode.simulate(task, [images(40, seed) for seed in range(3)], test=images(20, 3), out=tmp_path)
    moved = (run.model[1].weight - task.model[1].weight).abs().max()
    # Adam's first steps are a rate each, whatever the gradient; the others' shrink with it
    assert (0.05 < moved < 1.0) if name == "adam" else (0 < moved < 0.2)
