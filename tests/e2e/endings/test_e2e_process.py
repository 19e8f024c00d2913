"""The installed command as a real process: its exit code, one sentence, no traceback, and what it leaves behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from kit.smallrun import flags_of, report_of, small_settings

from fednode.clock import SystemClock
from fednode.privacy import Budget, Ledger


def command(folder: Path, **changes: object) -> tuple[list[str], dict[str, object]]:
    """`fednode run` with small settings, in `folder`; the arguments and how to start it."""
    arguments = [sys.executable, "-m", "fednode", "run", *flags_of(small_settings(folder, **changes))]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FEDNODE_")}
    return arguments, {"cwd": folder, "env": clean, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def only_run(folder: Path) -> Path:
    (run,) = (path for path in (folder / "runs").glob("2*"))
    return run


def check_sentence(stderr: str, words: str) -> None:
    assert stderr.startswith("fednode: ") and stderr.count("\n") == 1
    assert words in stderr and "Traceback" not in stderr


def spent_in(run: Path) -> int:
    """How many rounds the ledger of a run holds; it has to be whole."""
    guarantee = report_of(run)["guarantee"]
    budget = Budget(guarantee["epsilon_limit"], guarantee["delta"])
    with Ledger.open(run / "ledger.jsonl", budget, SystemClock(), run.name) as ledger:
        assert ledger.repair is None
        return len(ledger.entries)


def test_a_run_that_fails_says_why_in_one_sentence(tmp_path):
    arguments, how = command(tmp_path, faults=("dead@1:holder-1", "dead@1:holder-2"))
    done = subprocess.run(arguments, check=False, **how)
    assert done.returncode == 6
    check_sentence(done.stderr, "1 of 3 holders gave keys for round 1 and 2 are needed")
    assert "Traceback" not in done.stdout and "report.html" in done.stdout
    run = only_run(tmp_path)
    assert report_of(run)["outcome"] == "too-few-holders" and spent_in(run) == 0
    names = {path.name for path in run.iterdir()}
    assert names == {
        "report.html",
        "report.json",
        "registry.yaml",
        "ledger.jsonl",
        "ledger.head",
        "run.log",
        "config.toml",
        "rounds.jsonl",
    }
    assert "Traceback" not in (run / "run.log").read_text()


def test_control_c_ends_the_round_and_keeps_everything(tmp_path):
    arguments, how = command(tmp_path, rounds=400)
    process = subprocess.Popen(arguments, **how)
    try:
        said = []
        for line in process.stdout:
            said.append(line)
            if line.startswith("round 2/"):
                break
        process.send_signal(signal.SIGINT)
        rest, stderr = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, said
    # within a round, or between two
    check_sentence(stderr, "stop")
    assert "press Ctrl-C again" in rest and "Traceback" not in rest
    run = only_run(tmp_path)
    report = report_of(run)
    released = sum(entry["outcome"] == "released" for entry in report["rounds"])
    assert report["outcome"] == "stopped" and 2 <= released < 400 and spent_in(run) == released
    assert (run / "model.safetensors").stat().st_size > 0


def test_a_reader_that_leaves_does_not_end_the_run(tmp_path):
    arguments, how = command(tmp_path)
    with subprocess.Popen(arguments, **how) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 0
    assert report_of(only_run(tmp_path))["outcome"] == "finished"
