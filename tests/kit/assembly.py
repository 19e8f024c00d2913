"""A stand-in for fednode.assemble, which the command line loads when a command needs it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from fednode.errors import FednodeError
from fednode.observer import Observer, RoundProgress, StopFlag
from fednode.settings import RunSettings


@dataclass(frozen=True)
class FakeResult:
    lines: list[str]
    error: FednodeError | None = None


@dataclass(frozen=True)
class FakePlan:
    said: list[str]

    def lines(self) -> list[str]:
        return self.said


class FakeAssembly:
    """Remembers what it was asked; answers or raises what the test says; `during` runs inside the run."""

    def __init__(self) -> None:
        self.settings: RunSettings | None = None
        self.stop: StopFlag | None = None
        self.folder: Path | None = None
        self.raises: BaseException | None = None
        self.result = FakeResult(["model  accuracy 81.2 %"])
        self.during = lambda: None

    def plan(self, settings: RunSettings) -> FakePlan:
        self.settings = settings
        if self.raises is not None:
            raise self.raises
        return FakePlan([f"{settings.rounds} rounds planned"])

    def run(self, settings: RunSettings, observer: Observer, stop: StopFlag) -> FakeResult:
        self.settings, self.stop = settings, stop
        if self.folder is not None:
            observer.writing_to(self.folder)
        observer.started(settings.rounds)
        observer.phase("making keys")
        self.during()
        if self.raises is not None:
            raise self.raises
        observer.round_done(some_progress())
        return self.result

    def predict(self, folder: Path, texts: Sequence[str]) -> list[tuple[str, float]]:
        return [(f"intent-of-{text}", 0.5) for text in texts]


def some_progress(**changes: object) -> RoundProgress:
    values = {
        "round": 3,
        "rounds": 20,
        "survivors": 19,
        "invited": 20,
        "accuracy": 0.8123,
        "epsilon": 2.345,
        "budget": 8.0,
        "bytes_up": 1_234_567,
        "seconds": 1.25,
    }
    return RoundProgress(**(values | changes))  # type: ignore[arg-type]


def install(monkeypatch, assembly: FakeAssembly) -> FakeAssembly:
    module = ModuleType("fednode.assemble")
    module.plan, module.run, module.predict = assembly.plan, assembly.run, assembly.predict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fednode.assemble", module)
    return assembly
