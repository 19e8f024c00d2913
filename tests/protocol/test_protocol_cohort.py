"""The trust root: only what the enrolment key signed counts, and no list is ambiguous."""

import hashlib
import json
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.faults import reason_of
from kit.members import CLIENTS, ENROLMENT, HOLDERS, NODE, STRANGER, InsecureMember, flipped, small_cohort

from fednode.errors import PeerFault
from fednode.protocol.cohort import MAX_COHORT, Cohort, Member
from fednode.wire import canonical, parse
from fednode_crypto import CryptoError
from fednode_crypto.identity import BoxPublicKey, SigningKey, VerifyKey

EVERYBODY = [member.public for member in CLIENTS + HOLDERS]


NODE_KEY = NODE.signing_key.public


def verified(data: bytes, key: VerifyKey = ENROLMENT.public) -> Cohort:
    return Cohort.verified_from_bytes(data, key)


def enrolled(members, **others) -> Cohort:
    return Cohort.enrol(members, ENROLMENT, NODE_KEY, **others)


def file_of(listing: bytes) -> bytes:
    """A cohort file whose listing the enroller did sign, whatever it is."""
    return ENROLMENT.sign(b"cohort", listing).hex().encode() + b"\n" + listing


def changed_file(change) -> bytes:
    """The cohort file with `change` made to its parsed form, in canonical spelling, and signed."""
    document = json.loads(small_cohort().listing)
    change(document)
    return file_of(canonical(document))


@pytest.fixture
def parsed(monkeypatch) -> list[bytes]:
    """Every text that is parsed from here on."""
    seen = []

    def counting(text, most):
        seen.append(text)
        return parse(text, most)

    monkeypatch.setattr("fednode.protocol.cohort.parse", counting)
    return seen


def test_a_cohort_that_was_enrolled_verifies_and_survives_its_file():
    cohort = enrolled(reversed(EVERYBODY))
    again = verified(cohort.to_bytes() + b"\n")
    assert again == cohort == small_cohort()
    assert again.digest() == cohort.digest()
    assert [member.name for member in cohort.members] == sorted(member.name for member in EVERYBODY)
    assert [member.name for member in cohort.clients] == ["client-1", "client-2", "client-3"]
    assert [member.point for member in cohort.holders] == [1, 2, 3]


def test_holders_stand_in_the_order_of_their_points_whatever_they_are_called():
    holders = [InsecureMember(name, "holder", point).public for name, point in (("zoe", 1), ("ann", 3), ("bob", 2))]
    cohort = enrolled(holders)
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
        enrolled([*EVERYBODY, extra])
    data = changed_file(lambda document: document["members"].append(extra.to_dict()))
    assert reason_of(verified, data) == reason_of(Cohort.from_bytes, data) == "malformed"


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        (replace(STRANGER.public, name="client-1"), {"client-1"}),
        (replace(STRANGER.public, verify_key=CLIENTS[0].signing_key.public), {"client-1", STRANGER.public.name}),
        (replace(STRANGER.public, box_key=HOLDERS[0].box_key.public), {"holder-1", STRANGER.public.name}),
        (replace(STRANGER.public, verify_key=NODE_KEY), {"node", STRANGER.public.name}),
    ],
    ids=["a name", "a signing key", "a box key", "the node's key"],
)
def test_a_repeat_is_named_with_both_members(extra, named):
    with pytest.raises(ValueError) as refused:
        enrolled([*EVERYBODY, extra])
    everybody = {member.name for member in (*EVERYBODY, extra)} | {"node"}
    assert everybody.intersection(str(refused.value).split()) == named


def test_another_enrolment_key_or_a_changed_signature_is_an_unknown_cohort(parsed):
    cohort = small_cohort()
    assert reason_of(verified, cohort.to_bytes(), SigningKey.generate().public) == "unknown-cohort"
    foreign = Cohort.enrol(EVERYBODY, SigningKey.generate(), NODE_KEY)
    assert reason_of(verified, foreign.to_bytes()) == "unknown-cohort"
    for signature in (bytes(64), *(flipped(cohort.signature, at) for at in range(64))):
        assert reason_of(verified, replace(cohort, signature=signature).to_bytes()) == "unknown-cohort"
    for signature in (b"", cohort.signature[:-1], cohort.signature + b"\0"):
        assert reason_of(verified, replace(cohort, signature=signature).to_bytes()) == "malformed"
    assert parsed == []
    verified(cohort.to_bytes() + b"\n\n")
    assert parsed == [cohort.listing]


def test_members_left_out_added_changed_or_moved_show_before_anything_is_parsed(parsed):
    cohort = small_cohort()
    first, *rest = cohort.members
    changes = (
        {"name": "client-8"},
        {"verify_key": STRANGER.signing_key.public},
        {"box_key": STRANGER.box_key.public},
        {"role": "holder", "point": 4},
    )
    changed = [enrolled([replace(first, **change), *rest]) for change in changes]
    changed += [enrolled(members) for members in (rest, [first, *rest, STRANGER.public])]
    changed += [enrolled(cohort.members, **change) for change in ({"serial": 2}, {"expires": 1})]
    changed.append(Cohort.enrol(cohort.members, ENROLMENT, STRANGER.signing_key.public))
    for other in changed:
        assert reason_of(verified, replace(other, signature=cohort.signature).to_bytes()) == "unknown-cohort"
        assert other.digest() != cohort.digest()
    assert parsed == []


