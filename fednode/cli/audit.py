"""`fednode audit`: try out with made-up records what the ledger counts.

The docstring explains the arguments: this typer does not show their `help` under click 8.5.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fednode.assemble.lines import LineObserver
from fednode.cli.exits import say
from fednode.cli.flags import with_setting_flags
from fednode.cli.run import DEFAULT_FILE
from fednode.cli.signals import stop_on_interrupt
from fednode.disk.atomic import write_whole
from fednode.errors import AuditFailed, ConfigError, DataError
from fednode.flower_env import quieten_flower
from fednode.observer import StopFlag
from fednode.settings import resolve


@with_setting_flags
def audit_command(
    run: Annotated[Path | None, typer.Argument(metavar="RUN")] = None,
    rehearse: Annotated[bool, typer.Option("--rehearse", help="Send zeros: only the noise is measured.")] = False,
    **flags: object,
) -> None:
    """Measure with made-up records whether noise and clip are what the ledger counts; no budget is spent.

    RUN is the folder of a finished run, such as runs/ID: it is audited with its own settings, and keeps the result as
    audit.json, unless rehearsed. Without it, settings come from fednode.toml, variables and flags, as for a run.
    """
    if run is not None and any(flags.values()):
        raise ConfigError("a run is audited with its own settings: give no flag but --rehearse")
    config = run / "config.toml" if run else DEFAULT_FILE
    if run and not config.is_file():
        raise DataError(f"{run} has no config.toml: name the folder of a run, such as runs/ID")
    settings = resolve(config if config.exists() else None, {} if run else os.environ, flags)
    quieten_flower(settings.out / ".flower", os.environ)
    from fednode.audit.perform import MOST_CANARIES, Audit

    stop, watcher = StopFlag(), LineObserver(say)
    with stop_on_interrupt(stop, watcher.say):
        result = Audit(settings, run, 0 if rehearse else MOST_CANARIES).perform(watcher, stop)
    for name, value in result.figures.items():
        say(f"{name.replace('_', ' '):<18}{value:,.5g}")
    if run is not None and not rehearse:
        kept = {"schema": 1, "verdict": "fail" if result.findings else "pass"} | asdict(result)
        write_whole(run / "audit.json", json.dumps(kept, indent=1).encode())
    if result.findings:
        raise AuditFailed("; ".join(result.findings))
    say("the audit passes")
