"""`fednode run`: settle the settings, then plan or run, and watch."""

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from fednode.assemble.lines import LineObserver
from fednode.cli.exits import exit_code_of, sentence_of
from fednode.cli.flags import with_setting_flags
from fednode.cli.progress import watcher_for, watching
from fednode.cli.signals import stop_on_interrupt
from fednode.errors import FednodeError, Interrupted
from fednode.flower_env import quieten_flower
from fednode.observer import StopFlag
from fednode.settings import RunSettings, resolve

DEFAULT_FILE: Final = Path("fednode.toml")


@with_setting_flags
def run_command(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help=r"Settings file \[default: fednode.toml if there].")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print rounds, epsilon and bytes, refuse what would fail, and stop.")
    ] = False,
    **flags: object,
) -> None:
    """Train a model on clients whose updates nobody can read, and report what privacy was spent.

    Settings come from fednode.toml, then FEDNODE_* variables (FEDNODE_CLIENTS=10), then flags; the last one named wins.
    """
    settings = resolve(_settings_file(config), os.environ, flags)
    quieten_flower(settings.out / ".flower", os.environ)
    if dry_run:
        _show_plan(settings)
        return
    _run(settings)


def _settings_file(config: Path | None) -> Path | None:
    if config is not None:
        return config
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


def _show_plan(settings: RunSettings) -> None:
    from fednode.assemble import plan

    for line in plan(settings).lines():
        typer.echo(line)


class _LastingConsole(Console):
    """A console whose reader may leave (`| head`): rich would end the process, in the middle of a round."""

    def on_broken_pipe(self) -> None:
        """Say the rest to nobody."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(settings: RunSettings) -> None:
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
    for line in result.lines:
        typer.echo(line)
    if result.error is not None:
        typer.echo(f"fednode: {sentence_of(result.error)}", err=True)
        raise typer.Exit(exit_code_of(result.error))


def _keep_traceback(error: Exception, watcher: LineObserver) -> None:
    """Append the traceback of an error that nobody foresaw to run.log, if there is one to append to."""
    if isinstance(error, FednodeError) or watcher.folder is None:
        return
    try:
        with (watcher.folder / "run.log").open("a", encoding="utf-8") as log:
            log.writelines(traceback.format_exception(error))
    except OSError as failure:
        watcher.say(f"run.log could not be written: {failure.strerror}")
