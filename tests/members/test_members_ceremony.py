"""How holders and clients take a joint key: what is not signed, or not what was committed to, is no key."""

import secrets
import shutil
from dataclasses import replace

import pytest
from kit.cohort import TASK, FakeCohort, Size, wide_limits

from fednode.driver.steps.ceremony import agree_on_key
from fednode.errors import PeerFault
from fednode.protocol.cohort import Cohort
from fednode.protocol.envelope import Topic
from fednode.protocol.requests import KeyParts, TaskCard, ask_frame
from fednode.wire import join_parts, split_parts
from fednode_clients.client.client import Client
from fednode_clients.keyfolder.audit_log import RECORD_HEAD
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.tasks import verified_card
from fednode_crypto import SystemRng, WrongParameters, scheme
from fednode_crypto.identity import SigningKey


@pytest.fixture
def kit(tmp_path):
    return FakeCohort(tmp_path, Size(clients=3))


def card_of(kit, **changes) -> TaskCard:
    return TaskCard(TASK, kit.cohort, replace(kit.size.sum_params(), **changes))


def commit(kit, name="holder-1", card=None):
    return kit.holder(name).handle(ask_frame("key-commit", TASK, (card or card_of(kit)).parts()))


def commitments(kit) -> KeyParts:
    return KeyParts({n: commit(kit, f"holder-{n}") for n in (1, 2, 3)}, {})


def reveal(kit, parts, name="holder-1"):
    return kit.holder(name).handle(ask_frame("key-reveal", TASK, parts))


def join_frame(kit, change=lambda parts: parts) -> bytes:
    """What holder-1 is asked to join with, from an honest ceremony so far."""
    committed = commitments(kit)
    bundles = {n: split_parts(reveal(kit, committed.parts(), f"holder-{n}").body, 4) for n in (1, 2, 3)}
    parts = dict(committed.parts())
    for n, bundle in bundles.items():
        parts[f"reveal-{n}"] = bundle["part"]
        parts[f"share-{n}"] = bundle["share-1"]
    return ask_frame("key-join", TASK, change(parts))


def must_refuse(ask, reason) -> None:
    with pytest.raises(PeerFault) as refused:
        ask()
    assert refused.value.reason == reason


def other_cohort(kit, key=None) -> Cohort:
    """The same names, one holder with keys of the node's making, signed by somebody."""
    swapped = KeyFolder.create(kit.root / secrets.token_hex(4), "holder-2", SigningKey.generate().public)
    members = [m if m.name != "holder-2" else swapped.member("holder", 2) for m in kit.cohort.members]
    return Cohort.enrol(members, key or SigningKey.generate(), kit.cohort.node)


# --- committing


def test_a_commitment_is_the_same_however_often_it_is_asked(kit):
    first = commit(kit).body
    kit.restart("holder-1")
    assert commit(kit).body == first and len(first) == 32


def test_a_cohort_that_the_enrolment_key_did_not_sign(kit):
    card = TaskCard(TASK, other_cohort(kit), kit.size.sum_params())
    must_refuse(lambda: commit(kit, card=card), "unknown-cohort")
    edited = TaskCard(TASK, replace(other_cohort(kit), signature=kit.cohort.signature), kit.size.sum_params())
    must_refuse(lambda: commit(kit, card=edited), "unknown-cohort")


def test_a_cohort_with_other_keys_under_my_name(kit, tmp_path):
    root = SigningKey.generate()
    mine = KeyFolder.create(tmp_path / "mine", "holder-2", root.public)
    card = TaskCard(TASK, other_cohort(kit, root), kit.size.sum_params())
    with pytest.raises(PeerFault, match="not-enrolled"):
        verified_card(mine, wide_limits(), TASK, card.parts())


def test_a_client_holds_no_keys(kit):
    as_holder = kit.holder("client-1")
    must_refuse(lambda: as_holder.handle(ask_frame("key-commit", TASK, card_of(kit).parts())), "not-a-holder")


def test_a_threshold_that_two_groups_could_reach(tmp_path):
    kit = FakeCohort(tmp_path, Size(clients=3, holders=4, threshold=2))
    must_refuse(lambda: commit(kit), "low-threshold")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"holders": 4, "threshold": 3}, "another-committee"), ({"summands": 1 << 20}, "too-many")],
)
def test_a_sum_for_another_committee_or_more_than_there_are(kit, changes, reason):
    must_refuse(lambda: commit(kit, card=card_of(kit, **changes)), reason)


