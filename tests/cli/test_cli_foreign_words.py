"""What a peer, a file, a path or a header says reaches log and terminal as visible text on one line."""

import json
import logging
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Error, Message
from flwr.clientapp import ClientApp
from kit import cohort as kit
from kit.assembly import FakeAssembly, install, some_progress
from kit.cohort import FakeCohort
from rich.console import Console
from safetensors.numpy import save

import fednode.cli
from fednode.assemble.lines import LineObserver
from fednode.assemble.run_folder import logging_to
from fednode.cli import main
from fednode.cli.progress import BarWatcher, watcher_for
from fednode.errors import FednodeError, PeerFault, visible
from fednode.inproc import InProcGrid
from fednode.protocol.signed_requests import topic_of
from fednode.server import GridChannel
from fednode_study.model_file import MODEL_NAME

EVIL = "a\x1b[2J\rfednode: paid\x07\x9b\u202eb\u2028c\u2066"
BAD = set(EVIL) - set("a[2Jfednode: paidbc")


def check_line(text: str) -> None:
    """It has one line, with none of the letters that disturb a terminal."""
    assert text and not text.rstrip("\n").count("\n")
    check(text)


def check(text: str) -> None:
    assert "paid" in text and not [
        repr(sign) for sign in text if sign in BAD - {"\n"} or not (sign.isprintable() or sign == "\n")
    ]


def test_only_what_is_visible_already_stays_as_it_is():
    assert visible("Zürich \\ 北京 e\u0301") == "Zürich \\ 北京 e\u0301"
    assert visible("\x1b\n\r\u202e\u2028\udc80\xa0") == "\\x1b\\n\\r\\u202e\\u2028\\udc80\\xa0"
    assert visible("a\nb\tc", keep="\n") == "a\nb\\tc"


@pytest.mark.parametrize("kind", [PeerFault, *PeerFault.__base__.__subclasses__()])
def test_every_error_of_ours_is_one_visible_line(kind):
    check_line(str(kind(f"{EVIL}\nsecond line")))


def test_what_a_fault_quotes_is_kept_as_it_came():
    assert PeerFault("malformed", EVIL).detail == EVIL


# --- the terminal


@pytest.fixture
def assembly(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return install(monkeypatch, FakeAssembly())


@pytest.mark.parametrize("raised", [FednodeError(EVIL), ValueError(EVIL), OSError(2, "gone", EVIL)])
def test_an_error(assembly, capsys, raised):
    assembly.raises = raised
    assert main(["run"]) > 0
    check_line(capsys.readouterr().err)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", f"--{EVIL}"],
        ["run", "--clients", EVIL],
        ["run", "--config", EVIL],
        [EVIL],
        ["keys", "show", EVIL],
        ["keys", "init", "f", "--name", EVIL, "--trust", EVIL],
        ["ledger", "verify", EVIL],
        ["predict", EVIL, "lost card"],
        ["cache", "stats", EVIL],
        ["cache", "tune", "--set", EVIL],
    ],
    ids=lambda given: " ".join(given[:2]).encode("ascii", "ignore").decode().split("a\x1b")[0],
)
def test_a_flag_or_a_path(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) > 0
    check_line(capsys.readouterr().err)


def test_a_path_in_what_is_printed(tmp_path, capsys):
    assert main(["keys", "init", "--enrolment", str(tmp_path / EVIL)]) == 0
    check(capsys.readouterr().out)


def test_a_label_of_a_model_file(tmp_path, capsys):
    arrays = {"weight": np.zeros((2, 16), np.float32), "bias": np.array([1, 0], np.float32)}
    metadata = {"featuriser": "hashed-text-1", "dimension": "16", "labels": json.dumps([EVIL, "pay"])}
    (tmp_path / MODEL_NAME).write_bytes(save(arrays, metadata=metadata))
    assert main(["predict", str(tmp_path), "lost card"]) == 0
    check_line(capsys.readouterr().out)


@pytest.mark.parametrize("header", [f'text,"{EVIL}"', f'text,label,"{EVIL}","{EVIL}"'])
def test_a_header_of_a_csv_file(tmp_path, monkeypatch, capsys, header):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paid.csv").write_bytes(f"{header}\nlost card,card\n".encode())
    assert main(["run", "--dry-run", "--data", "paid.csv"]) == 3
    check_line(capsys.readouterr().err)


