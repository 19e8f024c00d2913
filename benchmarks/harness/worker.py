"""The other end of `processes`: `python -m benchmarks.harness.worker MODULE` does the job that stands on its input."""

import json
import os
import resource
import sys
from importlib import import_module
from typing import Any, Final, Protocol, cast

from benchmarks.harness.processes import CORE

_KILO: Final = 1 if sys.platform == "darwin" else 1024


class Program(Protocol):
    """A module that a process can be started for."""

    def work(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Do the job and return its answer; both as JSON holds them."""
        ...


def stay_on_one_core() -> None:
    """Keep this process, and every thread it starts, on one core, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0), reverse=True)
        os.sched_setaffinity(0, {cores[int(os.environ.get(CORE, "0")) % len(cores)]})


def peak_bytes() -> int:
    """Return the most memory that this process ever held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KILO


def main(module: str) -> None:
    """Do the job of `module` that stands on standard input, and write the answer as the last line of the output."""
    stay_on_one_core()
    program = cast(Program, import_module(module))
    answer = program.work(json.load(sys.stdin))
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
