"""`fednode run`: resolve the settings, then show the plan or run it."""

import os
import re
import shutil
import sys
import textwrap
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from fednode.assemble.lines import LineObserver
from fednode.cli.flags import with_setting_flags
from fednode.cli.progress import watcher_for, watching
from fednode.cli.signals import stop_on_interrupt
from fednode.disk.no_dumps import keep_keys_in_memory
from fednode.errors import ConfigError, FednodeError, Interrupted, visible
from fednode.flower_env import quieten_flower
from fednode.observer import StopFlag
from fednode.settings import RunSettings, resolve

DEFAULT_FILE: Final = Path("fednode.toml")


@with_setting_flags
def run_command(
    file: Annotated[str | None, typer.Argument(metavar="[FILE.csv]", help="The same as --data.")] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help=r"Settings file \[default: fednode.toml, if it exists]."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what the run would do and cost, or why it would fail, and exit.")
    ] = False,
    **flags: object,
) -> None:
    """Train a model on sealed updates of many clients, and report how much privacy was spent.

    Settings come from fednode.toml, then variables (FEDNODE_CLIENTS=10), then flags; later ones take precedence.
    """
    if config is None and DEFAULT_FILE.exists():
        config = DEFAULT_FILE
    if file is not None:
        if flags.get("data") is not None:
            raise ConfigError(f"the data are named twice, {file} and --data {flags['data']}: leave one out")
        flags["data"] = file
    settings = resolve(config, os.environ, flags)
    quieten_flower(settings.out / ".flower", os.environ)
    if dry_run:
        from fednode.assemble import plan

        _print_rows(plan(settings).lines())
    else:
        _run(settings)


class _LastingConsole(Console):
    """A console whose reader may leave (`| head`): rich would end the process in the middle of a round."""

    def on_broken_pipe(self) -> None:
        """Discard all further output."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(settings: RunSettings) -> None:
    keep_keys_in_memory()
    watcher = watcher_for(_LastingConsole(file=sys.stdout))
    stop = StopFlag()
    try:
        with watching(watcher), stop_on_interrupt(stop, watcher.say):
            watcher.say("loading libraries")
            from fednode.assemble import run

            result = run(settings, watcher, stop)
    except KeyboardInterrupt:
        raise Interrupted("aborted in the middle of a round; the ledger and finished rounds are kept") from None
    except Exception as error:
        _keep_traceback(error, watcher)
        raise
    _print_rows(result.lines)
    if result.error is not None:
        raise result.error


def _print_rows(rows: Iterable[str]) -> None:
    """Print rows of "name  value". On a terminal, a long value goes on below its beginning."""
    wrapper = textwrap.TextWrapper(max(shutil.get_terminal_size().columns, 40), break_on_hyphens=False)
    for given in rows:
        row = visible(given)
        name = re.match(r"\S.*? {2,}", row)
        wrapper.subsequent_indent = " " * (name.end() if name else 0)
        typer.echo(wrapper.fill(row) if name and sys.stdout.isatty() else row)


def _keep_traceback(error: Exception, watcher: LineObserver) -> None:
    """Append the traceback of an unexpected error to the run's run.log, if there is one."""
    if isinstance(error, FednodeError) or watcher.folder is None:
        return
    try:
        (watcher.folder / "run.log").touch(0o600)
        with (watcher.folder / "run.log").open("a", encoding="utf-8") as log:
            log.write(visible("".join(traceback.format_exception(error)), keep="\n"))
    except OSError as failure:
        watcher.say(f"run.log could not be written: {failure.strerror}")
