"""The ceremony for the joint key of `bfv`: no dealer, commitments before parts, a known vector opened at the end.

All holders take part, once a task. After that any `threshold` of them open a round.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from fednode.aggregate import Fold
from fednode.driver.channel import Request
from fednode.driver.query import NO_ANSWER, ask, describe, raise_if_stopped, read_answer
from fednode.driver.steps.open import OpenRequest, combine_answers, open_requests, read_opening
from fednode.driver.task import Node, PlannedTask
from fednode.errors import OpeningRejected, PeerFault, TooFewHolders
from fednode.protocol.envelope import Envelope
from fednode.protocol.key_check import known_vector
from fednode.protocol.requests import MAX_KEY_PART, KeyParts, TaskCard, ask_frame, roster_part, spec_frame
from fednode.protocol.spec import KEY_CHECK_ROUND, RoundSpec
from fednode.wire import split_parts
from fednode_crypto import CryptoError, KeyedScheme
from fednode_crypto.interfaces import JointKey

log = logging.getLogger("fednode.driver")


@dataclass(frozen=True, slots=True)
class AgreedKey:
    """A joint key that the holders agreed on and tested, with the signed parts from which clients check it."""

    key: JointKey
    card: TaskCard
    published: KeyParts


def agree_on_key(node: Node, task: PlannedTask) -> AgreedKey:
    """Run the ceremony with all holders and open a known vector under the new key.

    Four turns, each answered by every holder: commit to a part; reveal it, with a boxed share for each other holder;
    join the received shares; seal the known vector.

    Raises `TooFewHolders` naming the holders that failed, `OpeningRejected` if the sum of the known vectors is wrong,
    `Interrupted` if the operator asked to stop.
    """
    if node.scheme.boxed:
        raise ValueError(f"scheme {node.scheme.name} has no joint key to agree on")
    try:
        return _agree(node, task, node.scheme)
    except PeerFault as fault:
        raise TooFewHolders(
            f"a holder broke the key ceremony: {describe(fault)}; find out why and start again"
        ) from fault


def _agree(node: Node, task: PlannedTask, scheme: KeyedScheme) -> AgreedKey:
    card = TaskCard(task.name, task.cohort, task.sum_params)
    committed = _ask_all(node, task, "key-commitment", _same(task, ask_frame("key-commit", task.name, card.parts())))
    commitments = KeyParts(_by_point(task, committed), {}).verified(card)
    bundles = _ask_all(node, task, "key-bundle", _same(task, ask_frame("key-reveal", task.name, commitments.parts())))
    contents = {name: _contents(name, bundle, task.sum_params.holders + 1) for name, bundle in bundles.items()}
    reveals = {task.cohort.member(name).point: _envelope(name, parts, "part") for name, parts in contents.items()}
    published = KeyParts(commitments.commitments, reveals).verified(card)
    key = _joint_key(scheme, task, published)
    _ask_all(node, task, "key-joined", _join_requests(task, published, contents))
    _check_key(node, task, key)
    log.info("joint key %s agreed by %d holders", key.digest().hex()[:16], len(reveals))
    return AgreedKey(key, card, published)


def _same(task: PlannedTask, frame: bytes) -> dict[str, bytes]:
    return {holder.name: frame for holder in task.cohort.holders}


def _ask_all(node: Node, task: PlannedTask, kind: str, frames: Mapping[str, bytes]) -> dict[str, Envelope]:
    """One answer of every holder. Raises `TooFewHolders` if one is missing."""
    requests = {name: Request("query", f"{task.name}/{kind}", frame) for name, frame in frames.items()}
    most = (task.sum_params.holders + 1) * (MAX_KEY_PART + 1024) + task.sum_params.payload_bytes
    step = f"making the joint key, {kind}"
    answers, faults = ask(node, requests, task.terms.deadline, step, lambda reply: read_answer(reply, kind, task, most))
    if len(answers) < len(frames):
        raise_if_stopped(node, "while the joint key was made")
        raise TooFewHolders(
            f"all {len(frames)} holders are needed to make the joint key, and {_missing(frames, answers, faults)}; "
            "bring them back and start again"
        )
    return answers


def _missing(asked: Iterable[str], answers: Collection[str], faults: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {faults.get(name, NO_ANSWER)}" for name in sorted(asked) if name not in answers)


def _by_point(task: PlannedTask, envelopes: Mapping[str, Envelope]) -> dict[int, Envelope]:
    return {task.cohort.member(name).point: envelope for name, envelope in envelopes.items()}


def _contents(name: str, bundle: Envelope, most: int) -> dict[str, bytes]:
    with _named(name):
        return split_parts(bundle.body, most)


@contextmanager
def _named(holder: str) -> Iterator[None]:
    """Add the holder's name to a fault: the ceremony ends with it."""
    try:
        yield
    except PeerFault as fault:
        raise PeerFault(fault.reason, f"{holder}: {fault.detail}") from fault


