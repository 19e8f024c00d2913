"""Faults as people write them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.settings import Fault, RunSettings, parse_fault
from fednode.settings.faults import ROLE_OF


@st.composite
def all_faults(draw):
    first = draw(st.integers(1, 999))
    last = draw(st.one_of(st.none(), st.integers(first, first + 50)))
    return Fault(draw(st.sampled_from(sorted(ROLE_OF))), first, last, draw(st.sampled_from(["client-04", "holder-1"])))


@given(all_faults())
@settings(max_examples=100, deadline=None)
def test_a_fault_reads_back_from_its_own_text(fault):
    assert parse_fault(str(fault)) == fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("garbage@3:client-04", Fault("garbage", 3, 3, "client-04")),
        ("lost-before-upload@2-4:client-01", Fault("lost-before-upload", 2, 4, "client-01")),
        ("lost-before-opening@2-2:client-01", Fault("lost-before-opening", 2, 2, "client-01")),
        (" dead@2-:holder-1 ", Fault("dead", 2, None, "holder-1")),
    ],
)
def test_examples(text, fault):
    assert parse_fault(text) == fault


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("garbage", "write KIND@ROUND:MEMBER"),
        ("garbage@:client-04", "write KIND@ROUND:MEMBER"),
        ("garbage@3", "write KIND@ROUND:MEMBER"),
        ("garbage@3:client-04:x", "write KIND@ROUND:MEMBER"),
        ("garbge@3:client-04", "did you mean 'garbage'"),
        ("foo@3:client-04", r"'foo'.*lost-before-upload, (?!.*did you mean)"),
        ("garbage@4-3:client-04", "round 3 comes before round 4"),
    ],
)
def test_nonsense_is_refused_with_what_would_be_right(text, words):
    with pytest.raises(ValueError, match=words):
        parse_fault(text)


def test_a_fault_covers_its_rounds_and_no_other():
    assert [n for n in range(1, 8) if Fault("slow", 2, 4, "client-1").covers(n)] == [2, 3, 4]
    assert [n for n in range(1, 8) if Fault("dead", 6, None, "holder-1").covers(n)] == [6, 7]


def test_settings_take_faults_as_a_list_or_with_commas():
    wanted = (Fault("garbage", 3, 3, "client-04"), Fault("dead", 2, None, "holder-1"))
    assert RunSettings(faults="garbage@3:client-04,dead@2-:holder-1").faults == wanted
    assert RunSettings(faults=["garbage@3:client-04", "dead@2-:holder-1"]).faults == wanted
    assert RunSettings(faults=wanted).faults == wanted


@pytest.mark.parametrize(
    ("clients", "written", "member"),
    [
        (20, "garbage@3:client-3", "client-03"),
        (6, "garbage@3:client-04", "client-4"),
        (100, "garbage@3:client-0007", "client-007"),
        (6, "dead@2-:holder-01", "holder-1"),
        (20, f"slow@1:client-{'0' * 5000}9", "client-09"),
    ],
)
def test_a_member_is_known_whatever_its_zeros(clients, written, member):
    assert RunSettings(clients=clients, faults=[written]).faults[0].member == member


@pytest.mark.parametrize(
    "member",
    ["client-0", "client-7", "client-", "client-x", "client-³", "4", "holder-1", "client--4", f"client-1{'0' * 8}4"],
)
def test_a_member_that_the_run_does_not_have_is_refused(member):
    with pytest.raises(ValueError, match="none of client-1 to client-6"):
        RunSettings(clients=6, faults=[f"garbage@3:{member}"])
