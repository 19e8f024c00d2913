"""Whole runs that take a second: a few made-up messages, few clients, everything else as in a real run."""

import json
from pathlib import Path

from kit.crypto.plainsum import InsecurePlainSum

from fednode.assemble.inprocess_run import run_inproc
from fednode.assemble.run_result import RunResult
from fednode.assemble.session import Environment
from fednode.observer import Observer, StopFlag
from fednode.settings import RunSettings
from fednode_crypto import Rng, SumParams
from fednode_crypto.interfaces import HolderShare

_WORDS = {"card": "card bank lost", "pay": "pay money bill", "parcel": "parcel box late"}


def messages(folder: Path, records: int = 120) -> Path:
    """A CSV file of `records` messages under three labels."""
    lines = ["text,label"]
    labels = sorted(_WORDS)
    for number in range(records):
        label = labels[number % 3]
        words = _WORDS[label].split()
        text = " ".join(words[(number // (3 * step)) % 3] for step in (1, 3, 9))
        lines.append(f"{text} {number},{label}")
    path = folder / "messages.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def small_settings(folder: Path, **changes: object) -> RunSettings:
    """Four clients, three holders of whom two open, two rounds."""
    values: dict[str, object] = {
        "data": str(messages(folder)),
        "features": 64,
        "clients": 4,
        "rounds": 2,
        "holders": 3,
        "threshold": 2,
        "out": folder / "runs",
    }
    return RunSettings.model_validate(values | changes)


def small_run(
    folder: Path, inside: Environment | None = None, stop: StopFlag | None = None, **changes: object
) -> RunResult:
    """Run it, without a word."""
    return run_inproc(small_settings(folder, **changes), Observer(), stop or StopFlag(), inside)


def flags_of(settings: RunSettings) -> list[str]:
    """The same on the command line."""
    flags = []
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        values = value if isinstance(value, tuple) else (value,)
        for one in values:
            flags += [f"--{name.replace('_', '-')}", str(one)]
    return flags


def report_of(folder: Path) -> dict:
    """What report.json says of the run."""
    return json.loads((folder / "report.json").read_bytes())["run"]


class InsecureLiar(InsecurePlainSum):
    """The holder at point 1 answers with zeros."""

    def answer(self, params: SumParams, share: HolderShare, request: bytes, rng: Rng) -> bytes:
        honest = super().answer(params, share, request, rng)
        return bytes(len(honest)) if share.point == 1 else honest  # type: ignore[attr-defined]
