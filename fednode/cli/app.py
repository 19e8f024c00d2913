"""The commands, and the one place where errors become a sentence and an exit code."""

import io
import sys
from collections.abc import Sequence
from typing import Annotated

import click
import typer

import fednode
from fednode.cli.audit import audit_command
from fednode.cli.bench import bench_command
from fednode.cli.cache import cache_app
from fednode.cli.data import data_app
from fednode.cli.exits import REPORT_CAUSES, USAGE, epilog, exit_code_of, printable, say, sentence_of
from fednode.cli.keys.commands import keys_app
from fednode.cli.ledger import ledger_app
from fednode.cli.predict import predict_command
from fednode.cli.prepare import prepare_command
from fednode.cli.report import report_command
from fednode.cli.run import run_command
from fednode.cli.runs import compare_command, export_command, list_command, show_command
from fednode.errors import ConfigError, Interrupted

app = typer.Typer(
    name="fednode",
    help="Train one model on the records of many clients, none of whom shows what it learned.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", epilog=epilog())(run_command)
app.command("predict")(predict_command)
app.command("prepare")(prepare_command)
app.command("report", epilog=epilog(REPORT_CAUSES))(report_command)
app.command("list")(list_command)
app.command("show")(show_command)
app.command("compare")(compare_command)
app.command("export")(export_command)
app.command("audit", epilog=epilog())(audit_command)
app.add_typer(data_app, name="data")
app.add_typer(ledger_app, name="ledger")
app.add_typer(keys_app, name="keys")
app.command(
    "bench",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)(bench_command)
app.add_typer(cache_app, name="cache")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fednode {fednode.__version__}")
        raise typer.Exit


@app.callback()
def _top(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; an error is one sentence on stderr, never a traceback."""
    try:
        _never_fail_to_print()
        given = sys.argv[1:] if arguments is None else list(arguments)
        if given[:1] == ["keys"] and any(word == "" or (word[:2] == "--" and word[-1] == "=") for word in given):
            # Path("") would be the folder that one stands in
            raise ConfigError("an argument is empty; give it a name, a file or a folder, or leave it out")
        outcome = app(args=given, prog_name="fednode", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError:
        # the help was printed
        return USAGE
    except click.ClickException as error:
        # typer writes its guess into the message, and click would add the same one
        return _say(error.message if "Did you mean" in error.message else error.format_message(), USAGE)
    except (KeyboardInterrupt, click.Abort):
        return _say("aborted", Interrupted.exit_code)
    except Exception as error:  # noqa: BLE001 - every error ends here
        return _say(sentence_of(error), exit_code_of(error))
    return outcome if isinstance(outcome, int) else 0


def _never_fail_to_print() -> None:
    """Escape letters that the terminal's encoding lacks, as in file names: printing them would raise an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _say(sentence: str, code: int) -> int:
    say(f"fednode: {printable(sentence)}", err=True)
    return code
