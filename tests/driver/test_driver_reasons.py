"""A round that fails says on one line what most of the missing said; their words are bounded and printable."""

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import cohort as kit
from kit.cohort import FakeCohort, Size

from fednode.driver import Reply
from fednode.driver.query import describe, read_answer
from fednode.driver.round_log import RoundLog
from fednode.errors import PeerFault, StoreError, TooFewHolders
from fednode.protocol.envelope import Topic
from fednode.protocol.signed_requests import topic_of
from fednode_clients.keyfolder.audit_log import AuditLog
from fednode_clients.keyfolder.state_files import StateFiles

BFV, RING = Size(clients=5), Size(clients=5, holders=5, threshold=4, dimension=50, scheme="ring")
FULL = "refused: member-storage (the member's disk or key folder failed: No space left on device; see its log)"


@pytest.fixture
def fill(monkeypatch):
    """Fills the disks of some members: what they read is there, what they write is not taken."""
    full: set[str] = set()
    for part, verb in ((StateFiles, "put"), (AuditLog, "append")):
        honest = getattr(part, verb)

        def write(files, *what, honest=honest):
            path = files.folder if isinstance(files, AuditLog) else files.folder.parent
            if path.name in full:
                raise StoreError(f"could not write in {path}") from OSError(errno.ENOSPC, "No space left on device")
            honest(files, *what)

        monkeypatch.setattr(part, verb, write)
    return full.update


def refusing(reason, detail):
    def conduct(cohort, name, request):
        about = {"reason": reason, "detail": detail}
        return [cohort.folder(name).signer.write("refusal", topic_of(request.frame), about=about).to_bytes()]

    return conduct


@pytest.mark.parametrize("size", [BFV, RING])
def test_clients_with_full_disks_are_named_by_their_reason(tmp_path, size, fill):
    cohort = FakeCohort(tmp_path, size)
    driver = cohort.begun()
    assert driver.run_round(1).cause == ""
    fill(cohort.size.client_names)
    outcome = driver.run_round(2)
    assert outcome.reason == f"0 of 5 updates arrived and 3 are the least that may be opened; 5 {FULL}"
    assert outcome.cause == "too-few-survivors"
    assert outcome.rejected == tuple((name, "refused: member-storage") for name in cohort.size.client_names)


def test_clients_whose_disks_were_full_from_the_start(tmp_path, fill):
    cohort = FakeCohort(tmp_path, BFV)
    fill(cohort.size.client_names)
    reason = cohort.begun().run_round(1).reason
    assert "; 5 refused: unknown-task" in reason and reason.endswith(f"; 5 did not take the task: {FULL}")


def test_a_client_that_took_the_task_later_is_not_spoken_of_again(tmp_path):
    cohort = FakeCohort(tmp_path, BFV)
    cohort.tell("client-1", refusing("member-storage", "full"), "task")
    driver = cohort.begun()
    assert driver.run_round(1).cause == ""
    cohort.forgive()
    for name in cohort.size.client_names:
        cohort.tell(name, kit.silent, rounds={2})
    assert driver.run_round(2).reason == "0 of 5 updates arrived and 3 are the least that may be opened"


def test_the_commonest_reason_is_told_with_its_first_detail(tmp_path):
    cohort = FakeCohort(tmp_path, BFV)
    cohort.tell("client-1", kit.garbage)
    cohort.tell("client-2", refusing("noise-floor", "first"))
    cohort.tell("client-3", refusing("noise-floor", "second"))
    reason = cohort.begun().run_round(1).reason
    assert reason.startswith("2 of 5 updates arrived") and reason.endswith("; 2 refused: noise-floor (first)")


def test_a_survivor_that_also_complained_is_not_among_the_missing(tmp_path):
    cohort = FakeCohort(tmp_path, BFV)
    for name in ("client-1", "client-2"):
        cohort.tell(name, lambda *told: [*kit.honest(*told), *refusing("noise-floor", "x")(*told)])
    for name in ("client-3", "client-4"):
        cohort.tell(name, kit.silent)
    cohort.tell("client-5", kit.garbage)
    reason = cohort.begun().run_round(1).reason
    assert "; 1 malformed (" in reason and "noise-floor" not in reason


def test_struck_clients_are_left_and_did_arrive(tmp_path):
    cohort = FakeCohort(tmp_path, RING)
    for name in cohort.size.client_names[:4]:
        cohort.tell(name, kit.spoiling_box(1))
    outcome = cohort.begun().run_round(1)
    assert outcome.reason == "1 of 5 updates are left and 3 are the least that may be opened; 4 bad-box"


