"""`fednode ledger`: check a ledger and price it again, without the node and without writing to it."""

from pathlib import Path
from typing import Annotated

import typer


def ledger_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The ledger of a run, such as runs/<id>/ledger.jsonl.")],
) -> None:
    """Verify every line and hash of a ledger FILE, and print what it says was spent. Nothing is written."""
    from fednode.reports.ledger_check import ledger_lines

    for line in ledger_lines(file):
        typer.echo(line)
