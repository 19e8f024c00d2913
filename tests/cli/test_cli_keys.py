"""Keys from making them to a signed cohort, through the command line."""

import re
import stat
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from fednode.cli import main
from fednode.cli.keys.enrol import open_enrolment
from fednode.errors import PeerFault
from fednode.privacy import DiscreteGaussianSum, epsilon
from fednode.protocol.cohort import Cohort
from fednode.reports.figures import bound
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.untrained import note_untrained


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def trust(tmp_path):
    assert main(["keys", "init", str(tmp_path / "root"), "--enrolment"]) == 0
    return tmp_path / "root" / "enrolment.pub"


def make_member(tmp_path, trust, name):
    assert main(["keys", "init", str(tmp_path / name), "--name", name, "--trust", str(trust)]) == 0
    return str(tmp_path / name / "member.json")


@pytest.fixture
def cohort(tmp_path, trust):
    cards = {name: make_member(tmp_path, trust, name) for name in ("ann", "ben", "cy", "h-a", "h-b", "node")}
    clients = [part for name in ("ann", "ben", "cy") for part in ("--client", cards[name])]
    holders = [part for name in ("h-b", "h-a") for part in ("--holder", cards[name])]
    out = tmp_path / "cohort.json"
    node = ["--node", cards["node"]]
    assert main(["keys", "enrol", str(tmp_path / "root"), "--out", str(out), *node, *clients, *holders]) == 0
    return out


def next_of(cohort, *change, out="next.json"):
    """The cohort that enrolling with --from makes; None if it is refused."""
    file = cohort.parent / out
    command = ["keys", "enrol", str(cohort.parent / "root"), "--from", str(cohort), "--out", str(file), *change]
    if main(command) != 0:
        assert not file.exists()
        return None
    return Cohort.verified_from_bytes(file.read_bytes(), KeyFolder.open(cohort.parent / "ann").enrolment_key)


def test_a_replaced_member_has_the_next_serial_and_its_old_place(cohort, tmp_path, trust):
    before = Cohort.from_bytes(cohort.read_bytes())
    (tmp_path / "new").mkdir()
    cards = {name: make_member(tmp_path / "new", trust, name) for name in ("h-b", "dan", "h-c", "node")}
    after = next_of(cohort, "--replace", f"h-b={cards['h-b']}", "--days", "10")
    assert (before.serial, after.serial, after.node) == (1, 2, before.node)
    assert [(member.name, member.point) for member in after.holders] == [("h-b", 1), ("h-a", 2)]
    assert after.holders[0].verify_key == KeyFolder.open(tmp_path / "new" / "h-b").member("client").verify_key
    assert after.clients == before.clients and after.holders[1] == before.holders[1]
    assert before.expires - after.expires == pytest.approx(355 * 86_400, abs=60)
    third = next_of(
        tmp_path / "next.json", "--remove", "ben", "--client", cards["dan"], "--holder", cards["h-c"], out="third.json"
    )
    assert third.serial == 3 and [member.name for member in third.clients] == ["ann", "cy", "dan"]
    assert [(member.name, member.point) for member in third.holders] == [("h-b", 1), ("h-a", 2), ("h-c", 3)]
    rekeyed = next_of(cohort, "--node", cards["node"], out="fourth.json")
    assert rekeyed.node == KeyFolder.open(tmp_path / "new" / "node").member("client").verify_key


