"""`fednode predict`: use the model of a finished run.

Arguments are explained in the command's docstring: this typer does not show their `help` under click 8.5.
"""

from pathlib import Path
from typing import Annotated

import typer

from fednode.cli.exits import printable


def predict_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN_FOLDER")],
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...")],
) -> None:
    """Say which intent a message has, and how sure the model of a run is.

    RUN_FOLDER is a finished run's folder, such as runs/<id>; each TEXT is one message, in quotes.
    """
    from fednode.assemble import predict

    for text, (label, share) in zip(texts, predict(folder, texts), strict=True):
        typer.echo(f"{printable(label)}  {100 * share:.1f} %  {printable(text)}")
