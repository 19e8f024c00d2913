"""Killed between any two steps of a round: after a restart no ledger holds less than was opened.

The steps of a process: reserve (the line is written), fsync, the head file, the same for the run's own ledger, open (a
holder is asked), commit, publish. Each child kills itself at one of them; what it opened is in a file of its own, which
is fsynced before the opening counts.
"""

import os
import signal
import subprocess
import sys

import pytest
from kit.clocks import FakeClock

from fednode.privacy import Budget, DiscreteGaussianSum, Ledger, epsilon

LIMIT, NAMES = 9.0, tuple(f"client-{n:02d}" for n in range(15))
STEPS = 40
"""Of which some are in the third round: a line half written, written and synced, and its head file, in two ledgers."""
EVENT = DiscreteGaussianSum(1.0, 16, 20_500, 2_063_600_292, 15, 2.0**-110)

CHILD = """
import os, signal, sys
from pathlib import Path
from fednode.clock import SystemClock
from fednode.errors import BudgetExhausted
from fednode.privacy import Budget, DiscreteGaussianSum, Ledger

folder, task, fatal = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
event = DiscreteGaussianSum(1.0, 16, 20_500, 2_063_600_292, 15, 2.0**-110)
names = tuple(f"client-{n:02d}" for n in range(15))
steps = 0

def step(what):
    global steps
    steps += 1
    if steps == fatal:
        os.write(1, what.encode())
        os.kill(os.getpid(), signal.SIGKILL)

write, fsync = os.write, os.fsync

def half_written(descriptor, data):
    half = len(data) // 2
    done = write(descriptor, data[:half])
    step("in the middle of a line")
    done += write(descriptor, data[half:])
    step("written")
    return done

def synced(descriptor):
    fsync(descriptor)
    step("synced")

within = Ledger.of_population(folder / "people.ledger.jsonl", Budget(9.0, 1e-5), SystemClock(), task)
(folder / task).mkdir(exist_ok=True)
ledger = Ledger.open(folder / task / "ledger.jsonl", Budget(8.0, 1e-5), SystemClock(), task, within)
done = max((e.charge.round_number for e in within.entries if e.charge.task == task), default=0)
opened = os.open(folder / f"{task}.opened", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write, os.fsync = half_written, synced
for number in range(done + 1, done + 4):
    step("before the charge")
    ledger.charge(event, number, names)
    step("charged")
    write(opened, f"{number}\\n".encode())
    fsync(opened)
    step("opened")
    step("committed")
    step("published")
os.write, os.fsync = write, fsync
"""


def child(folder, task: str, fatal: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), task, str(fatal)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check_whole(folder) -> None:
    """Every round that was opened is in the population's ledger and in its run's, once and no more."""
    with Ledger.of_population(folder / "people.ledger.jsonl", Budget(LIMIT, 1e-5), FakeClock(), "x") as people:
        charged = [(entry.charge.task, entry.charge.round_number) for entry in people.entries]
        assert people.spent <= LIMIT
    assert len(charged) == len(set(charged))
    for file in folder.glob("*.opened"):
        opened = [int(line) for line in file.read_text().splitlines()]
        assert {(file.stem, number) for number in opened} <= set(charged)
        with Ledger.open(folder / file.stem / "ledger.jsonl", Budget(8.0, 1e-5), FakeClock(), file.stem) as ledger:
            own = {entry.charge.round_number for entry in ledger.entries}
        assert set(opened) <= own <= {number for task, number in charged if task == file.stem}


@pytest.mark.parametrize("first", range(1, STEPS, 4))
def test_killed_at_any_step_the_ledgers_hold_what_was_opened(tmp_path, first):
    seen = []
    for fatal in range(first, first + 4):
        process = child(tmp_path, "one", fatal)
        said, error = process.communicate()
        assert process.returncode == -signal.SIGKILL, error
        seen.append(said)
        check_whole(tmp_path)
    assert all(seen)
    process = child(tmp_path, "two", 0)
    assert process.communicate() == ("", "") and process.returncode == 0
    check_whole(tmp_path)
    assert (tmp_path / "two.opened").read_text() == "1\n2\n3\n"


def test_two_runs_at_once_of_which_one_is_killed_again_and_again(tmp_path):
    for fatal in range(3, 30, 6):
        killed, going = child(tmp_path, "one", fatal), child(tmp_path, f"other-{fatal}", 0)
        assert killed.communicate()[0] and killed.returncode == -signal.SIGKILL
        out, error = going.communicate()
        assert going.returncode == 0 or "BudgetExhausted" in error, (out, error)
        check_whole(tmp_path)


def test_the_check_finds_an_opening_that_nothing_was_charged_for(tmp_path):
    process = child(tmp_path, "one", 0)
    assert process.communicate() == ("", "")
    check_whole(tmp_path)
    with (tmp_path / "one.opened").open("a") as file:
        file.write("4\n")
        os.fsync(file.fileno())
    with pytest.raises(AssertionError):
        check_whole(tmp_path)
    assert epsilon([EVENT] * 3, 1e-5) < LIMIT
