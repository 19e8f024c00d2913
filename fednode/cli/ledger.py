"""`fednode ledger`: check a ledger and compute what it spent, without the node and without writing to it."""

from pathlib import Path
from typing import Annotated

import typer

from fednode.cli.exits import say


def ledger_command(file: Annotated[Path, typer.Argument(metavar="FILE")]) -> None:
    """Check a run's ledger and compute again what it spent. Nothing is written.

    FILE is the ledger of a run, such as runs/ID/ledger.jsonl.
    """
    from fednode.reports.ledger_check import ledger_lines

    for line in ledger_lines(file):
        say(line)
