"""`fednode bench`: measure, against what others do, and judge against limits."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fednode.errors import ConfigError

if TYPE_CHECKING:
    from benchmarks.sums.suite import SumOptions

OUT: Final = Path("bench-results")

bench_app = typer.Typer(
    help="Measure FedNode against what others do; exit code 1 when a limit is not kept.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(arguments: Sequence[str]) -> int:
    """Run one suite and return its exit code; errors are raised, for the command line to report."""
    outcome = bench_app(args=list(arguments), prog_name="fednode bench", standalone_mode=False)
    return outcome if isinstance(outcome, int) else 0


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

    Rows: plain, secagg, ckks, bfv, ring, confirm, memory, exact. A full run takes under ten minutes on two cores; keep
    the machine quiet meanwhile.
    """
    from benchmarks.harness.results import machine
    from benchmarks.harness.verdicts import exit_code
    from benchmarks.sums import limits, plot, report, suite
    from fednode.clock import SystemClock

    options = _options(suite.QUICK if quick else suite.SumOptions(), rows, sizes, clients)
    typer.echo(f"secure sums on {machine()['cores']} cores, one used by each row")
    measured = suite.run_sums(options, typer.echo, SystemClock())
    verdicts = limits.judged(measured)
    _leave(out, "sum", report.document(measured, verdicts), plot.svg(measured), report.words(measured, verdicts))
    raise typer.Exit(exit_code(verdicts))


@bench_app.command("cache")
def cache_command(
    rows: Annotated[str | None, typer.Option("--rows", metavar="A,B", help=r"Rows to measure \[default: all].")] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Trace of block accesses for the row trace.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where JSON and plot go.")] = OUT,
    quick: Annotated[bool, typer.Option("--quick", help="Everything once, small; judges no limit.")] = False,
) -> None:
    r"""The cache: seconds an operation, hits, updates lost, bytes saved, beside dict, cachetools, theine, moka-py,
    diskcache, Redis.

    Rows: hot, many, array, trace, updates, frozen, invalidation, sweep, columns. A full run takes three minutes on two
    cores; keep the machine quiet meanwhile. A row that breaks fails, and costs no other. Others that are not installed
    are left out: pip install 'fednode\[bench]'.
    """
    from benchmarks.cache import limits, plot, report, suite
    from benchmarks.harness.results import machine
    from benchmarks.harness.verdicts import exit_code
    from fednode.clock import SystemClock

    sizes = suite.QUICK if quick else suite.FULL
    options = suite.CacheOptions(suite.ROWS if rows is None else _parts(rows), trace, sizes)
    typer.echo(f"the cache on {machine()['cores']} cores, one used by each row that is timed")
    measured = suite.run_cache(options, typer.echo, SystemClock())
    verdicts = limits.judged(measured)
    _leave(out, "cache", report.document(measured, verdicts), plot.svg(measured), report.words(measured, verdicts))
    raise typer.Exit(exit_code(verdicts))


@bench_app.command("trace")
def trace_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines with timestamp (ms) and hash_ids.")],
    sizes: Annotated[
        str | None, typer.Option("--sizes", metavar="N,M", help=r"Entries of the cache \[default: 500 to 50000].")
    ] = None,
    policies: Annotated[
        str | None, typer.Option("--policies", metavar="A,B", help=r"Policies to replay \[default: all].")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", metavar="N", help=r"Runs of a policy that draws \[default: 5].")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where JSON and plot go.")] = OUT,
) -> None:
    """Replay a trace of block accesses: hits of each policy, beside LRU, Belady's choice and an infinite cache.

    Policies: lru, lfu, hybrid, adaptive, s3fifo. Each block is read, and stored where it was not there, at the trace's
    own time. Judges nothing; `fednode bench cache --trace FILE` does.
    """
    from benchmarks.trace import plot, report, suite

    base = suite.TraceOptions()
    options = suite.TraceOptions(
        sizes=base.sizes if sizes is None else _numbers("--sizes", sizes),
        policies=base.policies if policies is None else _parts(policies),
        seeds=base.seeds if seeds is None else seeds,
    )
    replayed = suite.run_trace(file, options, typer.echo)
    _leave(out, "trace", report.document(replayed), plot.svg(replayed), report.words(replayed))


def _leave(out: Path, name: str, document: Mapping[str, Any], plot: str, words: Sequence[str]) -> None:
    """Write what was found beside its plot, and say it."""
    from benchmarks.harness.results import date_of, machine, write_results
    from fednode.clock import SystemClock

    date = date_of(SystemClock().time())
    found = {"bench": name, "date": date, "machine": machine(), **document}
    paths = write_results(out, f"{date}-{name}", found, plot)
    for line in ("", *words, f"written: {paths[0]} and {paths[1]}"):
        typer.echo(line)


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