def test_other_parameters_for_a_task_that_is_known(kit):
    commit(kit)
    must_refuse(lambda: commit(kit, card=card_of(kit, dimension=6)), "second-key")
    assert len(commit(kit).body) == 32


@pytest.mark.parametrize(
    "parts", [{}, {"cohort": b""}, {"cohort": b"{}", "params": b"{}"}, {"cohort": b"x", "params": b"x"}]
)
def test_a_card_that_is_none(kit, parts):
    must_refuse(lambda: kit.holder("holder-1").handle(ask_frame("key-commit", TASK, parts)), "malformed")


def test_parameters_that_leave_no_room_for_the_noise(tmp_path):
    kit = FakeCohort(tmp_path, Size(clients=3), scheme("bfv"))
    *data, special = kit.size.sum_params().prime_bits
    narrower = (*(bits - 6 for bits in data), special)
    must_refuse(lambda: commit(kit, card=card_of(kit, prime_bits=narrower)), "bad-parameters")
    # and the task is still to be had with good ones
    assert len(commit(kit).body) == 32


# --- revealing


def test_nothing_is_revealed_before_all_are_committed(kit):
    parts = commitments(kit).parts()
    must_refuse(lambda: reveal(kit, {}), "bad-key-part")
    fewer = {name: data for name, data in parts.items() if name != "commitment-3"}
    must_refuse(lambda: reveal(kit, fewer), "bad-key-part")
    assert reveal(kit, parts).head.kind == "key-bundle"


def test_a_commitment_in_another_holders_name(kit):
    parts = commitments(kit).parts()
    must_refuse(lambda: reveal(kit, parts | {"commitment-2": parts["commitment-3"]}), "bad-key-part")


def test_nothing_is_revealed_for_other_commitments_later(kit):
    parts = commitments(kit).parts()
    reveal(kit, parts)
    changed = kit.folder("holder-2").signer.write("key-commitment", Topic(TASK), bytes(32)).to_bytes()
    must_refuse(lambda: reveal(kit, parts | {"commitment-2": changed}), "second-key")


def test_only_what_it_committed_to_is_revealed(kit):
    parts = commitments(kit).parts()
    changed = kit.folder("holder-1").signer.write("key-commitment", Topic(TASK), bytes(32)).to_bytes()
    must_refuse(lambda: reveal(kit, parts | {"commitment-1": changed}), "bad-key-part")


def test_a_reveal_of_a_task_that_was_never_committed_to(kit):
    must_refuse(lambda: reveal(kit, {}), "unknown-task")


def test_the_shares_of_a_secret_are_boxed_for_one_holder_each(kit):
    bundle = split_parts(reveal(kit, commitments(kit).parts()).body, 4)
    assert set(bundle) == {"part", "share-1", "share-2", "share-3"}
    kept = kit.holder("holder-1").folder.state.get(f"key-secret/{TASK}")
    secrets = kit.scheme.restore_contribution(kit.size.sum_params(), kit.task().key_context(), kept).shares()
    assert all(secret not in join_parts(bundle) for secret in secrets.values())


# --- joining


def test_an_honest_join_drops_the_secret_and_keeps_the_share(kit):
    answer = kit.holder("holder-1").handle(join_frame(kit))
    folder = kit.folder("holder-1")
    assert answer.head.kind == "key-joined"
    assert folder.state.get(f"key-secret/{TASK}") is None and folder.state.get(f"share/{TASK}") is not None


def without(prefix):
    return lambda kit: join_frame(kit, lambda parts: {k: v for k, v in parts.items() if not k.startswith(prefix)})


def bent(label, make):
    return lambda kit: join_frame(kit, lambda parts: parts | {label: make(kit, parts)})


def copied(label):
    return lambda kit, parts: parts[label]


def signed(kind, task=TASK, body=bytes(32), about=None):
    """Something else that holder-2 really signs."""
    return lambda kit, parts: kit.folder("holder-2").signer.write(kind, Topic(task), body, about).to_bytes()


