"""A row's own process: fresh, one core, one thread, and its answer as JSON on the last line of its output."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fednode.errors import FednodeError
from fednode.flower_env import flower_environment

CORE: Final = "FEDNODE_BENCH_CORE"
"""Names the variable that tells a row's process which of the cores it may use, counted from the last one."""

ROOT: Final = Path(__file__).resolve().parents[2]
"""The checkout: where a row's process starts, so that it finds `benchmarks`."""

ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


class RowFailed(FednodeError):
    """A row's process ended without an answer: the sentence says which row and quotes its last words."""


@dataclass(frozen=True, slots=True)
class Job:
    """What one process does: `program` is a module with a function `work`; `asked` is its input."""

    name: str
    program: str
    asked: Mapping[str, Any]

    def command(self) -> list[str]:
        """Return the command line that does this job."""
        return [sys.executable, "-m", "benchmarks.harness.worker", self.program]


def run_job(job: Job) -> dict[str, Any]:
    """Do one job in a fresh process and return its answer. Raises RowFailed."""
    (answer,) = run_side_by_side([job])
    return answer


def run_side_by_side(jobs: list[Job]) -> list[dict[str, Any]]:
    """Do some jobs at the same time, each on another core, and return their answers in order. Raises RowFailed.

    Never for jobs whose times are compared.
    """
    with tempfile.TemporaryDirectory(prefix="fednode-bench-") as home, _all_started(jobs, Path(home)) as started:
        outputs = [process.communicate(json.dumps(dict(job.asked))) for job, process in zip(jobs, started, strict=True)]
        return [
            _answer(job, process.returncode, *output)
            for job, process, output in zip(jobs, started, outputs, strict=True)
        ]


@contextmanager
def _all_started(jobs: list[Job], home: Path) -> Iterator[list[subprocess.Popen[str]]]:
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
    environment = {**os.environ, **ONE_THREAD, **flower_environment(home), CORE: str(core), "TMPDIR": str(home)}
    return subprocess.Popen(  # noqa: S603 (our own interpreter and programs)
        job.command(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    )


def _answer(job: Job, code: int, out: str, err: str) -> dict[str, Any]:
    lines = out.strip().splitlines()
    if code == 0 and lines:
        try:
            answer = json.loads(lines[-1])
        except ValueError:
            answer = None
        if isinstance(answer, dict):
            return answer
    said = (err.strip().splitlines() or ["nothing"])[-1]
    raise RowFailed(f"the process of {job.name} ended with code {code} and no answer; its last words: {said}")