def test_what_cannot_be_changed_in_a_cohort_is_refused(cohort, tmp_path, trust, capsys):
    card, other = (str(tmp_path / name / "member.json") for name in ("ann", "ben"))
    new = make_member(tmp_path, trust, "new")
    for change, words in (
        (("--remove", "h-a"), "replace it instead"),
        (("--remove", "zoe"), f"zoe is not in {cohort}"),
        (("--replace", f"zoe={card}"), f"zoe is not in {cohort}"),
        (("--replace", "ben"), "ben=CARD"),
        (("--replace", "ben="), "ben=CARD"),
        (("--replace", f"ben={other}"), "a key of ben"),
        (("--remove", "ben", "--client", other), "a key of ben"),
        (("--replace", f"h-a={tmp_path / 'h-a' / 'member.json'}"), "a key of h-a"),
        (("--replace", f"ben={new}", "--replace", f"ben={other}"), "ben comes twice"),
        (("--remove", "ben", "--replace", f"ben={new}"), "ben comes twice"),
        (("--remove", "ben", "--remove", "ben"), "ben comes twice"),
        (("--client", other), "ben is in the cohort twice"),
        (("--client", str(tmp_path / "node" / "member.json")), "node has a key of the node"),
        (("--replace", f"ben={card}"), "these cards make no cohort"),
        (("--remove", "ann", "--remove", "ben", "--remove", "cy"), "a cohort needs a node, clients and holders"),
        (("--node", card), "these cards make no cohort"),
    ):
        assert next_of(cohort, *change) is None
        assert words in capsys.readouterr().err
    assert main(["keys", "init", str(tmp_path / "other"), "--enrolment"]) == 0
    enrol = ["keys", "enrol", str(tmp_path / "other"), "--from", str(cohort), "--out", str(tmp_path / "x.json")]
    assert main(enrol) == 8 and not (tmp_path / "x.json").exists()


def test_a_change_without_the_file_that_it_changes_is_refused(cohort, tmp_path, capsys):
    card = str(tmp_path / "ann" / "member.json")
    for change in (("--remove", "ann"), ("--replace", f"ann={card}")):
        command = ["keys", "enrol", str(tmp_path / "root"), "--out", str(tmp_path / "next.json"), *change]
        capsys.readouterr()
        assert main(command) == 2 and "--from FILE" in capsys.readouterr().err


def test_an_empty_word_is_never_the_folder_that_one_stands_in(cohort, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path / "ann")
    assert main(["keys", "show", "."]) == 0
    enrol = ["keys", "enrol", str(tmp_path / "root"), "--from", str(cohort), "--out", str(tmp_path / "next.json")]
    for command in (
        ["keys", "show", ""],
        [*enrol, "--client", ""],
        [*enrol, "--client="],
        ["keys", "retire", ".", "--task", ""],
    ):
        capsys.readouterr()
        assert main(command) == 2 and "empty" in capsys.readouterr().err
    assert not (tmp_path / "next.json").exists() and not (tmp_path / "ann" / "retired").exists()


def test_enrolling_says_until_when_the_file_holds(cohort, tmp_path, capsys):
    capsys.readouterr()
    after = next_of(cohort, "--days", "3")
    assert (
        f"serial 2, expires {datetime.fromtimestamp(after.expires, UTC):%Y-%m-%d}, 3 clients" in capsys.readouterr().out
    )


def test_a_file_that_has_expired_is_shown_as_expired(cohort, tmp_path, trust, capsys):
    before = Cohort.from_bytes(cohort.read_bytes())
    for seconds, word in ((-1, "expired"), (3_600, "expires")):
        expires = int(time.time()) + seconds
        again = Cohort.enrol(before.members, open_enrolment(tmp_path / "root"), before.node, 2, expires)
        cohort.write_bytes(again.to_bytes())
        capsys.readouterr()
        assert main(["keys", "show", str(cohort), "--trust", str(trust)]) == 0
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("expire")] == [word]


def test_a_card_is_shown_with_the_keys_of_its_folder(tmp_path, trust, capsys):
    card = make_member(tmp_path, trust, "ann")
    capsys.readouterr()
    assert main(["keys", "show", str(tmp_path / "ann")]) == 0
    first = capsys.readouterr().out.splitlines()[:3]
    assert main(["keys", "show", card]) == 0
    assert capsys.readouterr().out.splitlines() == first
    assert first[1] == f"signing key {KeyFolder.open(tmp_path / 'ann').member('client').verify_key.raw.hex()}"


def test_a_folder_that_lost_its_identity_is_not_told_to_make_keys(tmp_path, trust, capsys):
    make_member(tmp_path, trust, "ann")
    (tmp_path / "ann" / "identity.json").unlink()
    for folder, words in (
        ("ann", "put identity.json"),
        ("nobody", "keys init"),
        ("root/enrolment.pub", "name the folder"),
    ):
        capsys.readouterr()
        assert main(["keys", "budget", str(tmp_path / folder)]) == 3
        assert words in capsys.readouterr().err


