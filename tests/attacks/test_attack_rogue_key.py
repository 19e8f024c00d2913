"""A rogue share of the joint key (`bfv`): the last holder to reveal picks b_j so that it cancels everybody else's.

Attacker: one corrupt holder that sees all other parts before it reveals its own. Success: the joint key is its own, and
it alone opens any update. It fails: the part does not match its commitment, so no client and no holder accepts the key;
and if a lying node exchanges the commitment later, the honest parts name the commitments that they were revealed under.
Control: without either check the attacker's secret alone opens a client's update.
"""

import numpy as np
import pytest
from kit.crypto.algebra import interpolated
from kit.crypto.attacker import BFV, asked, envelope, real_cohort, reason_of
from kit.crypto.committee import TASK as KEY_TASK
from kit.crypto.committee import keyed, updates_for
from kit.crypto.insecure import InsecureRng
from numpy.typing import NDArray

from fednode.errors import OpeningRejected, TooFewHolders
from fednode.protocol.envelope import Topic
from fednode.protocol.requests import KeyParts, TaskCard, ask_frame
from fednode.wire import join_parts, split_parts
from fednode_crypto import Demand, Tampered, plan, scheme
from fednode_crypto.bfv.context import bfv_context, binding
from fednode_crypto.bfv.keys import BfvContribution, BfvKey, commit
from fednode_crypto.bfv.slots import from_slots
from fednode_crypto.encoding import from_bytes, to_bytes
from fednode_crypto.hazmat.tenseal_bfv import toolbox

SCHEME = scheme("bfv")
PARAMS = plan("bfv", Demand(dimension=50, summands=4, value_bound=1_000, holders=3, threshold=2))
NONCE = bytes(32)
ROGUE = 3


def cancelling(params, own: bytes, others: list[bytes]) -> bytes:
    """A reveal that makes the sum of all parts equal to `own`'s part."""
    key = bfv_context(params).key
    part = from_bytes(own[:-32], key)
    for other in others:
        key.subtract(part, from_bytes(other[:-32], key))
    return to_bytes(part, key) + NONCE


def secret_of(params, contribution: BfvContribution) -> NDArray[np.uint64]:
    """The attacker knows its own secret: from two of the shares that it dealt, in NTT form."""
    ring, shares = bfv_context(params).data, contribution.shares()
    return interpolated({p: from_bytes(shares[p], ring) for p in range(1, params.threshold + 1)}, ring)


def decrypted(params, payload: bytes, secret: NDArray[np.uint64]) -> NDArray[np.int64] | None:
    """What c0 + c1 s opens to; None when it is no update."""
    known = bfv_context(params)
    words = from_bytes(payload, known.data, (params.blocks, 2))
    phase, masked = np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])
    known.data.forward(masked)
    known.data.multiply(masked, secret)
    known.data.inverse(masked)
    known.data.add(phase, masked)
    try:
        return from_slots(np.stack([toolbox(known.shape).decode(block) for block in phase]), params)
    except Tampered:
        return None


@pytest.fixture(scope="module")
def everyone():
    return keyed(SCHEME, PARAMS, seed=11)


@pytest.fixture(scope="module")
def rogue(everyone):
    own = BfvContribution.fresh(PARAMS, KEY_TASK, ROGUE, InsecureRng(66))
    others = [everyone.contributions[p].reveal() for p in (1, 2)]
    return own, cancelling(PARAMS, own.reveal(), others)


def test_a_cancelling_part_is_not_what_was_committed_to(everyone, rogue):
    own, reveal = rogue
    reveals = {p: c.reveal() for p, c in everyone.contributions.items()} | {ROGUE: reveal}
    commitments = {p: c.commitment for p, c in everyone.contributions.items()}
    for claimed in (commitments[ROGUE], own.commitment, bytes(32)):
        with pytest.raises(Tampered, match="holder 3"):
            SCHEME.joint_key(PARAMS, KEY_TASK, reveals, {**commitments, ROGUE: claimed})


def test_control_without_the_check_the_joint_key_is_the_attackers(everyone, rogue):
    own, reveal = rogue
    reveals = {p: c.reveal() for p, c in everyone.contributions.items()} | {ROGUE: reveal}
    unchecked = {p: commit(binding(PARAMS, KEY_TASK), p, r) for p, r in reveals.items()}
    key = BfvKey.joined(PARAMS, KEY_TASK, reveals, unchecked)
    assert np.array_equal(key.words, from_bytes(own.reveal()[:-32], bfv_context(PARAMS).key))
    values = updates_for(PARAMS, 2, seed=4)[0]
    secret = secret_of(PARAMS, own)
    payload = SCHEME.sealer(PARAMS, key).seal(values, InsecureRng(1)).payload
    assert np.array_equal(decrypted(PARAMS, payload, secret), values)
    # and under the honest key the very same secret opens nothing
    honest = everyone.sealer.seal(values, InsecureRng(1)).payload
    found = decrypted(PARAMS, honest, secret)
    assert found is None or not np.array_equal(found, values)


# --- the ceremony


