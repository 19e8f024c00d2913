"""`fednode list`, `show`, `compare` and `export`: finished runs, without starting anything."""

from pathlib import Path
from typing import Annotated

import typer

from fednode.cli.exits import say

_Runs = Annotated[list[Path], typer.Argument(metavar="RUN_FOLDER...")]


def list_command(out: Annotated[Path, typer.Argument(metavar="[FOLDER]")] = Path("runs")) -> None:
    """List the runs in a folder, runs if none is named, newest first: accuracy, epsilon, survivors, bytes, seconds."""
    from fednode.errors import DataError
    from fednode.front.comparison import compare

    found = sorted((path.parent for path in out.glob("*/rounds.jsonl")), reverse=True)
    if not found:
        raise DataError(f"there is no run in {out}; name the folder that was given as --out")
    _say_lines(str(compare(found)))


def show_command(folder: Annotated[Path, typer.Argument(metavar="RUN_FOLDER")]) -> None:
    """Show what a run reached and what it cost, and a line for each round."""
    from fednode.assemble.run_result import closing_lines
    from fednode.front.run import load

    run = load(folder)
    for line in closing_lines(run.record, folder):
        say(line)
    say("")
    for row in run.rounds.rows():
        accuracy = "" if row["accuracy"] is None else f"  accuracy {100 * row['accuracy']:.1f} %"
        say(f"round {row['round']}  survivors {row['survivors']}  epsilon {row['epsilon']:.4f}{accuracy}")


def compare_command(
    runs: _Runs,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the table as a page too.")] = None,
) -> None:
    """Compare finished runs: a row each with accuracy, epsilon, survivors, bytes and seconds."""
    from fednode.front.comparison import compare

    table = compare(runs)
    _say_lines(str(table))
    if html is not None:
        say(str(table.page(html)))


def export_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN_FOLDER")],
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="FILE.safetensors, FILE.npz or FILE.pt.")],
) -> None:
    """Write the trained arrays of a run to a file, in the format that its name ends with."""
    from fednode.front.export import write_arrays
    from fednode.front.run import parameters_in

    say(str(write_arrays(parameters_in(folder), to)))


def _say_lines(text: str) -> None:
    for line in text.splitlines():
        say(line)