def test_an_enrolment_folder_keeps_its_secret_to_its_owner(tmp_path, trust):
    assert mode(tmp_path / "root") == 0o700
    assert mode(tmp_path / "root" / "enrolment.key") == 0o600
    assert mode(trust) == 0o644
    assert {path.name for path in (tmp_path / "root").iterdir()} == {"enrolment.key", "enrolment.pub"}


def test_a_members_folder_keeps_its_secrets_to_its_owner(tmp_path, trust):
    make_member(tmp_path, trust, "ann")
    assert mode(tmp_path / "ann") == 0o700
    assert mode(tmp_path / "ann" / "identity.json") == 0o600


def test_what_is_spent_is_shown_by_task_and_a_raise_stays_in_the_record(tmp_path, trust, capsys):
    make_member(tmp_path, trust, "ann")
    folder, event = KeyFolder.open(tmp_path / "ann"), DiscreteGaussianSum(1.0, 16, 100, 2**32, 2, 0.0)
    for task in ("task-1", "task-1", "task-2\x1b[2J"):
        folder.audit_log.append({"joined": task, "round": 1, "cost": event.to_dict()})
    command = ["keys", "budget", str(tmp_path / "ann")]
    capsys.readouterr()
    assert main(command) == 0
    total, first, second = capsys.readouterr().out.splitlines()
    assert f"epsilon {bound(epsilon([event] * 3, 1e-5), zeros=True)} of 8 " in total and "3 rounds" in total
    assert first.startswith("task-1: 2 rounds") and second.startswith("task-2 [2J: 1 round")
    assert main([*command, "--raise", "30", "--reason", "agreed", "--max-epsilon", "9", "--delta", "1e-3"]) == 0
    assert f"epsilon {bound(epsilon([event] * 3, 1e-3), zeros=True)} of 30 " in capsys.readouterr().out
    assert folder.audit_log.entries()[-1] == {"raised": 30.0, "reason": "agreed"}
    for wrong in (
        ("--raise", "40"),
        ("--raise", "5", "--reason", "below max-epsilon"),
        ("--raise", "20", "--reason", "below the last"),
        ("--reason", "of nothing"),
        *(("--delta", value) for value in ("2", "0", "nan")),
        *(("--max-epsilon", value) for value in ("-3", "nan")),
    ):
        assert main([*command, *wrong]) == 2
    assert len(folder.audit_log.entries()) == 4
    folder.audit_log.append({"joined": "task-3", "round": 1})
    capsys.readouterr()
    assert main(command) == 0
    assert "epsilon unknown" in capsys.readouterr().out


