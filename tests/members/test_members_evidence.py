"""A node that signs two specs for one round leaves the proof of it with every member that it asks."""

from dataclasses import replace

import pytest
from kit.cohort import TASK, FakeCohort, Size, place

from fednode.cli.app import main
from fednode.errors import PeerFault, StoreError
from fednode.protocol.requests import ask_frame, read_spec, spec_frame
from fednode.protocol.spec import RoundSpec
from fednode_clients.keyfolder import evidence as evidence_module
from fednode_clients.keyfolder.authentic import require_authentic
from fednode_clients.keyfolder.evidence import evidence
from fednode_clients.keyfolder.retire import retire


@pytest.fixture
def cohort(tmp_path):
    found = FakeCohort(tmp_path, Size(scheme="ring"))
    found.begun().run_round(1)
    return found


def asked(cohort: FakeCohort, member: str, kind: str, spec: RoundSpec) -> None:
    """The node signs this request for the member, which sees it as one that enters."""
    require_authentic(cohort.folder(member), cohort.signed(member, spec_frame(kind, spec)))


def spec_of(cohort: FakeCohort, kind: str = "round") -> RoundSpec:
    return read_spec(kind, cohort.asked(kind)[0][1].frame)[0]


@pytest.mark.parametrize(("member", "kind"), [("client-2", "round"), ("holder-1", "confirm")])
def test_two_specs_for_one_round_are_kept_and_shown(cohort, member, kind, capsys):
    spec = spec_of(cohort)
    other = replace(spec, model_digest=b"m" * 32)
    asked(cohort, member, "round", spec)
    asked(cohort, member, kind, spec)
    assert evidence(cohort.folder(member)) == []
    for _ in range(2):
        asked(cohort, member, kind, other)
    (pair,) = evidence(cohort.folder(member))
    assert {signed.head.spec for signed in pair.requests} == {spec.digest(), other.digest()}
    assert (pair.node, pair.cohort) == (cohort.cohort.node, cohort.cohort.digest())
    retire(cohort.folder(member))
    assert main(["keys", "evidence", str(cohort.folder(member).path)]) == 0
    shown = capsys.readouterr().out
    assert all(text in shown for text in (spec.digest().hex(), other.digest().hex(), cohort.cohort.node.raw.hex()))


def test_rounds_that_follow_each_other_are_no_evidence(cohort, capsys):
    spec = spec_of(cohort)
    for number in (1, 2, 2, 3):
        asked(cohort, "client-1", "round", replace(spec, round=number))
    assert evidence(cohort.folder("client-1")) == []
    assert main(["keys", "evidence", str(cohort.folder("client-1").path)]) == 0
    assert TASK not in capsys.readouterr().out


def test_a_request_about_a_far_round_does_not_hide_two_specs(cohort):
    spec = spec_of(cohort)
    asked(cohort, "client-1", "round", replace(spec, round=1_000_000))
    for digest in (b"a" * 32, b"b" * 32):
        asked(cohort, "client-1", "round", replace(spec, round=7, model_digest=digest))
        asked(cohort, "client-1", "round", replace(spec, round=8))
    assert len(evidence(cohort.folder("client-1"))) == 1


def test_what_the_node_did_not_sign_proves_nothing(cohort):
    spec = spec_of(cohort)
    other = replace(spec, model_digest=b"m" * 32)
    asked(cohort, "client-1", "round", spec)
    for_another = cohort.signed("client-2", spec_frame("round", other))
    with pytest.raises(PeerFault):
        require_authentic(cohort.folder("client-1"), for_another)
    assert evidence(cohort.folder("client-1")) == []


def test_evidence_is_bounded_and_a_damaged_pair_is_named(cohort, monkeypatch):
    monkeypatch.setattr(evidence_module, "_MOST", 2)
    spec = spec_of(cohort)
    for number in range(1, 6):
        for digest in (b"a" * 32, b"b" * 32):
            asked(cohort, "client-1", "round", replace(spec, round=number, model_digest=digest))
    folder = cohort.folder("client-1")
    assert len(evidence(folder)) == 2
    file = next((folder.path / "evidence").iterdir())
    file.write_bytes(file.read_bytes().replace(b"0", b"1"))
    with pytest.raises(StoreError, match=file.name):
        evidence(folder)


def test_a_request_without_a_spec_is_not_compared(cohort):
    for number in (b"1", b"2"):
        frame = ask_frame("box-key", TASK, {"round": number})
        cohort.members("holder-1").query(place("holder-1"), cohort.signed("holder-1", frame))
    assert evidence(cohort.folder("holder-1")) == []
