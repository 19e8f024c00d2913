"""`fednode report`: the reports of a run, made from what it left in its folder."""

from pathlib import Path
from typing import Annotated

import typer

from fednode.cli.exits import say


def report_command(folder: Annotated[Path, typer.Argument(metavar="RUN_FOLDER")]) -> None:
    """Write the reports of a run from what it left: also of one that was killed.

    RUN_FOLDER is the run's folder, such as runs/ID. It needs the report.json that the run wrote, or, for a run that was
    killed, its rounds.jsonl and its ledger.jsonl.
    """
    from fednode.assemble import report

    for line in report(folder):
        say(line)