def test_a_cohort_file_and_a_ledger(tmp_path, capsys):
    for name, command in (("cohort.json", ["keys", "show"]), ("ledger.jsonl", ["ledger", "verify"])):
        (tmp_path / name).write_text(json.dumps({"format": f"{EVIL} paid", EVIL: EVIL}))
        assert main([*command, str(tmp_path / name)]) > 0
        said = capsys.readouterr().err
        assert len(said.splitlines()) == 1 and not BAD.intersection(said)


def test_a_watched_run():
    said: list[str] = []
    watcher = LineObserver(said.append)
    watcher.phase(EVIL)
    watcher.round_done(some_progress(reason=EVIL))
    for line in said:
        check_line(line)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_run_on_a_console(terminal):
    console = Console(force_terminal=terminal, width=200, no_color=True, record=True)
    watcher = watcher_for(console)
    watcher.round_done(some_progress(reason=EVIL))
    watcher.phase(EVIL)
    if isinstance(watcher, BarWatcher):
        shown = "".join(str(line) for line in watcher._bar.get_renderables())
        assert "\\x1b" in shown and not BAD.intersection(shown)
    watcher.finished()
    assert not (BAD - {"\x1b", "\r"}).intersection(console.export_text())


def test_rows_at_the_end(assembly, capsys):
    assembly.result.lines[:] = [f"model  {EVIL}"]
    assert main(["run"]) == 0
    check_line(capsys.readouterr().out.splitlines(keepends=True)[-1])


# --- the log of a run


@pytest.fixture
def logged(tmp_path):
    """Runs a function and returns the lines of the run.log that it makes."""

    def run(what):
        with logging_to(tmp_path / "run.log"):
            what()
        return (tmp_path / "run.log").read_text(encoding="utf-8").split("\n")[:-1]

    return run


def test_words_of_a_record(logged):
    (line,) = logged(lambda: logging.getLogger("fednode.server").warning("%s said %s", "holder-1", f"{EVIL}\nforged"))
    check_line(line)


def test_words_in_a_traceback(logged):
    def fail():
        try:
            raise ValueError(EVIL)
        except ValueError:
            logging.getLogger("fednode.live").exception("no change")

    lines = logged(fail)
    assert lines[1] == "Traceback (most recent call last):" and not BAD.intersection("".join(lines))
    check_line(lines[-1])


def test_a_traceback_that_the_command_line_adds(assembly, tmp_path):
    assembly.folder, assembly.raises = tmp_path, ValueError(EVIL)
    assert main(["run"]) == 1
    check((tmp_path / "run.log").read_text(encoding="utf-8"))


def test_a_refusal_of_a_member_is_not_even_parsed(tmp_path, logged):
    def refusing(cohort, name, request):
        about = {"reason": "full", "detail": EVIL}
        return [cohort.folder(name).signer.write("refusal", topic_of(request.frame), about=about).to_bytes()]

    cohort = FakeCohort(tmp_path)
    cohort.tell("client-1", refusing)
    driver = cohort.begun()
    (line,) = [line for line in logged(lambda: driver.run_round(1)) if "client-1" in line]
    assert "malformed" in line and not BAD.intersection(line)


class _OneNode:
    """A grid with one node, which answers hello with an error."""

    def __init__(self):
        InProcGrid(ClientApp(), (), {})

    def get_node_ids(self):
        return [1]

    def push_messages(self, messages):
        (self.asked,) = messages
        self.asked.metadata.__dict__["_message_id"] = "m"
        return ["m"]

    def pull_messages(self, _ids):
        asked, self.asked = self.asked, None
        return [] if asked is None else [Message(Error(2, EVIL), reply_to=asked)]


def test_an_error_of_flower_at_the_roll_call(tmp_path, logged):
    cohort = kit.FakeCohort(tmp_path)
    channel = GridChannel(_OneNode(), cohort.cohort, cohort.signer)
    (line,) = logged(lambda: channel.roll_call(lambda: False))
    check_line(line)


def test_control_a_plain_formatter_would_have_passed_it_on(caplog):
    with caplog.at_level(logging.WARNING):
        logging.getLogger("elsewhere").warning("%s", EVIL)
    assert BAD.intersection(caplog.text)


def test_nothing_is_printed_past_the_one_door():
    cli = Path(fednode.cli.__file__).parent
    found = Counter(path.name for path in cli.glob("*.py") for _ in path.read_text("utf-8").split("typer.echo(")[1:])
    # the version; labels for Prometheus, which are escaped, and a count; rows that are escaped before they are wrapped
    assert found == {"exits.py": 1, "app.py": 1, "cache.py": 2, "run.py": 1}
