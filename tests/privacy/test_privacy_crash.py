"""Disks that fill up, processes that die, two processes at once: with the real operating system."""

import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from kit.clocks import FakeClock

from fednode.errors import StoreError
from fednode.privacy import Budget, DiscreteGaussianSum, Ledger

BUDGET = Budget(1000.0, 1e-5)
EVENT = DiscreteGaussianSum(1.0, 16, 20_500, 2_338_621_071, 2, 0.0)
NAMES = ("ann", "bob", "cyd")

CHILD = """
import os, signal, sys
from fednode.clock import SystemClock
from fednode.privacy import Budget, DiscreteGaussianSum, Ledger
ledger = Ledger.open(sys.argv[1], Budget(1000.0, 1e-5), SystemClock(), "intents")
event = DiscreteGaussianSum(1.0, 16, 20_500, 2_338_621_071, 2, 0.0)
"""


def opened(path) -> Ledger:
    return Ledger.open(path, BUDGET, FakeClock(), "intents")


def child(path, code: str) -> subprocess.Popen[str]:
    """Another process that opens the ledger at `path` and then runs `code`."""
    return subprocess.Popen(
        [sys.executable, "-c", CHILD + code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@contextmanager
def files_no_longer_than(size: int):
    """The kernel writes what still fits, then refuses: a disk that fills up in the middle of a line."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 100])
def test_a_disk_that_fills_up_leaves_no_half_line(tmp_path, room):
    path = tmp_path / "ledger.jsonl"
    with opened(path) as ledger:
        ledger.charge(EVENT, 1, NAMES)
        content, head, spent = path.read_bytes(), ledger.head, ledger.spent
        with files_no_longer_than(len(content) + room), pytest.raises(StoreError):
            ledger.charge(EVENT, 2, NAMES)
        assert path.read_bytes() == content
        assert (ledger.head, ledger.spent, len(ledger.entries)) == (head, spent, 1)
        ledger.charge(EVENT, 2, NAMES)
    with opened(path) as ledger:
        assert (len(ledger.entries), ledger.repair) == (2, None)


def test_a_full_disk_is_one_sentence(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with files_no_longer_than(10), pytest.raises(StoreError, match="could not write"):
        opened(path)
    assert not path.exists()


def test_a_failed_fsync_stops_the_ledger_for_good(tmp_path, monkeypatch):
    """After a failed fsync the kernel may have dropped the pages: only reading the file again tells what is there."""
    path = tmp_path / "ledger.jsonl"
    with opened(path) as ledger:
        content = path.read_bytes()

        def refuse(descriptor: int) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", refuse)
            with pytest.raises(StoreError, match="Input/output error"):
                ledger.charge(EVENT, 1, NAMES)
        assert path.read_bytes() == content
        assert ledger.spent == 0.0
        with pytest.raises(StoreError):
            ledger.charge(EVENT, 1, NAMES)
    with opened(path) as ledger:
        ledger.charge(EVENT, 1, NAMES)


def test_a_charge_survives_a_process_that_ends_at_once(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with child(path, 'ledger.charge(event, 1, ("ann", "bob")); os._exit(9)') as process:
        process.communicate()
    assert process.returncode == 9
    with opened(path) as ledger:
        assert [entry.charge.round_number for entry in ledger.entries] == [1]
        assert ledger.spent > 0.0


def test_every_acknowledged_charge_survives_a_kill(tmp_path):
    path = tmp_path / "ledger.jsonl"
    code = """
for number in range(1, 100_000):
    ledger.charge(event, number, ("ann", "bob"))
    print(number, flush=True)
"""
    with child(path, code) as process:
        seen = [int(process.stdout.readline()) for _ in range(25)]
        process.send_signal(signal.SIGKILL)
        seen += [int(line) for line in process.stdout if line.strip()]
    assert process.returncode == -signal.SIGKILL
    with opened(path) as ledger:
        kept = [entry.charge.round_number for entry in ledger.entries]
    assert kept == list(range(1, len(kept) + 1))
    assert len(kept) >= max(seen) >= 25
