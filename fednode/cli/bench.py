"""`fednode bench`: the benchmarks of a checkout. They are not part of an installation."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

import fednode
from fednode.errors import ConfigError


def bench_command(context: typer.Context) -> Any:
    """Measure FedNode against what others do; exit code 1 when a limit is not kept. Needs a checkout.

    `fednode bench --help` lists the suites: sum, cache, trace.
    """
    root = Path(fednode.__file__).resolve().parents[1]
    if not (root / "benchmarks" / "commands.py").is_file():
        raise ConfigError(
            "the benchmarks are not part of an installation: clone FedNode's source and run `make bench` there"
        )
    # in front: Opacus installs a package of that name too
    sys.path.insert(0, str(root))
    return import_module("benchmarks.commands").run(context.args)
