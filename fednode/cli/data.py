"""`fednode data`: files made of other files, before any run."""

import os
from pathlib import Path
from typing import Annotated

import typer

from fednode.cli.exits import say
from fednode.settings import resolve

data_app = typer.Typer(
    name="data",
    help="Split a CSV file, or make a member's file of features.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_File = Annotated[str, typer.Argument(metavar="FILE.csv")]
_Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings: columns, features, encoding.")
]


@data_app.command("split")
def split_command(
    file: _File, into: Annotated[Path, typer.Option("--into", metavar="FOLDER")], config: _Config = None
) -> None:
    """Write the split that a run would make as FOLDER/train.csv and FOLDER/test.csv.

    `fednode run --data FOLDER` keeps it, and the rows of `--vectors` are in the order of these two files.
    """
    from fednode.assemble import study_step

    for line in study_step("split", resolve(config, os.environ, {"data": file}), into):
        say(line)


@data_app.command("prepare")
def prepare_command(
    file: _File,
    labels: Annotated[Path, typer.Option("--labels", metavar="FILE", help="The task's labels, one a line.")],
    into: Annotated[Path, typer.Option("--into", metavar="FILE.npz")],
    config: _Config = None,
) -> None:
    """Make a member's file from its CSV file: arrays inputs and targets, with the features and labels of the task.

    The place of a label in the task's file is its number. Labels that the task does not know are refused.
    """
    from fednode.assemble import study_step

    for line in study_step("member_file", resolve(config, os.environ, {"data": file}), labels, into):
        say(line)
