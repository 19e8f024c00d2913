"""The other end of `processes`: `python -m benchmarks.harness.worker MODULE` does the job on its standard input."""

import json
import os
import resource
import sys
from importlib import import_module
from typing import Final

from benchmarks.harness.processes import CORE

_KILO: Final = 1 if sys.platform == "darwin" else 1024


def peak_bytes() -> int:
    """Return the most memory that this process ever held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KILO


def main(module: str) -> None:
    """Call `work` of `module` with the JSON object on standard input; write the answer as the output's last line."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0), reverse=True)
        os.sched_setaffinity(0, {cores[int(os.environ.get(CORE, "0")) % len(cores)]})
    answer = import_module(module).work(**json.load(sys.stdin))
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
