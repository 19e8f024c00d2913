"""A row's own process: fresh, one core, one thread. Its answer is JSON on the last line of its output."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fednode.errors import FednodeError
from fednode.flower_env import flower_environment

ROOT: Final = Path(__file__).resolve().parents[2]
"""The checkout. A row's process starts there, so that it finds `benchmarks`."""

CORE: Final = "FEDNODE_BENCH_CORE"
"""The variable that tells a row's process which core to use, counted from the last one."""

ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


class RowFailed(FednodeError):
    """A row's process ended without an answer; the sentence names the row and quotes the last line of its stderr."""


@dataclass(frozen=True, slots=True)
class Job:
    """What one process does: call `work` of the module `program` with the keyword arguments `asked`, all JSON."""

    name: str
    program: str
    asked: Mapping[str, Any]


class Processes:
    """Turns jobs into answers. A fake in its place answers without a process."""

    def alone(self, job: Job) -> dict[str, Any]:
        """Do one job, whose times count. Raises RowFailed."""
        (answer,) = self.together([job])
        return answer

    def together(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        """Do jobs side by side, each on another core, and return the answers in order; their times do not count.

        Raises RowFailed.
        """
        with tempfile.TemporaryDirectory(prefix="fednode-bench-") as home, _started(jobs, Path(home)) as started:
            outputs = [process.communicate(json.dumps(job.asked)) for job, process in zip(jobs, started, strict=True)]
            return [
                _answer(job, process.returncode, *output)
                for job, process, output in zip(jobs, started, outputs, strict=True)
            ]


@contextmanager
def _started(jobs: Sequence[Job], home: Path) -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    try:
        for core, job in enumerate(jobs):
            started.append(_start(job, core, home))
        yield started
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.communicate()


def _start(job: Job, core: int, home: Path) -> subprocess.Popen[str]:
    # ru_maxrss of a new process starts at what its parent held: whoever starts rows has to stay small
    return subprocess.Popen(  # noqa: S603 # nosec B603 # (our own interpreter and programs)
        [sys.executable, "-m", "benchmarks.harness.worker", job.program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_THREAD, **flower_environment(home), CORE: str(core), "TMPDIR": str(home)},
        cwd=ROOT,
    )


def _answer(job: Job, code: int, out: str, err: str) -> dict[str, Any]:
    try:
        answer = json.loads(out.strip().splitlines()[-1]) if code == 0 else None
    except (ValueError, IndexError):
        answer = None
    if isinstance(answer, dict):
        return answer
    last = (err.strip().splitlines() or ["nothing"])[-1]
    raise RowFailed(f"the process of {job.name} ended with code {code} and no answer; its last line: {last}")
