"""run.log says what was decided: no word of an error in training, whatever it quotes, and still where it was."""

import logging
import os
import stat

import pytest
from kit.crypto.plainsum import InsecurePlainSum
from kit.smallrun import small_run

from fednode.assemble.run_folder import logging_to
from fednode.assemble.session import Environment

PLAIN = Environment(schemes=lambda _: InsecurePlainSum())
SECRET = "my-card-4929-is-lost"


def quoting(*_):
    raise ValueError(f"cannot tokenise {SECRET!r}")


def chaining(*given):
    try:
        quoting(*given)
    except ValueError as error:
        raise KeyError(SECRET) from error


@pytest.mark.parametrize("raising", [quoting, chaining])
@pytest.mark.parametrize(
    "broken", ["fednode_study.study.train", "fednode_clients.app.clip_of", "fednode_clients.app.gradient_sum"]
)
def test_no_file_of_a_run_quotes_what_a_client_trained_on(tmp_path, monkeypatch, raising, broken):
    monkeypatch.setattr(broken, raising)
    result = small_run(tmp_path, PLAIN)
    files = {path.name: path.read_bytes() for path in result.folder.iterdir()}
    assert [name for name, data in files.items() if SECRET.encode() in data] == []
    log = files["run.log"].decode()
    kind = "ValueError" if raising is quoting else "KeyError"
    assert f"training failed, so zeros are sent: {kind} at {__file__}:" in log
    assert f"in {raising.__name__}" in log
    # the node cannot see it, and the operator of a study must
    told = [line for line in result.record.deviations if f"training failed ({kind})" in line]
    assert len(told) > 1


def test_nobody_else_enters_the_folder_of_a_run_or_reads_its_files(tmp_path):
    before = os.umask(0)
    try:
        folder = small_run(tmp_path, PLAIN).folder
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}
    assert modes.pop(folder.name) == 0o700
    files = {"config.toml", "ledger.jsonl", "model.safetensors", "report.html", "report.json", "run.log"}
    assert files <= set(modes) and set(modes.values()) == {0o600}


def test_no_error_outside_of_training_is_quoted_either(tmp_path, monkeypatch):
    monkeypatch.setattr("fednode_clients.app.query_of", quoting)
    result = small_run(tmp_path, PLAIN)
    assert all(SECRET.encode() not in path.read_bytes() for path in result.folder.iterdir())
    assert "ValueError" in (result.folder / "run.log").read_text()


def test_a_formatter_that_ran_before_leaves_no_words_behind(tmp_path):
    path, words = tmp_path / "run.log", []

    class First(logging.Handler):
        def emit(self, record):
            words.append(logging.Formatter().format(record))

    first, members = First(), logging.getLogger("fednode.clients")
    with logging_to(path):
        members.addHandler(first)
        try:
            quoting()
        except ValueError:
            members.exception("training failed")
        finally:
            members.removeHandler(first)
    # whoever else listens, in a process of the member's own, has all of it
    assert SECRET in words[0] and SECRET not in path.read_text() and "ValueError at" in path.read_text()


def test_the_nodes_own_tracebacks_stay_whole(tmp_path):
    path = tmp_path / "run.log"
    with logging_to(path):
        try:
            quoting()
        except ValueError:
            logging.getLogger("fednode.run").exception("ended")
    assert "Traceback" in path.read_text() and SECRET in path.read_text()