def _envelope(name: str, parts: Mapping[str, bytes], label: str) -> Envelope:
    if label not in parts:
        raise TooFewHolders(f"{name} sent no {label} of the joint key; start again without it")
    with _named(name):
        return Envelope.from_bytes(parts[label], MAX_KEY_PART)


def _joint_key(scheme: KeyedScheme, task: PlannedTask, published: KeyParts) -> JointKey:
    try:
        return scheme.joint_key(
            task.sum_params, task.key_context(), published.bodies("reveals"), published.bodies("commitments")
        )
    except CryptoError as error:
        raise OpeningRejected(f"a part of the joint key is not the one that was committed to: {error}") from error


def _join_requests(
    task: PlannedTask, published: KeyParts, contents: Mapping[str, Mapping[str, bytes]]
) -> dict[str, bytes]:
    frames = {}
    for holder in task.cohort.holders:
        shares = {
            f"share-{task.cohort.member(name).point}": parts[f"share-{holder.point}"]
            for name, parts in contents.items()
            if f"share-{holder.point}" in parts
        }
        frames[holder.name] = ask_frame("key-join", task.name, published.parts() | shares)
    return frames


def key_check_spec(task: PlannedTask, key: JointKey) -> RoundSpec:
    """The spec of round 0, in which the holders seal a known vector and open its sum."""
    return RoundSpec(
        task=task.name,
        round=KEY_CHECK_ROUND,
        model_version=0,
        model_digest=bytes(32),
        cohort_digest=task.cohort.digest(),
        key_digest=key.digest(),
        terms=task.terms,
        sum_params=task.sum_params,
    )


def _check_key(node: Node, task: PlannedTask, key: JointKey) -> None:
    spec = key_check_spec(task, key)
    sealed = _ask_all(node, task, "update", _same(task, spec_frame("key-check", spec)))
    fold = Fold(node.scheme.zero(task.sum_params))
    for name, envelope in sorted(sealed.items()):
        with _named(name):
            fold = fold.add(name, envelope.body)
    roster = roster_part(sealed[name].signed for name in sorted(sealed))
    request = open_requests(task, spec, roster, fold, (node.ledger.mark, None))
    answers = _openings(node, task, request)
    opened = combine_answers(node, task, fold, answers, spec.digest()).values
    if not np.array_equal(opened, known_vector(task.sum_params, task.key_context()) * len(sealed)):
        raise OpeningRejected("the known vector did not come out of the new joint key; start again with a new task")


def _openings(node: Node, task: PlannedTask, request: OpenRequest) -> dict[int, bytes]:
    """The holders' answers by point. Raises `TooFewHolders`, naming the missing, if there are too few to open."""
    openings, faults = ask(
        node,
        request.messages,
        task.terms.deadline,
        "checking the joint key",
        lambda reply: read_opening(reply, request, task, node.scheme),
    )
    raise_if_stopped(node, "while the joint key was made")
    if len(openings) < task.sum_params.threshold:
        raise TooFewHolders(
            f"{len(openings)} of {len(request.messages)} holders opened the known vector and "
            f"{task.sum_params.threshold} are needed ({_missing(request.messages, openings, faults)}); bring them back "
            "and start again"
        )
    return {opening.point: opening.body for opening in openings.values()}
