"""The trust root: only what the enrolment key signed counts, and no list is ambiguous."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.faults import reason_of
from kit.members import CLIENTS, ENROLMENT, HOLDERS, STRANGER, InsecureMember, flipped, small_cohort

from fednode.errors import PeerFault
from fednode.protocol.cohort import Cohort, Member
from fednode.wire import canonical
from fednode_crypto.identity import SigningKey

EVERYBODY = [member.public for member in CLIENTS + HOLDERS]


def read_and_verified(data: bytes) -> Cohort:
    return Cohort.from_bytes(data).verified(ENROLMENT.public)


def changed_file(change) -> bytes:
    """The cohort file with `change` made to its parsed form, in canonical spelling."""
    document = json.loads(small_cohort().to_bytes())
    change(document)
    return canonical(document)


def test_a_cohort_that_was_enrolled_verifies_and_survives_its_file():
    cohort = Cohort.enrol(reversed(EVERYBODY), ENROLMENT)
    again = Cohort.from_bytes(cohort.to_bytes() + b"\n").verified(ENROLMENT.public)
    assert again == cohort == small_cohort()
    assert again.digest() == cohort.digest()
    assert [member.name for member in cohort.members] == sorted(member.name for member in EVERYBODY)
    assert [member.name for member in cohort.clients] == ["client-1", "client-2", "client-3"]
    assert [member.point for member in cohort.holders] == [1, 2, 3]


def test_holders_stand_in_the_order_of_their_points_whatever_they_are_called():
    holders = [InsecureMember(name, "holder", point).public for name, point in (("zoe", 1), ("ann", 3), ("bob", 2))]
    cohort = Cohort.enrol(holders, ENROLMENT)
    assert [holder.name for holder in cohort.holders] == ["zoe", "bob", "ann"]
    assert cohort.clients == ()


@pytest.mark.parametrize(
    "extra",
    [
        CLIENTS[0].public,
        replace(STRANGER.public, name="client-1"),
        replace(STRANGER.public, verify_key=CLIENTS[0].signing_key.public),
        replace(STRANGER.public, box_key=HOLDERS[0].box_key.public),
        InsecureMember("holder-5", "holder", 5).public,
        InsecureMember("holder-5", "holder", 1).public,
    ],
    ids=["twice", "a name twice", "a signing key twice", "a box key twice", "a gap in the points", "a point twice"],
)
def test_repeats_and_gaps_are_not_enrolled_and_not_read(extra):
    with pytest.raises(ValueError):
        Cohort.enrol([*EVERYBODY, extra], ENROLMENT)
    data = changed_file(lambda document: document["members"].append(extra.to_dict()))
    assert reason_of(Cohort.from_bytes, data) == "malformed"


def test_another_enrolment_key_or_a_changed_signature_is_an_unknown_cohort():
    cohort = small_cohort()
    assert reason_of(cohort.verified, SigningKey.generate().public) == "unknown-cohort"
    assert reason_of(Cohort.enrol(EVERYBODY, SigningKey.generate()).verified, ENROLMENT.public) == "unknown-cohort"
    for at in range(64):
        forged = Cohort(cohort.members, flipped(cohort.signature, at))
        assert reason_of(forged.verified, ENROLMENT.public) == "unknown-cohort"
    for signature in (b"", bytes(64), cohort.signature[:-1], cohort.signature + b"\0"):
        assert reason_of(Cohort(cohort.members, signature).verified, ENROLMENT.public) == "unknown-cohort"


def test_members_left_out_added_changed_or_in_another_order_show():
    cohort = small_cohort()
    first, *rest = cohort.members
    changes = (
        {"name": "client-8"},
        {"verify_key": STRANGER.signing_key.public},
        {"box_key": STRANGER.box_key.public},
        {"role": "holder", "point": 4},
    )
    changed = [(replace(first, **change), *rest) for change in changes]
    for members in (*changed, tuple(rest), (first, *rest, STRANGER.public), cohort.members[::-1], ()):
        tampered = Cohort(members, cohort.signature)
        assert reason_of(tampered.verified, ENROLMENT.public) == "unknown-cohort"
        assert tampered.digest() != cohort.digest()


def test_who_is_not_enrolled_is_a_stranger():
    assert small_cohort().member("client-2") == CLIENTS[1].public
    for name in ("client-9", "", "CLIENT-1", "client-1 ", "x" * 10_000):
        with pytest.raises(PeerFault) as caught:
            small_cohort().member(name)
        assert caught.value.reason == "stranger" and len(str(caught.value)) < 120


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../a", ".a", "-a", "é", "a\n", "a" * 64, "a:b"])
def test_a_name_that_could_be_a_path_or_a_sentence_is_no_name(name):
    with pytest.raises(ValueError, match="name"):
        replace(CLIENTS[0].public, name=name)
    data = changed_file(lambda document: document["members"][0].update(name=name))
    assert reason_of(Cohort.from_bytes, data) == "malformed"


@pytest.mark.parametrize(("role", "point"), [("client", 1), ("holder", 0), ("holder", -1), ("client", -1)])
def test_a_holder_has_a_point_and_a_client_has_none(role, point):
    with pytest.raises(ValueError, match="point"):
        replace(CLIENTS[0].public, role=role, point=point)
    data = changed_file(lambda document: document["members"][0].update(role=role, point=point))
    assert reason_of(Cohort.from_bytes, data) == "malformed"


HOSTILE_FILES = {
    "another format": lambda d: d.update(format="fednode-cohort-2"),
    "a field more": lambda d: d.update(more=1),
    "a field less": lambda d: d.pop("signature"),
    "a short signature": lambda d: d.update(signature="00" * 63),
    "a signature with spaces": lambda d: d.update(signature="0 " * 64),
    "members that are no list": lambda d: d.update(members={}),
    "a member that is no object": lambda d: d["members"].append("client-9"),
    "a member with a field more": lambda d: d["members"][0].update(more=1),
    "a member without a role": lambda d: d["members"][0].pop("role"),
    "an unknown role": lambda d: d["members"][0].update(role="node"),
    "a point that is true": lambda d: d["members"][3].update(point=True),
    "a point of 256": lambda d: d["members"][0].update(role="holder", point=256),
    "a short key": lambda d: d["members"][0].update(verify_key="00" * 31),
    "a signing key of low order": lambda d: d["members"][0].update(verify_key="01" + "00" * 31),
    "a box key of low order": lambda d: d["members"][0].update(box_key="00" * 32),
    "a key in capitals": lambda d: d["members"][0].update(verify_key=d["members"][0]["verify_key"].upper()),
}


@pytest.mark.parametrize("change", HOSTILE_FILES.values(), ids=HOSTILE_FILES)
def test_hostile_files_are_malformed(change):
    assert reason_of(Cohort.from_bytes, changed_file(change)) == "malformed"


def test_cut_and_changed_files_never_verify():
    data = small_cohort().to_bytes()
    for size in range(0, len(data), 37):
        assert reason_of(Cohort.from_bytes, data[:size]) == "malformed"
    for at in range(0, len(data), 11):
        assert reason_of(read_and_verified, flipped(data, at)) in {"malformed", "unknown-cohort"}


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True)


@settings(max_examples=25, deadline=None)
@given(st.lists(NAMES, unique=True, max_size=6), st.integers(0, 6))
def test_any_cohort_comes_back_from_its_file(names, holders):
    members = [
        InsecureMember(name, "holder", at) if at <= holders else InsecureMember(name, "client")
        for at, name in enumerate(names, 1)
    ]
    cohort = Cohort.enrol([one.public for one in members], ENROLMENT)
    assert Cohort.from_bytes(cohort.to_bytes()).verified(ENROLMENT.public) == cohort
    assert {one.name for one in cohort.clients + cohort.holders} == set(names)
    assert all(isinstance(cohort.member(name), Member) for name in names)
