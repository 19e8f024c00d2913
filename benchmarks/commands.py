"""`fednode bench`: measure, against what others do, and judge against limits."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fednode.cli.exits import say
from fednode.errors import ConfigError

if TYPE_CHECKING:
    from benchmarks.harness.results import Results

bench_app = typer.Typer(
    help="Measure FedNode against what others do; exit code 1 when a limit is not kept.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Rows = Annotated[str | None, typer.Option("--rows", metavar="A,B", help=r"Rows to measure \[default: all].")]
Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where JSON and plot go.")]
Quick = Annotated[bool, typer.Option("--quick", help="Everything once, small; judges no limit.")]
OUT: Final = Path("bench-results")


def run(arguments: Sequence[str]) -> int:
    """Run one suite and return its exit code; errors are raised, for the command line to report."""
    outcome = bench_app(args=list(arguments), prog_name="fednode bench", standalone_mode=False)
    return outcome if isinstance(outcome, int) else 0


@bench_app.command("sum")
def sum_command(
    rows: Rows = None,
    sizes: Annotated[
        str | None, typer.Option("--sizes", metavar="N,M", help=r"Values an update \[default: 1000000,10000000].")
    ] = None,
    clients: Annotated[
        str | None, typer.Option("--clients", metavar="N,M", help=r"Clients a cohort \[default: 10,100,1000].")
    ] = None,
    out: Out = OUT,
    quick: Quick = False,
) -> None:
    """Secure sums: bytes and seconds of client, node and holder, beside plain float32, SecAgg+, CKKS.

    Rows: plain, secagg, ckks, bfv, ring, confirm, memory, exact. A full run takes under ten minutes on two cores; keep
    the machine quiet meanwhile. A row that breaks fails, and costs no other.
    """
    from benchmarks.harness.results import cores
    from benchmarks.harness.suite import BenchSession
    from benchmarks.harness.verdicts import exit_code
    from benchmarks.sums import limits, report, suite

    given: dict[str, Any] = {
        "rows": _parts(rows), "sizes": _numbers("--sizes", sizes), "clients": _numbers("--clients", clients)
    }  # fmt: skip
    base = suite.QUICK if quick else suite.SumOptions()
    options = replace(base, **{name: value for name, value in given.items() if value is not None})
    typer.echo(f"secure sums on {cores()} cores, one used by each row")
    measured = suite.run_sums(options, BenchSession(say))
    verdicts = limits.judged(measured)
    _finish(out, report.results(measured, verdicts), report.words(measured, verdicts))
    raise typer.Exit(exit_code(verdicts))


@bench_app.command("cache")
def cache_command(
    rows: Rows = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Trace of block accesses for the row trace.")
    ] = None,
    out: Out = OUT,
    quick: Quick = False,
) -> None:
    r"""The cache: seconds an operation, hits, updates lost, bytes saved, beside dict, cachetools, theine, moka-py,
    diskcache, Redis.

    Rows: hot, many, array, trace, updates, frozen, invalidation, sweep, columns. A full run takes three minutes on two
    cores; keep the machine quiet meanwhile. A row that breaks fails, and costs no other. Others that are not installed
    are left out: pip install 'fednode\[bench]'.
    """
    from benchmarks.cache import limits, report, suite
    from benchmarks.harness.results import cores
    from benchmarks.harness.suite import BenchSession
    from benchmarks.harness.verdicts import exit_code

    options = suite.CacheOptions(_parts(rows) or suite.ROWS, trace, suite.QUICK if quick else suite.FULL)
    typer.echo(f"the cache on {cores()} cores, one used by each row that is timed")
    measured = suite.run_cache(options, BenchSession(say))
    verdicts = limits.judged(measured)
    _finish(out, report.results(measured, verdicts), report.words(measured, verdicts))
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
    out: Out = OUT,
) -> None:
    """Replay a trace of block accesses: hits of each policy, beside LRU, Belady's choice and an infinite cache.

    Policies: lru, lfu, adaptive, s3fifo. Each block is read, and stored where it was missing, at the trace's
    own time. Judges nothing; `fednode bench cache --trace FILE` does.
    """
    from benchmarks.harness.suite import BenchSession
    from benchmarks.trace import report, suite

    given: dict[str, Any] = {
        "sizes": _numbers("--sizes", sizes), "policies": _parts(policies), "seeds": seeds
    }  # fmt: skip
    options = replace(suite.TraceOptions(), **{name: value for name, value in given.items() if value is not None})
    replayed = suite.run_trace(file, options, BenchSession(say))
    _finish(out, report.results(replayed), report.words(replayed))


def _finish(out: Path, results: "Results", lines: Sequence[str]) -> None:
    """Write the results and print what a person reads."""
    from fednode.clock import SystemClock

    paths = results.write(out, SystemClock().time())
    for line in ("", *lines, f"written: {paths[0]} and {paths[1]}"):
        say(line)


def _parts(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def _numbers(flag: str, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        found = tuple(int(part) for part in _parts(text) or ())
    except ValueError:
        found = ()
    if not found:
        raise ConfigError(f"{flag} takes whole numbers with commas between, such as 10,100, not '{text}'")
    return found