def boxed_for_another(kit, parts):
    bundle = split_parts(reveal(kit, commitments(kit).parts(), "holder-2").body, 4)
    return bundle["share-3"]


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (without("share-2"), "bad-share"),
        (without("reveal-2"), "bad-key-part"),
        (without("reveal-"), "bad-key-part"),
        (without("commitment-"), "bad-key-part"),
        (bent("share-2", copied("share-3")), "bad-share"),
        (bent("share-2", copied("reveal-2")), "bad-share"),
        (bent("share-2", boxed_for_another), "bad-share"),
        (bent("share-2", signed("key-share", about={"to": "holder-1"})), "bad-share"),
        (bent("share-2", signed("key-share", "task-2", about={"to": "holder-1"})), "bad-share"),
        (bent("reveal-2", copied("reveal-3")), "bad-key-part"),
        (bent("reveal-2", signed("key-part")), "bad-key-part"),
        (bent("reveal-2", signed("key-part", "task-2")), "bad-key-part"),
        (bent("reveal-9", copied("reveal-2")), "bad-key-part"),
        (bent("reveal-x", copied("reveal-2")), "malformed"),
    ],
)
def test_what_is_missing_swapped_or_changed_is_no_key(kit, frame, reason):
    data = frame(kit)
    must_refuse(lambda: kit.holder("holder-1").handle(data), reason)
    assert kit.folder("holder-1").state.get(f"share/{TASK}") is None


# --- the task, at a client


def published(kit) -> dict[str, bytes]:
    agreed = agree_on_key(kit.node(), kit.task())
    return agreed.card.parts() | agreed.published.parts()


def take(kit, parts, name="client-1"):
    return kit.client(name).take_task(ask_frame("task", TASK, parts))


def test_a_client_takes_the_task_and_says_so(kit):
    parts = published(kit)
    answer = take(kit, parts)
    assert (answer.head.kind, answer.head.task, answer.head.sender) == ("ready", TASK, "client-1")
    kit.restart("client-1")
    assert take(kit, parts).head.kind == "ready"


def test_a_client_believes_its_own_enrolment_key_alone(kit):
    parts = published(kit)
    must_refuse(lambda: take(kit, parts | {"cohort": other_cohort(kit).to_bytes()}), "unknown-cohort")
    must_refuse(lambda: take(kit, parts | {"cohort": b"{}"}), "malformed")
    assert kit.client("client-1").folder.state.get(f"task/{TASK}") is None


def test_a_key_part_that_was_changed_after_its_commitment_or_forged(kit, tmp_path):
    parts = published(kit)
    write = kit.folder("holder-2").signer.write
    for body in (bytes(32), b"", b"longer than any part of this key is, so it is none"):
        changed = write("key-part", Topic(TASK), body).to_bytes()
        must_refuse(lambda changed=changed: take(kit, parts | {"reveal-2": changed}), "bad-key-part")
    by_another = kit.folder("holder-3").signer.write("key-part", Topic(TASK), bytes(32)).to_bytes()
    must_refuse(lambda: take(kit, parts | {"reveal-2": by_another}), "bad-key-part")
    forger = KeyFolder.create(tmp_path / "forger", "holder-2", SigningKey.generate().public)
    forged = forger.signer.write("key-part", Topic(TASK), bytes(32)).to_bytes()
    must_refuse(lambda: take(kit, parts | {"reveal-2": forged}), "bad-signature")


def test_a_second_key_for_the_same_task(kit, tmp_path):
    parts = published(kit)
    take(kit, parts)
    for name in kit.size.holder_names:
        for kept in ("key-card", "key-heads", "key-secret", "task", "task-key", "share", "answer"):
            kit.folder(name).state.drop(f"{kept}/{TASK}")
        (kit.root / "keys" / name / "record.jsonl").unlink()
        kit.folder(name).state.drop(RECORD_HEAD)
        shutil.rmtree(kit.folder(name).tasks.taken)
        kit.restart(name)
    for name in ("ledger.jsonl", "ledger.head"):
        kit.root.joinpath(name).unlink()
    second = published(kit)
    must_refuse(lambda: take(kit, second), "second-key")
    kit.restart("client-1")
    must_refuse(lambda: take(kit, second), "second-key")
    assert take(kit, second, "client-2").head.kind == "ready"


def test_a_scheme_that_the_member_does_not_have(tmp_path):
    kit = FakeCohort(tmp_path, Size(clients=3))
    parts = published(kit)

    def unknown(name):
        raise WrongParameters(f"there is no scheme {name} here")

    client = Client(kit.folder("client-1"), wide_limits(), unknown, SystemRng())
    must_refuse(lambda: client.take_task(ask_frame("task", TASK, parts)), "unknown-scheme")
