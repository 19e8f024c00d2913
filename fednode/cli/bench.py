"""`fednode bench`: measure, against what others do, and judge against limits."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fednode.errors import ConfigError

if TYPE_CHECKING:
    from fednode.bench.sums.suite import SumOptions

OUT: Final = Path("bench-results")

bench_app = typer.Typer(
    help="Measure FedNode against what others do; exit code 1 when a limit is not kept.", no_args_is_help=True
)


@bench_app.command("sum")
def sum_command(
    rows: Annotated[str | None, typer.Option("--rows", metavar="A,B", help=r"Rows to measure \[default: all].")] = None,
    sizes: Annotated[
        str | None, typer.Option("--sizes", metavar="N,M", help=r"Values an update \[default: 1000000,10000000].")
    ] = None,
    clients: Annotated[
        str | None, typer.Option("--clients", metavar="N,M", help=r"Clients a cohort \[default: 10,100,1000].")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where JSON and plot go.")] = OUT,
    quick: Annotated[bool, typer.Option("--quick", help="Everything once, small; judges no limit.")] = False,
) -> None:
    """Secure sums: bytes and seconds of client, node and holder, beside plain float32, SecAgg+, CKKS.

    Rows: plain, secagg, ckks, bfv, ring, memory, exact. A full run takes under ten minutes on two cores; keep the
    machine quiet meanwhile.
    """
    from fednode.bench.results import date_of, machine, write_results
    from fednode.bench.sums import limits, plot, report, suite
    from fednode.bench.verdicts import exit_code
    from fednode.clock import SystemClock

    options, clock = _options(suite.QUICK if quick else suite.SumOptions(), rows, sizes, clients), SystemClock()
    typer.echo(f"secure sums on {machine()['cores']} cores, one used by each row")
    measured = suite.run_sums(options, typer.echo, clock)
    verdicts = limits.judged(measured)
    date = date_of(clock.time())
    found = {"bench": "sum", "date": date, "machine": machine(), **report.document(measured, verdicts)}
    paths = write_results(out, f"{date}-sum", found, plot.svg(measured))
    for line in ("", *report.words(measured, verdicts), f"written: {paths[0]} and {paths[1]}"):
        typer.echo(line)
    raise typer.Exit(exit_code(verdicts))


def _options(base: "SumOptions", rows: str | None, sizes: str | None, clients: str | None) -> "SumOptions":
    from dataclasses import replace

    return replace(
        base,
        rows=base.rows if rows is None else _parts(rows),
        sizes=base.sizes if sizes is None else _numbers("--sizes", sizes),
        clients=base.clients if clients is None else _numbers("--clients", clients),
    )


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _numbers(flag: str, text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in _parts(text))
    except ValueError:
        found = ()
    if not found:
        raise ConfigError(f"{flag} takes whole numbers with commas between, such as 10,100: '{text}' is none")
    return found
