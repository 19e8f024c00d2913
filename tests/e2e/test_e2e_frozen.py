"""Frozen arrays through Flower's messages, with a process's memory gone after each of them."""

import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from kit.smallrun import report_of, small_run

from fednode.assemble.enrolment import enrol_simulation
from fednode.cache import Limits, MemoryBackend, WhenFull
from fednode.clock import SkippingClock
from fednode.driver import Node, PlannedTask
from fednode.inproc import InProcGrid
from fednode.members import member_names
from fednode.optimiser import ServerOptimiser
from fednode.privacy import Budget, Ledger
from fednode.protocol.headroom import sum_headroom
from fednode.protocol.model import Layout
from fednode.protocol.spec import Terms
from fednode.records import arrays_of, to_content
from fednode.server import DriverStrategy, named_arrays, to_arrays
from fednode.stores import ParameterStore, UpdateStore, parameter_limits
from fednode_clients.membership import MemberParts, Members
from fednode_clients.mods import clip_of, gradient_sum, node_context, privacy_mods, query_of
from fednode_crypto import Demand, plan, scheme

CLIENTS, HOLDERS, RECORDS = 3, 3, 20
BODY = {"body.weight": np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)}


class _Sum:
    def __init__(self, vector: np.ndarray) -> None:
        self.vector, self.records, self.clip = vector, RECORDS, 1.0


def app_of(*, forgetful: bool, seen: list) -> ClientApp:
    app, members, kept = ClientApp(), Members(MemberParts()), privacy_mods(MemberParts())

    def learn(message: Message, context: Context) -> Message:
        arrays, frozen = arrays_of(message.content), arrays_of(message.content, "frozen")
        seen.append((context.node_config["partition-id"], frozen))
        assert clip_of(message) == 1.0 and list(arrays) == ["head"]
        return Message(gradient_sum(_Sum(frozen["body.weight"][0].astype(np.float64)), arrays), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        consent, sealing = privacy_mods(MemberParts()) if forgetful else kept
        return consent(message, context, lambda m, c: sealing(m, c, learn))

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return Message(to_content(members.query(node_context(context), query_of(message))), reply_to=message)

    return app


def run(root, *, forgetful: bool, staleness: int = 0):
    enrolled, layout = enrol_simulation(root / "keys", CLIENTS, HOLDERS), Layout(("head",), ((8,),))
    terms = Terms("record", 1.0, 12, 1 << 24, RECORDS, float(CLIENTS * RECORDS), CLIENTS, 1, 60.0, staleness)
    params = plan("ring", Demand(8, CLIENTS, sum_headroom(terms, 8, CLIENTS), HOLDERS, HOLDERS))
    task = PlannedTask("frozen", enrolled.cohort, terms, params, layout, ServerOptimiser(3, path=4.0), 1e-30, BODY)
    clock, most = SkippingClock(), params.upload_bytes + 4_096

    def node(channel) -> Node:
        updates = MemoryBackend(clock, Limits(2 * CLIENTS, CLIENTS * most, most), WhenFull.REFUSE)
        parameters = MemoryBackend(clock, parameter_limits(task.outline), WhenFull.REFUSE)
        stores = UpdateStore(updates, retry_after=1.0), ParameterStore(parameters, task.name)
        return Node(channel, scheme("ring"), ledger, *stores, clock)

    names = member_names("client", CLIENTS) + member_names("holder", HOLDERS)
    config = {"clients": CLIENTS, "holders": HOLDERS, "key-root": str(root / "keys"), "staleness": staleness}
    config["epsilon"] = 1e6
    rounds, seen = [], []
    grid = InProcGrid(app_of(forgetful=forgetful, seen=seen), names, config)
    with Ledger.open(root / "ledger.jsonl", Budget(1e6, 1e-5), clock, task.name) as ledger:
        start = to_arrays({"head": np.zeros(8, dtype=np.float32)} | BODY)
        result = DriverStrategy(task, enrolled.signer, node, lambda *told: rounds.append(told)).start(
            grid, start, num_rounds=3
        )
    return [outcome for outcome, _ in rounds], named_arrays(result.arrays), seen


@pytest.mark.parametrize("forgetful", [False, True])
def test_a_frozen_body_comes_down_once(tmp_path, forgetful):
    outcomes, arrays, seen = run(tmp_path, forgetful=forgetful)
    first, second, third = (outcome.bytes_down for outcome in outcomes)
    assert first - second == BODY["body.weight"].nbytes and abs(third - second) < 10
    assert all(len(outcome.survivors) == CLIENTS for outcome in outcomes)
    assert len(seen) == 3 * CLIENTS
    assert all(np.array_equal(frozen["body.weight"], BODY["body.weight"]) for _, frozen in seen)
    assert np.array_equal(arrays["body.weight"], BODY["body.weight"]) and np.abs(arrays["head"]).max() > 0


def test_a_copy_of_the_version_before_may_be_used_in_the_next_process(tmp_path):
    outcomes, _, _ = run(tmp_path, forgetful=True, staleness=1)
    first, second, third = (outcome.bytes_down for outcome in outcomes)
    heads = 4 * 8
    assert second < first - BODY["body.weight"].nbytes + 3 * 1_000 and all(len(o.survivors) == 3 for o in outcomes)
    assert third < first - BODY["body.weight"].nbytes + heads


def test_a_whole_run_with_older_models_allowed(tmp_path):
    """Every member of the simulation agrees, since the run's configuration is theirs."""
    result = small_run(tmp_path, staleness=1, rounds=3, features=1024)
    assert result.error is None
    first, second, third = (entry["bytes_down"] for entry in report_of(result.folder)["rounds"])
    assert second < first and second < third
