"""A ClientApp and a model of somebody else, built from the docstrings: mods, `MemberParts`, Flower's strategy."""

import numpy as np
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fednode.assemble.enrolment import enrol_simulation
from fednode.cache import Limits, MemoryBackend, WhenFull
from fednode.clock import SkippingClock
from fednode.driver import Node, PlannedTask
from fednode.inproc import InProcGrid
from fednode.members import member_names
from fednode.optimiser import ServerOptimiser
from fednode.privacy import Budget, Ledger
from fednode.protocol.model import Layout
from fednode.protocol.spec import Terms
from fednode.records import arrays_of, to_content
from fednode.server import DriverStrategy, accuracy_record, named_arrays, to_arrays
from fednode.stores import ParameterStore, UpdateStore
from fednode_clients.membership import MemberParts, Members
from fednode_clients.mods import clip_of, gradient_sum, node_context, privacy_mods, query_of
from fednode_clients.training.gradients import clipped_gradient_sum
from fednode_crypto import Demand, noise_tail, plan, scheme

CLIENTS, HOLDERS, RECORDS = 3, 2, 20


def network() -> torch.nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))


def records_of(client: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.random.default_rng(client).normal(size=(RECORDS, 4)).astype(np.float32)
    return rows, (rows[:, 0] * rows[:, 1] > 0).astype(np.int64)


def own_app() -> ClientApp:
    app = ClientApp()
    members = Members(MemberParts())

    @app.train(mods=privacy_mods(MemberParts()))
    def train(message: Message, context: Context) -> Message:
        arrays = arrays_of(message.content)
        model = network()
        model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
        x, y = records_of(context.node_config["partition-id"])
        total = clipped_gradient_sum(model, x, y, clip_of(message))
        return Message(gradient_sum(total, arrays), reply_to=message)

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return Message(to_content(members.query(node_context(context), query_of(message))), reply_to=message)

    return app


def node_of(channel, task: PlannedTask, ledger: Ledger) -> Node:
    """The node's side."""
    clock, roomy = SkippingClock(), Limits(64, 1 << 28, 1 << 26)
    updates, parameters = (MemoryBackend(clock, roomy, WhenFull.REFUSE) for _ in range(2))
    stores = UpdateStore(updates, retry_after=1.0), ParameterStore(parameters, task.name)
    return Node(channel, scheme("bfv"), ledger, *stores, clock)


def task_for(cohort, layout: Layout) -> PlannedTask:
    terms = Terms("record", 1.0, 12, 1 << 24, RECORDS, float(CLIENTS * RECORDS), CLIENTS, 1, 60.0)
    bound = CLIENTS * (RECORDS * (1 << 12) + 1) + noise_tail(CLIENTS << 24, 1 << 20)
    params = plan("bfv", Demand(layout.dimension, CLIENTS, bound, HOLDERS, HOLDERS))
    return PlannedTask("own-task", cohort, terms, params, layout, ServerOptimiser(2, path=4.0), 1e-30)


def test_a_network_of_ones_own_is_trained_by_the_mods(tmp_path):
    enrolled = enrol_simulation(tmp_path / "keys", CLIENTS, HOLDERS)
    arrays = {name: value.detach().numpy() for name, value in network().named_parameters()}
    task = task_for(enrolled.cohort, Layout.of(arrays))
    names = member_names("client", CLIENTS) + member_names("holder", HOLDERS)
    config = {"clients": CLIENTS, "holders": HOLDERS, "key-root": str(tmp_path / "keys")}
    config |= {"scheme": "bfv", "epsilon": 50.0}
    grid = InProcGrid(own_app(), names, config)
    seen = []
    with Ledger.open(tmp_path / "ledger.jsonl", Budget(1e6, 1e-5), SkippingClock(), task.name) as ledger:
        strategy = DriverStrategy(
            task,
            enrolled.signer,
            lambda channel: node_of(channel, task, ledger),
            lambda outcome, _: seen.append(outcome),
        )
        result = strategy.start(
            grid, to_arrays(arrays), num_rounds=2, evaluate_fn=lambda number, record: accuracy_record(0.5)
        )
        assert len(ledger.entries) == 2
    trained = named_arrays(result.arrays)
    assert list(trained) == list(arrays) and set(result.evaluate_metrics_serverapp) == {1, 2}
    assert all(np.isfinite(trained[name]).all() and not np.array_equal(trained[name], arrays[name]) for name in arrays)
    check_is_gradient_and_noise(seen[0].release.mean, task)


def check_is_gradient_and_noise(mean: np.ndarray, task: PlannedTask) -> None:
    """The released sum is the clipped gradients' sum, off by noise of the agreed size and not by more."""
    sums = [clipped_gradient_sum(network(), *records_of(client), 1.0).vector for client in range(CLIENTS)]
    stddev = np.sqrt(CLIENTS * task.terms.local_variance) * 2.0**-task.terms.grid_bits
    off = mean * task.terms.divisor - np.sum(sums, axis=0)
    assert np.abs(off).max() < 6 * stddev
    assert 0.5 * stddev < np.sqrt(np.mean(off**2)) < 1.5 * stddev