def test_its_owner_is_shown_that_training_failed(tmp_path, trust, capsys):
    make_member(tmp_path, trust, "ann")
    spec = SimpleNamespace(task="task-2\x1b[2J", round=7)
    for _ in range(2):
        note_untrained(KeyFolder.open(tmp_path / "ann").state, spec, "KeyError")
    capsys.readouterr()
    assert main(["keys", "show", str(tmp_path / "ann")]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert (
        "zeros sent in 2 rounds" in last and "round 7 of task-2" in last and "KeyError" in last and "\x1b" not in last
    )


def test_a_retired_folder_says_how_many_tasks_it_closed_and_keeps_its_keys(tmp_path, trust, capsys):
    make_member(tmp_path, trust, "ann")
    folder = KeyFolder.open(tmp_path / "ann")
    event = DiscreteGaussianSum(1.0, 16, 100, 2**32, 2, 0.0)
    folder.audit_log.append({"joined": "task-1", "round": 1, "cost": event.to_dict()})
    identity = (tmp_path / "ann" / "identity.json").read_bytes()
    named = ("--task", "task-2", "--task", "task-1", "--task", "task-3")
    for extra, closed, unknown in (
        ((), "1 task ", ()),
        (named, "2 tasks ", ("task-2", "task-3")),
        (named, "0 tasks ", ()),
    ):
        capsys.readouterr()
        assert main(["keys", "retire", str(tmp_path / "ann"), *extra]) == 0
        said, *more = capsys.readouterr().out.splitlines()
        assert said == f"{tmp_path / 'ann'}: {closed}closed for good"
        # a task that the folder did not know has an unknown cost, also when it is named again
        unpriced = more.pop() if extra else ""
        assert ("keys budget" in unpriced) == bool(extra) and [line.split()[0] for line in more] == list(unknown)
    for task in ("", "x" * 129, "task\n4"):
        assert main(["keys", "retire", str(tmp_path / "ann"), "--task", task]) == 2
    for task in ("task-1", "task-2", "task-3"):
        with pytest.raises(PeerFault, match="retired"):
            folder.tasks.require_open(task)
    assert (tmp_path / "ann" / "identity.json").read_bytes() == identity
    assert main(["keys", "retire", str(tmp_path / "nobody")]) == 3


def test_secrets_are_never_shown(tmp_path, trust, capsys):
    make_member(tmp_path, trust, "ann")
    secret = (tmp_path / "root" / "enrolment.key").read_text().split()[1]
    assert main(["keys", "show", str(tmp_path / "root")]) == 0
    assert main(["keys", "show", str(tmp_path / "ann")]) == 0
    shown = capsys.readouterr()
    assert secret not in shown.out + shown.err
    assert trust.read_text().split()[1] in shown.out
    identity = (tmp_path / "ann" / "identity.json").read_text()
    assert [word for word in shown.out.split() if len(word) == 64 and word in identity] == []


def test_a_cohort_holds_who_was_enrolled_in_the_order_given(cohort, tmp_path, trust, capsys):
    capsys.readouterr()
    assert main(["keys", "show", str(cohort), "--trust", str(trust)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["signed by the enrolment key", "serial 1"]
    assert re.fullmatch(r"expires \d{4}-\d\d-\d\d \d\d:\d\d UTC", lines[3])
    assert lines[4] == f"node {KeyFolder.open(tmp_path / 'node').member('client').verify_key.raw.hex()}"
    assert [line.split()[1] for line in lines if line.startswith("client ")] == ["ann", "ben", "cy"]
    assert [(line.split()[1], line.split()[-1]) for line in lines if line.startswith("holder ")] == [
        ("h-b", "1"),
        ("h-a", "2"),
    ]


def test_a_cohort_of_another_enrolment_key_is_refused(cohort, tmp_path, capsys):
    assert main(["keys", "init", str(tmp_path / "other"), "--enrolment"]) == 0
    assert main(["keys", "show", str(cohort), "--trust", str(tmp_path / "other" / "enrolment.pub")]) == 8
    assert "was not signed by this enrolment key" in capsys.readouterr().err


def test_nothing_is_overwritten(cohort, tmp_path, trust, capsys):
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    card = str(tmp_path / "ann" / "member.json")
    assert main(["keys", "init", str(tmp_path / "root"), "--enrolment"]) == 2
    assert main(["keys", "init", str(tmp_path / "ann"), "--name", "ann", "--trust", str(trust)]) == 2
    enrol = ["keys", "enrol", str(tmp_path / "root"), "--out", str(cohort), "--client", card, "--holder", card]
    assert main(enrol) == 2
    assert capsys.readouterr().err.count("never overwritten") == 3
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_the_same_member_twice_makes_no_cohort(tmp_path, trust, capsys):
    card = make_member(tmp_path, trust, "ann")
    out, node = tmp_path / "cohort.json", ["--node", make_member(tmp_path, trust, "node")]
    enrol = ["keys", "enrol", str(tmp_path / "root"), "--out", str(out), *node, "--client", card, "--holder", card]
    assert main(enrol) == 2
    assert "these cards make no cohort" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"name":"x"}', b"0" * 64])
def test_junk_in_place_of_a_public_file_is_one_sentence(tmp_path, trust, capsys, content):
    junk = tmp_path / "junk"
    junk.write_bytes(content)
    card = make_member(tmp_path, trust, "ann")
    out = str(tmp_path / "cohort.json")
    capsys.readouterr()
    commands = (
        ["keys", "init", str(tmp_path / "new"), "--name", "new", "--trust", str(junk)],
        ["keys", "enrol", str(tmp_path / "root"), "--out", out, "--client", str(junk), "--holder", card],
        ["keys", "show", str(junk)],
    )
    for command in commands:
        assert main(command) == (8 if "show" in command else 2)
        err = capsys.readouterr().err
        assert err.startswith("fednode: ") and err.count("\n") == 1 and str(junk) in err


def test_a_secret_that_others_can_read_is_not_used(tmp_path, trust, capsys):
    (tmp_path / "root" / "enrolment.key").chmod(0o644)
    assert main(["keys", "show", str(tmp_path / "root")]) == 2
    assert "readable by others" in capsys.readouterr().err


def test_a_damaged_secret_is_refused_without_being_shown(tmp_path, trust, capsys):
    (tmp_path / "root" / "enrolment.key").write_text("0badc0de")
    assert main(["keys", "show", str(tmp_path / "root")]) == 2
    err = capsys.readouterr().err
    assert "cannot be read" in err and "0badc0de" not in err


def test_the_two_enrolment_files_say_which_is_which(tmp_path, trust):
    secret = (tmp_path / "root" / "enrolment.key").read_text()
    assert re.fullmatch(r"fednode-enrolment-secret-1 [0-9a-f]{64}\n", secret)
    assert re.fullmatch(r"fednode-enrolment-public-1 [0-9a-f]{64}\n", trust.read_text())


def test_a_secret_named_in_place_of_a_public_file_goes_nowhere(cohort, tmp_path, trust, capsys):
    key = tmp_path / "root" / "enrolment.key"
    digits = key.read_text().split()[1]
    card = str(tmp_path / "ann" / "member.json")
    out = str(tmp_path / "another.json")
    enrol = ["keys", "enrol", str(tmp_path / "root"), "--out", out]
    commands = {
        ("keys", "init", str(tmp_path / "bob"), "--name", "bob", "--trust", str(key)): "name enrolment.pub",
        ("keys", "show", str(key)): "name a cohort file, or the folder of the key",
        ("keys", "show", str(cohort), "--trust", str(key)): "name enrolment.pub",
        (*enrol, "--client", str(key), "--holder", card): "name the member.json of a member",
        (*enrol, "--client", card, "--holder", str(key)): "name the member.json of a member",
        (*enrol, "--client", str(tmp_path / "ann" / "identity.json"), "--holder", card): "is not a member's card",
    }
    for command, words in commands.items():
        capsys.readouterr()
        assert main(list(command)) == 2
        shown = capsys.readouterr()
        assert words in shown.err and shown.err.count("\n") == 1 and digits not in shown.out + shown.err
    holding = [path for path in tmp_path.rglob("*") if path.is_file() and digits in path.read_text()]
    assert holding == [key] and not (tmp_path / "bob").exists()


def test_a_public_file_is_shown_and_never_serves_as_a_secret(tmp_path, trust, capsys):
    capsys.readouterr()
    assert main(["keys", "show", str(trust)]) == 0
    assert capsys.readouterr().out == f"enrolment key {trust.read_text().split()[1]}\n"
    (tmp_path / "root" / "enrolment.key").write_text(trust.read_text())
    assert main(["keys", "show", str(tmp_path / "root")]) == 2
    assert "holds the public half where the secret should be" in capsys.readouterr().err


def test_a_members_keys_do_not_go_into_the_enrolment_folder(tmp_path, trust, capsys):
    before = trust.read_bytes()
    assert main(["keys", "init", str(tmp_path / "other"), "--enrolment"]) == 0
    other = str(tmp_path / "other" / "enrolment.pub")
    assert main(["keys", "init", str(tmp_path / "root"), "--name", "ann", "--trust", other]) == 2
    assert "never overwritten" in capsys.readouterr().err and trust.read_bytes() == before
