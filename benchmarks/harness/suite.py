"""One run of a suite: its rows one after another. A row that breaks fails, and costs no other."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness.processes import Processes
from fednode.clock import Clock, SystemClock
from fednode.errors import ConfigError, FednodeError


@dataclass(frozen=True, slots=True)
class BenchSession:
    """What a row measures with; `say` takes a line when a step is done."""

    say: Callable[[str], None]
    processes: Processes = field(default_factory=Processes)
    clock: Clock = field(default_factory=SystemClock)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. `answers`: by row; `full`: whether its limits are judged; `broken`: why a row has no answer."""

    answers: Mapping[str, Any] = field(default_factory=dict)
    full: bool = True
    broken: Mapping[str, str] = field(default_factory=dict)


def measure(rows: Mapping[str, Callable[[BenchSession], Any]], session: BenchSession, full: bool = True) -> Measured:  # noqa: FBT001, FBT002
    """Measure each row in turn and return all answers."""
    answers: dict[str, Any] = {}
    broken: dict[str, str] = {}
    for name, row in rows.items():
        start = session.clock.now()
        try:
            answers[name] = row(session)
        except Exception as error:  # noqa: BLE001 (whatever it is, the other rows are worth having)
            broken[name] = _why(error)
            session.say(f"{name}: broken: {broken[name]}")
        else:
            session.say(f"{name}: {session.clock.now() - start:.0f} s")
    return Measured(answers, full, broken)


def _why(error: Exception) -> str:
    sentence = " ".join(str(error).split()) or type(error).__name__
    return sentence if isinstance(error, FednodeError) else f"{type(error).__name__}: {sentence}"


def check_known(kind: str, wanted: Iterable[str], known: Iterable[str]) -> None:
    """Raise ConfigError for the first of `wanted` that is not `known`."""
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ConfigError(f"there is no {kind} '{unknown[0]}': choose from {', '.join(known)}")
