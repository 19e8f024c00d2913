"""`fednode cache`: look at the caches of a node that is running, and tune them."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fednode.cli.exits import say
from fednode.errors import ConfigError

if TYPE_CHECKING:
    from fednode.live import LiveNode
    from fednode.live.schema import FoundValue, KnobsAnswer

cache_app = typer.Typer(
    help="Look at the caches of a running node, and tune them. RUN is the folder of its run; without it, the newest "
    "running one in ./runs.",
    no_args_is_help=True,
)

_RUN_HELP = "RUN is the folder of a running run; without it, the newest in ./runs."
_Run = Annotated[Path | None, typer.Argument(metavar="RUN")]
_Store = Annotated[str | None, typer.Option("--store", metavar="NAME", help="Only this store.")]


@cache_app.command("stats", epilog=_RUN_HELP)
def stats_command(
    run: _Run = None, prometheus: Annotated[bool, typer.Option("--prometheus", help="As Prometheus reads it.")] = False
) -> None:
    """What each store holds, and its counts: hits, loads, evictions, expiries, refusals, damaged, invalidations.

    Refusals: values that found no room. Damaged: values that could not be read and were dropped. Invalidations: copies
    of model chunks at clients that a new version replaced.
    """
    from fednode.live.metrics import exposition
    from fednode.live.render import stats_lines

    with _node(run) as node:
        name, stores = node.stats()
    if prometheus:
        typer.echo(exposition(name, stores), nl=False)
        return
    for line in stats_lines(name, stores):
        say(line)


@cache_app.command("get", epilog=_RUN_HELP)
def get_command(
    key: Annotated[str, typer.Argument(metavar="KEY")],
    run: _Run = None,
    store: _Store = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Save the value; never what is sealed.")
    ] = None,
) -> None:
    """The value under KEY: its kind, size and SHA-256. The value itself is not shown, but --out saves it.

    --out writes bytes as they are, text as UTF-8, arrays as .npy, anything else as the cache's own form.
    """
    from fednode.disk.atomic import write_whole
    from fednode.live.render import facts_lines

    if out is not None:
        _require_new(out)
    with _node(run) as node:
        found = node.found(key, store or "")
        for each in found:
            for line in facts_lines(each):
                say(line)
        if out is not None:
            write_whole(out, node.fetch(_only(found), key), 0o600)
            say(f"saved as {out}")


@cache_app.command("keys", epilog=_RUN_HELP)
def keys_command(
    run: _Run = None,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only keys that begin so.")] = "",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many.")] = 100,
    store: _Store = None,
) -> None:
    """The keys that the node holds, each with its store."""
    with _node(run) as node:
        found = node.keys(prefix, limit, store or "")
    for name, key in found.keys:
        say(f"{name}  {key}")
    if found.more:
        typer.echo(f"fednode: there are more than these {len(found.keys)}; give --limit or --prefix", err=True)


@cache_app.command("tune", epilog=_RUN_HELP)
def tune_command(
    run: _Run = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="STORE.NAME=VALUE", help="Change a number while the node runs; repeat the flag."),
    ] = None,
) -> None:
    """Change limits, lives or staleness while a node runs; without --set, show what can be changed.

    All changes are checked first. Then all are made, and written into the run's log and report, or none.
    """
    wanted = [_change(one) for one in change or ()]
    with _node(run) as node:
        if not wanted:
            _show_knobs(node.knobs())
            return
        for name, knob, old, new in node.tune(wanted).made:
            say(f"{name}.{knob}: {_number(old)} -> {_number(new)}")


def _show_knobs(found: "KnobsAnswer") -> None:
    rows = [(f"{name}.{knob} = {_number(value)}", f"{means}: {span}") for name, knob, value, means, span in found.knobs]
    width = max((len(what) for what, _ in rows), default=0)
    for what, meaning in rows:
        say(f"{what:<{width}}  {meaning}")
    for name in found.fixed:
        say(f"{name}: nothing to change while the node runs")


def _node(run: Path | None) -> "LiveNode":
    from fednode.live import LiveNode, live_runs

    newest, *others = live_runs(run)
    if others:
        named = ", ".join(str(other) for other in others)
        sentence = f"fednode: this is {newest}, the newest that is running; others are running too: {named}"
        say(sentence, err=True)
    return LiveNode(newest)


def _require_new(out: Path) -> None:
    if out.exists():
        raise ConfigError(f"{out} exists already; name a new file")
    if not out.parent.is_dir():
        raise ConfigError(f"there is no folder {out.parent}; make it, or name a file in one that exists with --out")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise ConfigError(f"nothing can be written into {out.parent}; name a file in another folder with --out")


def _change(text: str) -> tuple[str, str, float]:
    knob, _, value = text.partition("=")
    store, _, name = knob.strip().partition(".")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not store or not name or not math.isfinite(number):
        raise ConfigError(f"--set takes STORE.NAME=VALUE, such as downloads.jitter=0.2, not '{text}'")
    return store, name, number


def _only(found: "list[FoundValue]") -> "FoundValue":
    if len(found) > 1:
        names = ", ".join(each.store for each in found)
        raise ConfigError(f"several stores have this key ({names}): name one with --store")
    return found[0]


def _number(value: float) -> str:
    return f"{value:.15g}"