@pytest.mark.parametrize(("size", "kind"), [(BFV, "open"), (RING, "boxes"), (RING, "confirm"), (RING, "open")])
def test_holders_with_full_disks_are_named_by_their_reason(tmp_path, size, kind, fill):
    cohort = FakeCohort(tmp_path, size)

    def filled(cohort, name, request):
        fill([name])
        return [cohort.speak(name, request)]

    driver = cohort.begun()
    for name in cohort.size.holder_names[:2]:
        cohort.tell(name, filled, kind)
    outcome = driver.run_round(1)
    assert outcome.cause == "too-few-holders" and outcome.reason.endswith(f"are needed to open; 2 {FULL}")
    assert dict(outcome.silent) == dict.fromkeys(cohort.size.holder_names[:2], "refused: member-storage")


def test_holders_that_cannot_make_a_key_are_named_with_it(tmp_path, fill):
    cohort = FakeCohort(tmp_path, RING)
    driver = cohort.begun()
    assert driver.run_round(1).cause == ""
    fill(["holder-1", "holder-5"])
    with pytest.raises(TooFewHolders) as caught:
        driver.run_round(2)
    assert f"holder-1: {FULL}; holder-5: {FULL}" in str(caught.value)


def test_holders_whose_disks_were_full_from_the_start(tmp_path, fill):
    cohort = FakeCohort(tmp_path, RING)
    fill(["holder-1", "holder-5"])
    with pytest.raises(TooFewHolders) as caught:
        cohort.begun().run_round(1)
    assert "holder-1: refused: unknown-task" in str(caught.value)
    assert f"; the task: {FULL}; holder-5: " in str(caught.value)


@pytest.mark.parametrize("kind", ["key-commit", "key-join", "open"])
def test_the_ceremony_says_whose_disk_is_full(tmp_path, kind, fill):
    cohort = FakeCohort(tmp_path, BFV)

    def filled(cohort, name, request):
        fill([name])
        return [cohort.speak(name, request)]

    for name in ("holder-2", "holder-3"):
        cohort.tell(name, filled, kind)
    with pytest.raises(TooFewHolders) as caught:
        cohort.begun()
    assert f"holder-2: {FULL}; holder-3: {FULL}" in str(caught.value) and "start again" in str(caught.value)


@pytest.mark.parametrize("body", [b"", b"junk", b"\xff" * 100])
def test_a_ceremony_that_a_holder_broke_says_who_it_was(tmp_path, body):
    def broken(cohort, name, request):
        return [cohort.folder(name).signer.write("key-bundle", Topic(kit.TASK), body).to_bytes()]

    cohort = FakeCohort(tmp_path, BFV)
    cohort.tell("holder-2", broken, "key-reveal")
    with pytest.raises(TooFewHolders, match="holder-2"):
        cohort.begun()


# --- a peer's words


HOSTILE = ["\x1b[2J\x1b[31mowned", "a\r\nfednode: all is well", "\u202egnp", "x" * 100_000, "\0" * 100, " \t\n"]


def check_plain(text):
    assert text.isprintable() and "\n" not in text and len(text) <= 300


@pytest.mark.parametrize("words", HOSTILE)
def test_what_a_carrier_says_is_bounded_and_printable(tmp_path, words):
    cohort = FakeCohort(tmp_path, BFV)
    with pytest.raises(PeerFault) as caught:
        read_answer(Reply("client-1", "t", None, words), "update", cohort.task(), 0)
    assert caught.value.reason == "no-answer"
    check_plain(str(caught.value))
    check_plain(describe(caught.value))


@pytest.mark.parametrize("words", HOSTILE)
def test_what_a_member_signs_is_too(tmp_path, words):
    cohort = FakeCohort(tmp_path, BFV)
    for name in cohort.size.client_names:
        cohort.tell(name, refusing(words, words))
    outcome = cohort.begun().run_round(1)
    check_plain(outcome.reason)
    assert all(reason.isprintable() and len(reason) <= 80 for _, reason in outcome.rejected)


@given(st.text(max_size=2_000), st.text(max_size=2_000))
@settings(max_examples=100, deadline=None)
def test_any_words_become_plain_ones(reason, detail):
    check_plain(describe(PeerFault(reason, detail)))
    tally = RoundLog()
    tally.explain(PeerFault(reason, detail))
    check_plain(tally.why([("a", reason), ("b", reason)]))


def test_long_details_of_many_kinds_are_one_line(tmp_path):
    cohort = FakeCohort(tmp_path, RING)
    for number, name in enumerate(cohort.size.holder_names):
        cohort.tell(name, refusing(f"reason-{number}", "y" * 512), "box-key")
    with pytest.raises(TooFewHolders) as caught:
        cohort.begun().run_round(1)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 5 * 320 + 200
