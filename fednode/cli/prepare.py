"""`fednode prepare`: fit whitening on a public set, so that private rounds start further on."""

from pathlib import Path
from typing import Annotated

import typer

from fednode.cli.exits import say
from fednode.errors import ConfigError
from fednode.settings import resolve


def prepare_command(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    *,
    data: Annotated[str | None, typer.Option(help="Public set: banking77, a CSV file or a folder.")] = None,
    data_dir: Annotated[str | None, typer.Option(help="Folder with the files of banking77.")] = None,
    text_column: Annotated[str | None, typer.Option(help="The CSV column with the message.")] = None,
    label_column: Annotated[str | None, typer.Option(help="The CSV column with the intent.")] = None,
    vectors: Annotated[str | None, typer.Option(help="Its sentence vectors (.npz).")] = None,
    features: Annotated[str | None, typer.Option(help="Length of a hashed feature vector.")] = None,
    columns: Annotated[int, typer.Option(help="Directions that are kept.")] = 192,
    start: Annotated[float, typer.Option(help="Length of the head's first weights; 0 starts from nothing.")] = 1.5,
    source: Annotated[str | None, typer.Option(help="Where the public set comes from, and its licence.")] = None,
) -> None:
    """Fit a preparation on a PUBLIC set and write it to FILE, for `fednode run --preparation FILE`.

    Use a public set with the features of the run to come, never the run's own records: the fit is in no epsilon.
    """
    from fednode.assemble import study_step

    if data is None:
        raise ConfigError("name the public set with --data; the fit is in no epsilon, so there is no default")
    given = {
        "data": data,
        "data_dir": data_dir,
        "text_column": text_column,
        "label_column": label_column,
        "vectors": vectors,
        "features": features,
    }
    settings = resolve(None, {}, {name: value for name, value in given.items() if value is not None})
    for line in study_step("prepare", settings, file, columns, start, source):
        say(line)
