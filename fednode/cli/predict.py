"""`fednode predict`: use the model of a finished run.

The docstring explains the arguments: this typer does not show their `help` under click 8.5.
"""

from pathlib import Path
from typing import Annotated

import typer

from fednode.cli.exits import printable, say


def predict_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN_FOLDER")],
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...")],
) -> None:
    """Label messages with the model of a finished run, and print the score of each label.

    RUN_FOLDER is the run's folder, such as runs/ID; each TEXT is one message, in quotes.
    """
    from fednode.assemble import predict

    for text, (label, share) in zip(texts, predict(folder, texts), strict=True):
        say(f"{printable(label)}  {100 * share:.1f} %  {printable(text)}")