def rogue_reveal(cohort, name, request):
    """Holder 3 answers "key-reveal" last and knows what the others said."""
    bundle = split_parts(envelope(cohort.speak(name, request)).body, 8)
    honest = envelope(bundle["part"])
    others = [cohort.said[other, "key-reveal"][-1] for other in ("holder-1", "holder-2")]
    parts = [envelope(split_parts(envelope(other).body, 8)["part"]).body for other in others]
    body = cancelling(cohort.size.sum_params(), honest.body, parts)
    signer = cohort.folder(name).signer
    bundle["part"] = signer.write("key-part", Topic("task-1"), body, honest.head.about).to_bytes()
    return [signer.write("key-bundle", Topic("task-1"), join_parts(bundle)).to_bytes()]


def test_the_ceremony_ends_without_a_key_and_no_client_is_told(tmp_path):
    cohort = real_cohort(tmp_path, BFV)
    cohort.tell("holder-3", rogue_reveal, "key-reveal", rounds=None)
    with pytest.raises((OpeningRejected, TooFewHolders), match=r"holder 3|holder-3"):
        cohort.begun()
    assert not cohort.asked("task") and not cohort.asked("round")


def published(cohort) -> dict[str, bytes]:
    """What a node has once holders 1 and 2 have revealed."""
    parts = TaskCard("task-1", cohort.cohort, cohort.size.sum_params()).parts()
    told = {n: asked(cohort, f"holder-{n}", ask_frame("key-commit", "task-1", parts)) for n in (1, 2, 3)}
    found = {f"commitment-{n}": said.to_bytes() for n, said in told.items()}
    frame = ask_frame("key-reveal", "task-1", found)
    for n in (1, 2, 3):
        bundle = split_parts(asked(cohort, f"holder-{n}", frame).body, 8)
        found |= {f"reveal-{n}": bundle["part"], f"share-{n}": bundle["share-1"]}
    return found


def exchanged(cohort, parts: dict[str, bytes], *, commitment: bool) -> tuple[dict[str, bytes], BfvContribution]:
    """`parts` with holder 3's cancelling part, and with a commitment to it that comes after the fact or without."""
    params = cohort.size.sum_params()
    task = TaskCard("task-1", cohort.cohort, params).key_context()
    own = BfvContribution.fresh(params, task, ROGUE, InsecureRng(5))
    reveal = cancelling(params, own.reveal(), [envelope(parts[f"reveal-{n}"]).body for n in (1, 2)])
    signer = cohort.folder("holder-3").signer
    changed = dict(parts)
    if commitment:
        late = commit(binding(params, task), ROGUE, reveal)
        changed["commitment-3"] = signer.write("key-commitment", Topic("task-1"), late).to_bytes()
    names = {"commitments": KeyParts.from_parts(only_commitments(changed)).commitments_digest().hex()}
    changed["reveal-3"] = signer.write("key-part", Topic("task-1"), reveal, names).to_bytes()
    return changed, own


def only_commitments(parts: dict[str, bytes]) -> dict[str, bytes]:
    return {name: part for name, part in parts.items() if name.startswith("commitment-")}


def task_frame(cohort, parts: dict[str, bytes]) -> bytes:
    card = TaskCard("task-1", cohort.cohort, cohort.size.sum_params())
    shown = {name: part for name, part in parts.items() if not name.startswith("share-")}
    return ask_frame("task", "task-1", card.parts() | shown)


@pytest.mark.parametrize("commitment", [False, True])
def test_clients_and_holders_take_no_part_that_was_not_committed_to_in_time(tmp_path, commitment):
    """With a late commitment, which a lying node shows: the honest parts name those that they were revealed under."""
    cohort = real_cohort(tmp_path, BFV)
    parts, _ = exchanged(cohort, published(cohort), commitment=commitment)
    assert reason_of(cohort, "client-1", task_frame(cohort, parts)) == "bad-key-part"
    assert reason_of(cohort, "holder-1", ask_frame("key-join", "task-1", parts)) == "bad-key-part"


def test_honest_holders_reveal_under_one_set_of_commitments(tmp_path):
    cohort = real_cohort(tmp_path, BFV)
    parts, _ = exchanged(cohort, published(cohort), commitment=True)
    shown = only_commitments(parts)
    for holder in ("holder-1", "holder-2"):
        assert reason_of(cohort, holder, ask_frame("key-reveal", "task-1", shown)) == "second-key"


def test_control_where_parts_do_not_name_them_the_key_is_the_attackers(tmp_path, monkeypatch):
    monkeypatch.setattr(KeyParts, "commitments_digest", lambda _: bytes(32))
    cohort = real_cohort(tmp_path, BFV)
    parts, own = exchanged(cohort, published(cohort), commitment=True)
    assert reason_of(cohort, "client-1", task_frame(cohort, parts)) == ""
    known, sealer = cohort.client("client-1")._known["task-1"]
    values = updates_for(known.card.sum_params, 4, seed=2)[0]
    payload = sealer.seal(values, InsecureRng(1)).payload
    assert np.array_equal(decrypted(known.card.sum_params, payload, secret_of(known.card.sum_params, own)), values)