def test_a_file_of_the_former_format_is_refused_before_it_is_parsed(parsed):
    former = {"format": "fednode-cohort-1", "members": [], "signature": "00" * 64}
    assert reason_of(verified, canonical(former)) == reason_of(Cohort.from_bytes, canonical(former)) == "malformed"
    assert reason_of(verified, bytes(MAX_COHORT + 1)) == "oversize"
    assert parsed == []


def test_the_same_list_is_checked_and_parsed_once(parsed):
    data = enrolled(EVERYBODY, serial=7, expires=1_900_000_000).to_bytes()
    cohorts = [verified(data) for _ in range(3)]
    assert len(parsed) == 1 and len({id(cohort) for cohort in cohorts}) == 1
    assert (cohorts[0].serial, cohorts[0].expires, cohorts[0].node) == (7, 1_900_000_000, NODE_KEY)


def test_ten_thousand_members_are_found_by_name_in_no_time():
    members = [
        Member(f"m-{n}", "client", _any_key(VerifyKey, 2 * n), _any_key(BoxPublicKey, 2 * n + 1)) for n in range(10_000)
    ]
    cohort = enrolled(members)
    started = time.perf_counter()
    assert all(cohort.member(member.name) is member for member in members)
    assert time.perf_counter() - started < 1.0


def _any_key(kind, number):
    """A public key that is nobody's: the next number that is one."""
    for more in range(100):
        with suppress(CryptoError):
            return kind(hashlib.sha256(f"{number} {more}".encode()).digest()[:31] + b"\0")
    raise AssertionError("no key")


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
    assert reason_of(verified, data) == reason_of(Cohort.from_bytes, data) == "malformed"


@pytest.mark.parametrize(("role", "point"), [("client", 1), ("holder", 0), ("holder", -1), ("client", -1)])
def test_a_holder_has_a_point_and_a_client_has_none(role, point):
    with pytest.raises(ValueError, match="point"):
        replace(CLIENTS[0].public, role=role, point=point)
    data = changed_file(lambda document: document["members"][0].update(role=role, point=point))
    assert reason_of(verified, data) == reason_of(Cohort.from_bytes, data) == "malformed"


HOSTILE_FILES = {
    "another format": lambda d: d.update(format="fednode-cohort-1"),
    "a field more": lambda d: d.update(more=1),
    "a field less": lambda d: d.pop("serial"),
    "serial 0": lambda d: d.update(serial=0),
    "a serial that is true": lambda d: d.update(serial=True),
    "an expiry that is a date": lambda d: d.update(expires="2030-01-01"),
    "a node without a key": lambda d: d.update(node=""),
    "a node key of low order": lambda d: d.update(node="01" + "00" * 31),
    "a member as the node": lambda d: d.update(node=d["members"][0]["verify_key"]),
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
    assert reason_of(verified, changed_file(change)) == "malformed"


def test_cut_and_changed_files_never_verify(parsed):
    data = small_cohort().to_bytes()
    for size in range(0, len(data), 37):
        assert reason_of(verified, data[:size]) in {"malformed", "unknown-cohort"}
    for at in range(0, len(data), 11):
        assert reason_of(verified, flipped(data, at)) in {"malformed", "unknown-cohort"}
    assert parsed == []


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_whatever_is_done_to_a_file_it_is_a_typed_refusal(data):
    whole = small_cohort().to_bytes()
    start = data.draw(st.integers(0, len(whole)))
    changed = whole[:start] + data.draw(st.binary(max_size=40)) + whole[start + data.draw(st.integers(0, 40)) :]
    if changed.strip() != whole:
        assert reason_of(verified, changed) in {"malformed", "unknown-cohort"}
    listing = changed.partition(b"\n")[2]
    try:
        # what the enroller did sign is a cohort or malformed, and never another error
        assert verified(file_of(listing)).member("client-2").role == "client"
    except PeerFault as fault:
        assert fault.reason in {"malformed", "stranger", "unknown-cohort"}


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True)


@settings(max_examples=25, deadline=None)
@given(st.lists(NAMES, unique=True, max_size=6), st.integers(0, 6))
def test_any_cohort_comes_back_from_its_file(names, holders):
    members = [
        InsecureMember(name, "holder", at) if at <= holders else InsecureMember(name, "client")
        for at, name in enumerate(names, 1)
    ]
    cohort = enrolled([one.public for one in members])
    assert verified(cohort.to_bytes()) == cohort
    assert {one.name for one in cohort.clients + cohort.holders} == set(names)
    assert all(isinstance(cohort.member(name), Member) for name in names)
