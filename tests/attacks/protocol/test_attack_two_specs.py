"""Two terms for one round: another spec, another model or other parameters for one client, and last round's update.

Attacker: a lying node that may send each member something else and keeps everything. Success: a client seals twice for
one round, or under other terms than the others; or an opened sum counts an old update or one of another spec. It fails
at the client, the holders, an honest node and, independently, the opening. Control: a client that forgets what it
joined seals for both specs; an old payload under the same context counts.
"""

from dataclasses import replace

import numpy as np
import pytest
from kit import cohort as kit
from kit.cohort import TASK
from kit.crypto.attacker import LyingNode, envelope, lying_node, must_refuse, real_cohort, reason_of
from kit.crypto.committee import BoxedCommittee, updates_for
from kit.crypto.insecure import InsecureRng
from kit.history.judging import judge

from fednode.protocol.envelope import Topic
from fednode.protocol.requests import TaskCard, ask_frame, read_ask, read_spec
from fednode.protocol.spec import RoundSpec
from fednode_clients.client.client import Client
from fednode_crypto import Demand, SumParams, Tampered, WrongParameters, params_from_dict, plan, scheme
from fednode_crypto.ring.params import RingParams

OTHERS = {
    "model version": lambda spec: replace(spec, model_version=spec.model_version + 1),
    "model": lambda spec: replace(spec, model_digest=b"m" * 32),
    "clip": lambda spec: replace(spec, terms=replace(spec.terms, clip=0.5)),
    "divisor": lambda spec: replace(spec, terms=replace(spec.terms, divisor=2.0)),
    "noise": lambda spec: replace(spec, terms=replace(spec.terms, local_variance=spec.terms.local_variance + 1)),
    "deadline": lambda spec: replace(spec, terms=replace(spec.terms, deadline=61.0)),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_client_seals_one_spec_a_round(node, what):
    other = OTHERS[what](node.spec)
    for name in ("client-1", "client-2"):
        for _ in range(2):
            client = node.cohort.client(name)
            must_refuse(lambda c=client, n=name: judge(c, other, node.own[n]), "second-spec")
            node.cohort.restart(name)
        again = judge(node.cohort.client(name), node.spec, node.own[name])
        assert again == node.updates[name].to_bytes()


def test_control_a_client_that_forgets_seals_both(node, monkeypatch):
    monkeypatch.setattr(Client, "_earlier", lambda *_: None)
    other = OTHERS["divisor"](node.spec)
    assert sealed_for(node, "client-1", other) != node.updates["client-1"].to_bytes()


def sealed_for(node: LyingNode, name: str, spec: RoundSpec) -> bytes:
    client = node.cohort.client(name)
    node.cohort.speaking = name
    assert judge(client, spec, node.own[name]) is None
    return client.answer(spec, lambda: node.learned(name))


def test_another_model_for_one_client(node):
    node.cohort.folder("client-3").state.drop(f"sealed/{TASK}")
    node.cohort.restart("client-3")
    client, sent = node.cohort.client("client-3"), node.sent.chunks
    other = {name: chunk + np.float32(1) for name, chunk in sent.items()}
    must_refuse(lambda: client.join(node.spec, node.parts, other), "another-model")
    # told of it in a spec of its own, it is alone: its update is for another round than everybody's
    alone = replace(OTHERS["model"](node.spec), round=2)
    for chunks in (sent, other):
        must_refuse(lambda chunks=chunks: client.join(alone, node.parts, chunks), "another-model")


def test_updates_of_two_specs_never_make_a_roster(node, monkeypatch):
    monkeypatch.setattr(Client, "_earlier", lambda *_: None)
    other = OTHERS["model"](node.spec)
    odd = envelope(sealed_for(node, "client-1", other)).signed
    mixed = [odd, *node.heads(node.names[1:])]
    for spec in (node.spec, other):
        for holder in node.holders:
            assert reason_of(node.cohort, holder, node.frame(mixed, spec=spec)) == "another-spec"


# --- replay


@pytest.fixture
def second(tmp_path):
    """Round 2 is collected; round 1 is recorded."""
    return lying_node(real_cohort(tmp_path), 2)


def test_an_honest_node_rejects_last_rounds_update(tmp_path):
    cohort = real_cohort(tmp_path)
    cohort.tell("client-4", kit.stale, rounds={2})
    driver = cohort.begun()
    assert driver.run_round(1).cause == ""
    check_rejected(driver.run_round(2), "client-4")


def test_a_roster_with_last_rounds_update_is_refused(second):
    old = envelope(second.cohort.said["client-1", "round"][0]).signed
    for holder in second.holders:
        frame = second.frame([old, *second.heads(second.names[1:])])
        assert reason_of(second.cohort, holder, frame) == "another-spec"


def test_last_rounds_payload_under_this_rounds_roster_opens_nothing(second):
    old = envelope(second.cohort.said["client-1", "round"][0]).body
    answers, total = second.answers(second.names), second.sum_of(second.names[1:])
    total.absorb(old)
    with pytest.raises(Tampered):
        second.cohort.scheme.combine(second.spec.sum_params, total, answers, second.spec.digest())


@pytest.mark.parametrize(("context", "counts"), [(b"round 1", True), (b"round 2", False)])
def test_control_an_old_update_counts_again_only_where_rounds_share_their_context(context, counts):
    params = plan("ring", Demand(dimension=20, summands=4, value_bound=900, holders=3, threshold=2))
    everyone = BoxedCommittee(scheme("ring"), params)
    old, new = updates_for(params, 2, seed=3)
    sealings = [
        everyone.sealer.seal(values, InsecureRng(seed), where)
        for seed, (values, where) in enumerate([(old, b"round 1"), (new, context)])
    ]
    total = everyone.summed(sealings)
    answers = everyone.answers(total, sealings)
    if counts:
        assert np.array_equal(everyone.scheme.combine(params, total, answers, context), old + new)
    else:
        with pytest.raises(Tampered):
            everyone.scheme.combine(params, total, answers, context)


def test_boxes_of_an_old_round_are_gone_with_their_key(second):
    old = envelope(second.cohort.said["client-1", "round"][0])
    first = replace(second, updates={name: envelope(second.cohort.said[name, "round"][0]) for name in second.names})
    spec = next(s for s in specs_of(second, "client-1") if s.digest() == old.head.spec)
    for holder in second.holders:
        frame = first.frame(first.heads(first.names[1:]), spec=spec)
        assert reason_of(second.cohort, holder, frame) == "already-opened"


def specs_of(node: LyingNode, name: str) -> list[RoundSpec]:
    return [read_spec("round", r.frame)[0] for member, r in node.cohort.asked("round") if member == name]


# --- other parameters


def other_parameters(params: SumParams) -> list[SumParams]:
    """Each field changed for the worse, where such parameters can be at all."""
    changes = [
        {"lanes": 2},
        {"value_bound": params.value_bound - 1},
        {"lane_bits": params.lane_bits + 1},
        {"threshold": params.threshold - 1},
        {"holders": params.holders - 1, "threshold": 1},
        {"summands": 1},
        {"dimension": params.dimension - 1},
        {"ring_degree": 4096 if params.ring_degree == 8192 else 8192},
    ]
    changes += [{"shift": 12}] if isinstance(params, RingParams) else [{"prime_bits": (46, 46, 60)}]
    found = []
    for change in changes:
        try:
            found.append(replace(params, **change))
        except WrongParameters:
            continue
    assert len(found) >= 6
    return found


def test_other_parameters_in_the_spec_are_refused_by_everyone(node):
    for params in other_parameters(node.spec.sum_params):
        spec = replace(node.spec, round=2, sum_params=params)
        must_refuse(lambda s=spec: judge(node.cohort.client("client-1"), s, node.parts), "another-task")
        for holder in node.holders:
            assert reason_of(node.cohort, holder, node.frame(node.heads(node.names), spec=spec)) == "another-task"


def test_other_parameters_for_a_task_that_is_known_are_refused(node):
    _, parts = read_ask("task", next(r.frame for name, r in node.cohort.asked("task") if name == "client-1"))
    published = {name: part for name, part in parts.items() if name not in ("cohort", "params")}
    for params in other_parameters(node.spec.sum_params):
        frame = ask_frame("task", TASK, TaskCard(TASK, node.cohort.cohort, params).parts() | published)
        reason = reason_of(node.cohort, "client-1", frame)
        assert reason in {"second-key", "bad-key-part", "another-committee", "low-threshold"}


def test_weak_parameters_cannot_be_named_at_all(node):
    honest = node.spec.sum_params.to_dict()
    weak = [{"threshold": 0}, {"threshold": 6}, {"ring_degree": 1024}, {"ring_degree": 4097}, {"holders": 0}]
    weak += [{"shift": 1}] if "shift" in honest else [{"prime_bits": [60, 60, 60, 60]}, {"plain_modulus": 2}]
    for change in weak:
        with pytest.raises(WrongParameters):
            params_from_dict({**honest, **change})


@pytest.mark.parametrize("threshold", [2, 3])
def test_a_threshold_that_one_corrupt_holder_breaks_is_refused_by_default(ring, threshold):
    """With 3 of 5, which a lying node might name in a new task, one corrupt holder would be too many."""
    few = TaskCard("task-2", ring.cohort.cohort, replace(ring.spec.sum_params, threshold=threshold))
    for name in ("client-1", "holder-1"):
        assert reason_of(ring.cohort, name, ask_frame("task", "task-2", few.parts())) == "low-threshold"


def test_an_answer_for_another_spec_does_not_reach_the_sum(tmp_path):
    cohort = real_cohort(tmp_path)
    cohort.tell("client-2", for_another_spec)
    check_rejected(cohort.begun().run_round(1), "client-2")


def check_rejected(outcome, client: str) -> None:
    assert outcome.cause == "" and client not in outcome.survivors
    assert [name for name, _ in outcome.rejected + outcome.discarded] == [client]


def for_another_spec(cohort, name, request):
    own = envelope(cohort.speak(name, request))
    topic = Topic(own.head.task, own.head.round + 1, bytes(32))
    return [cohort.folder(name).signer.write("update", topic, own.body, attached=own.attached).to_bytes()]
