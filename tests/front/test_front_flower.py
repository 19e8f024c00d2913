"""A task on Flower, in this process: both ways to write a client, and what is refused."""

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

import fednode
from fednode.errors import ConfigError, Interrupted
from fednode.inproc import InProcGrid, run_in_process
from fednode.members import member_names
from fednode.protocol.model import Layout
from fednode.records import to_arrays
from fednode.server import build_server_app
from fednode_clients.mods import gradient_sum, moved_mod, read_sum
from fednode_clients.training.local import LocalUpdate

RNG = np.random.default_rng(0)
DATA = [(RNG.normal(size=(40, 6)).astype(np.float32), RNG.integers(0, 3, 40)) for _ in range(3)]
OPTIONS = {"holders": 3, "threshold": 2, "clients": 3}


def _task(**more):
    return fednode.Task(torch.nn.Linear(6, 3), rounds=1, options=OPTIONS, **more)


def _run(server, client, tmp_path, monkeypatch, **config):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    names = member_names("client", 3) + member_names("holder", 3)
    run_config = {"key-root": str(tmp_path / "keys"), **config}
    run_in_process(server, InProcGrid(client, names, run_config), run_config)
    return sorted(tmp_path.glob("runs/2*"))


@pytest.mark.parametrize("unit", ["record", "client"])
def test_two_lines_are_an_app(unit, tmp_path, monkeypatch):
    sizes = {} if unit == "client" else {"records": 120, "max_records": 40}
    task = _task(unit=unit, **sizes)
    server = fednode.flower.server_app(task, test=DATA[0])
    client = fednode.flower.client_app(task, data=lambda context: DATA[context.node_config["partition-id"]])
    (folder,) = _run(server, client, tmp_path, monkeypatch)
    run = fednode.load(folder, task)
    assert len(run.record.released) == 1 and run.accuracy is not None and (folder / "report.html").exists()
    assert not torch.equal(run.model.weight, task.model.weight)


def test_a_dry_run_prints_the_plan(tmp_path, monkeypatch, capsys):
    task = _task(unit="client")
    server, client = fednode.flower.server_app(task), fednode.flower.client_app(task, data=lambda _: DATA[0])
    assert _run(server, client, tmp_path, monkeypatch, **{"dry-run": True}) == []
    assert "epsilon" in capsys.readouterr().out


def _ported(task, metrics, results):
    app = fednode.flower.client_app(task)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        state = message.content["arrays"].to_torch_state_dict()
        moved = {name: tensor + 0.25 for name, tensor in state.items()}
        content = RecordDict({"arrays": ArrayRecord(moved), "metrics": MetricRecord(metrics)})
        return Message(content=content, reply_to=message)

    def main(grid, context):
        strategy = fednode.flower.FedNodeStrategy(task, context)

        def evaluate(number, arrays):
            return MetricRecord({"accuracy": 0.5, "more": 2.0})

        start = ArrayRecord(task.model.state_dict())
        results.append(strategy.start(grid, start, num_rounds=1, evaluate_fn=evaluate))

    return build_server_app(main), app


@pytest.mark.parametrize(("metrics", "moves"), [({"num-examples": 40}, True), ({"train_loss": 0.5}, False)])
def test_an_ordinary_reply_is_how_far_the_arrays_moved_and_metrics_are_refused(metrics, moves, tmp_path, monkeypatch):
    task, results = _task(unit="client", epsilon=50.0, clip=2.0), []
    (folder,) = _run(*_ported(task, metrics, results), tmp_path, monkeypatch)
    log = (folder / "run.log").read_text()
    assert ("training failed" in log) is not moves
    assert set(results[0].arrays) == {"weight", "bias"}
    assert dict(results[0].evaluate_metrics_serverapp[1]) == {"accuracy": 0.5, "more": 2.0}
    assert fednode.load(folder).accuracy == 0.5


def test_a_dry_run_of_a_strategy_saves_no_untrained_model(tmp_path, monkeypatch, capsys):
    task = _task(unit="client")
    server, client = _ported(task, {}, [])
    with pytest.raises(Interrupted):
        _run(server, client, tmp_path, monkeypatch, **{"dry-run": True})
    assert "epsilon" in capsys.readouterr().out


@pytest.mark.parametrize("reply", ["arrays", "sum"])
def test_what_is_sealed_is_how_far_the_arrays_moved(reply):
    arrays = {"weight": np.ones((2, 3), np.float32)}
    content = RecordDict({"arrays": to_arrays(arrays), "terms": ConfigRecord({"clip": 1.0})})
    asked = Message(content, dst_node_id=1, message_type="train")

    def call(message, context):
        moved = {"weight": np.ones((2, 3), np.float32) - 0.25}
        given = {"arrays": to_arrays(moved), "num": MetricRecord({"num-examples": 4})}
        if reply == "sum":
            return Message(gradient_sum(LocalUpdate(np.full(6, 0.25), 1.0), arrays), reply_to=message)
        return Message(RecordDict(given), reply_to=message)

    total = read_sum(moved_mod(asked, None, call), Layout.of(arrays))
    assert (total.unit, total.clip) == ("client", 1.0) and np.allclose(total.vector, 0.25)


@pytest.mark.parametrize(
    "call",
    [
        lambda task: fednode.flower.FedNodeStrategy(task, None, fraction_train=0.5),
        lambda task: fednode.flower.FedNodeStrategy(task, None, min_train_nodes=2),
        lambda task: fednode.flower.FedNodeStrategy(task, None, whatever=2),
        lambda task: fednode.flower.client_app(task).evaluate(),
        lambda task: fednode.flower.FedNodeStrategy(task, None).configure_train(),
        lambda task: fednode.flower.FedNodeStrategy(task, None).start(None, ArrayRecord(), num_rounds=7),
        lambda task: fednode.flower.FedNodeStrategy(task, None).start(
            None, ArrayRecord(), train_config=ConfigRecord({"lr": 1.0})
        ),
    ],
)
def test_what_has_no_place_is_said_with_what_to_do_instead(call):
    with pytest.raises(ConfigError) as caught:
        call(_task(unit="client"))
    assert len(str(caught.value)) > 40
