"""`fednode predict`: use the model of a finished run.

The docstring explains the arguments: this typer does not show their `help` under click 8.5.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from fednode.cli.exits import printable, say
from fednode.errors import ConfigError


def predict_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN_FOLDER")],
    texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT...]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a message: text, label, score.")] = False,
) -> None:
    """Label messages with the model of a finished run, and print the score of each label.

    RUN_FOLDER is the run's folder, such as runs/ID; each TEXT is one message, in quotes. Without a TEXT, each line of
    the standard input is a message.
    """
    from fednode.assemble import predict

    given = texts or [line.strip() for line in sys.stdin if line.strip()]
    if not given:
        raise ConfigError("there is no message to label: name one in quotes, or send lines to the standard input")
    for text, (label, share) in zip(given, predict(folder, given), strict=True):
        if as_json:
            say(json.dumps({"text": text, "label": label, "score": round(share, 6)}))
        else:
            say(f"{printable(label)}  {100 * share:.1f} %  {printable(text)}")
