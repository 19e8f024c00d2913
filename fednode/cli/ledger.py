"""`fednode ledger`: check a ledger, compute what it spent, change its limit. Only `limit` and `merge` write.

LEDGER is a file, the folder of a run, or the name of a population under runs/populations.
"""

from pathlib import Path
from typing import Annotated

import typer

from fednode.cli.exits import LEDGER_CAUSES, epilog, say

ledger_app = typer.Typer(
    name="ledger",
    help="Check the ledger of a run or a population, price it, change its limit.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_Ledger = Annotated[str, typer.Argument(metavar="LEDGER")]
_Into = Annotated[Path, typer.Option("--into", metavar="FILE", help="The new file, such as NAME.ledger.jsonl.")]


def _file(given: str) -> Path:
    """The file of a ledger that is named by its path, by the folder of its run, or by its population."""
    path = Path(given)
    if path.is_dir():
        return path / "ledger.jsonl"
    named = Path("runs", "populations", f"{given}.ledger.jsonl")
    return named if "/" not in given and not path.exists() and named.exists() else path


@ledger_app.command("verify", epilog=epilog(LEDGER_CAUSES))
def verify_command(
    ledger: _Ledger,
    signed: Annotated[
        Path | None, typer.Option("--signed", metavar="RECORD", help="A holder's record.jsonl: are its lines there?")
    ] = None,
) -> None:
    """Check every line of a ledger and compute again what it spent. Nothing is written.

    LEDGER is a file such as runs/ID/ledger.jsonl, the folder of a run, or the name of a population.
    """
    from fednode.reports.ledger_check import signed_line, verify_lines

    for line in [*verify_lines(_file(ledger)), *([signed_line(_file(ledger), signed)] if signed else [])]:
        say(line)


@ledger_app.command("show")
def show_command(ledger: _Ledger) -> None:
    """List every charge, with its run, and every change of the limit, with its name and reason."""
    from fednode.reports.ledger_check import show_lines

    for line in show_lines(_file(ledger)):
        say(line)


@ledger_app.command("limit")
def limit_command(
    ledger: _Ledger,
    epsilon: Annotated[float, typer.Option("--epsilon", metavar="X", help="The limit from now on.")],
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who decides this.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why.")],
) -> None:
    """Raise or lower the limit of a ledger. The change is a line of its chain, with your name and reason."""
    from fednode.clock import SystemClock
    from fednode.errors import ConfigError
    from fednode.privacy import Ledger

    found = Ledger.at(_file(ledger), SystemClock())
    before = found.budget.epsilon
    try:
        found.limit(epsilon, by, reason)
    except ValueError as error:
        raise ConfigError(f"the limit was not changed: {error}") from error
    say(f"{found.name}: the limit is epsilon {epsilon:g}, after {before:g}; {found.spent:.4f} is spent")


@ledger_app.command("price")
def price_command(
    ledger: _Ledger,
    accountant: Annotated[str, typer.Option("--accountant", metavar="gaussian|renyi|pld")] = "gaussian",
    delta: Annotated[
        float | None, typer.Option("--delta", metavar="X", help="Another delta than the ledger's.")
    ] = None,
    groups: Annotated[int, typer.Option("--groups", metavar="N", min=1, help="N units of one person together.")] = 1,
    replace_one: Annotated[
        bool, typer.Option("--replace-one", help="Neighbours replace a unit by another one.")
    ] = False,
) -> None:
    """Price the charges of a ledger again. pld is the cross-check by dp-accounting, if that is installed."""
    from fednode.reports.ledger_check import price_lines

    for line in price_lines(_file(ledger), accountant, delta, groups * (2 if replace_one else 1)):
        say(line)


@ledger_app.command("merge")
def merge_command(ledgers: Annotated[list[str], typer.Argument(metavar="LEDGER...")], into: _Into) -> None:
    """Write a new ledger of a population with all charges of these ledgers, each round of a run counted once.

    For runs that charged different files and were over the same records, and for what is left of a damaged ledger.
    """
    from fednode.clock import SystemClock
    from fednode.privacy.population import merge

    made = merge([_file(one) for one in ledgers], into, SystemClock())
    if not made.history.limits:
        say("warning: no limit that was set for a population is left in these ledgers; fednode ledger limit sets one")
    say(
        f"{into}: epsilon {made.spent:.4f} is spent in {len(made.entries)} rounds, {made.budget.epsilon:g} is the limit"
    )


@ledger_app.command("export")
def export_command(ledger: _Ledger) -> None:
    """Print the charges as CSV."""
    from fednode.reports.exports import ledger_csv
    from fednode.reports.ledger_check import read_ledger

    charges = [entry.charge for entry in read_ledger(_file(ledger)).entries]
    for line in ledger_csv(charges).decode().splitlines() if charges else ():
        say(line)
