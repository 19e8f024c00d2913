"""A simulation from Python: any module, each unit, data of each kind, the same bits as the command line."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from kit.auditing import seeded
from torch.utils.data import DataLoader, TensorDataset

import fednode
from fednode.assemble.inprocess_run import run_study
from fednode.assemble.session import Environment
from fednode.assemble.study import find_study
from fednode.cli import main
from fednode.errors import ConfigError, DataError
from fednode.front.data import client_data, digest
from fednode.observer import Observer, StopFlag
from fednode.settings import resolve
from fednode_clients.training.models import linear_head


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
    assert run.report().exists() and list(run.rounds.to_pandas()["round"]) == [1, 2]


def test_tensors_datasets_and_loaders_are_the_same_records(tmp_path):
    x, y = _records(12, 0)
    tensors = (torch.from_numpy(x), torch.from_numpy(y))
    dataset = TensorDataset(*tensors)
    given = [(x, y), tensors, dataset, DataLoader(dataset, batch_size=5)]
    assert len({digest([client_data(one, "record", "client 0")]) for one in given}) == 1
    assert np.array_equal(client_data((x.tolist(), y.tolist()), "record", "client 0").inputs, x)


def test_a_simulation_and_the_command_line_release_the_same_bits(tmp_path):
    """One linear head over the same records, with the same draws."""
    flags = {"clients": 3, "rounds": 2, "features": 16, "holders": 3, "threshold": 2, "out": str(tmp_path / "cli")}
    settings = resolve(None, {}, flags)
    study = find_study("customer-service")
    by_command = run_study(settings, study, Observer(), StopFlag(), Environment(rng=seeded(7)))
    assert by_command.error is None and not by_command.record.mechanism.name.startswith("rotated")
    experiment = study.evaluator(settings)
    options = {name: flags[name] for name in ("holders", "threshold")}
    task = fednode.Task(linear_head(16, len(experiment.dataset.labels)), rounds=2, options=options)
    clients = [experiment.share(number) for number in range(3)]
    run = fednode.simulate(task, clients, out=tmp_path / "python", environment=Environment(rng=seeded(7)))
    assert run.record.rounds[-1].model_digest == by_command.record.rounds[-1].model_digest != ""


def test_a_run_is_loaded_compared_and_exported(tmp_path):
    task = fednode.Task(model=_module(), rounds=1)
    run = fednode.simulate(task, [_records(20, seed) for seed in range(3)], test=_records(20, 9), out=tmp_path)
    again = fednode.load(run.folder, task)
    assert again.record == run.record
    assert (again.predict(_records(9, 5)[0]) == run.predict(_records(9, 5)[0])).all()
    with pytest.raises(ConfigError):
        _ = fednode.load(run.folder).model
    table = fednode.compare([run, str(run.folder)])
    assert table.rows[0] == table.rows[1] and run.record.run_id in str(table)
    assert "<script" not in table.page(tmp_path / "page.html").read_text()
    for name in ("m.safetensors", "m.npz", "m.pt"):
        assert main(["export", str(run.folder), "--to", str(tmp_path / name)]) == 0
    with np.load(tmp_path / "m.npz") as arrays:
        assert np.array_equal(arrays["0.weight"], run.model[0].weight.detach().numpy())
    assert torch.equal(torch.load(tmp_path / "m.pt")["0.weight"], run.model[0].weight)
    assert main(["export", str(run.folder), "--to", str(tmp_path / "m.csv")]) == ConfigError.exit_code
    for command in (["list", str(tmp_path)], ["show", str(run.folder)], ["compare", str(run.folder)]):
        assert main(command) == 0
    assert main(["list", str(tmp_path / "m.npz")]) == DataError.exit_code
    assert main(["predict", str(run.folder), "text"]) == ConfigError.exit_code


def test_a_plan_needs_no_data():
    plan = fednode.Task(_module(), epsilon=2.0, rounds=5).plan(clients=20)
    assert plan.budget.epsilon == 2.0 and plan.settings.clients == 20 and "epsilon" in str(plan)


def test_importing_fednode_loads_neither_torch_nor_numpy_nor_flower():
    code = "import fednode, sys; print(sorted({'torch', 'numpy', 'flwr', 'pydantic'} & set(sys.modules)), dir(fednode))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[] ") and "simulate" in done.stdout
