"""A run as it is watched: a bar on a terminal, plain lines everywhere else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from fednode.observer import Observer, RoundProgress
from fednode.reports.figures import bound, plain, plural, size


class Watcher(Observer, Protocol):
    """An observer that a command opens, talks through and closes."""

    @property
    def folder(self) -> Path | None:
        """Where the run's files go, once the run has said so."""
        ...

    def say(self, text: str) -> None:
        """Show one line among the others."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *failure: object) -> None: ...


def watcher_for(console: Console) -> Watcher:
    """The watcher that suits where the output goes."""
    return BarWatcher(console) if console.is_terminal else PlainWatcher(console)


def describe(progress: RoundProgress) -> str:
    """One round in one line, without its number."""
    accuracy = "not measured" if progress.accuracy is None else f"{100 * progress.accuracy:.1f} %"
    parts = [
        f"survivors {progress.survivors}/{progress.invited}",
        f"accuracy {accuracy}",
        f"epsilon {bound(progress.epsilon, zeros=True)} of {progress.budget:g}",
        f"{plain(size(progress.bytes_up))} a client",
    ]
    return "  ".join(parts)


class PlainWatcher:
    """One line for each step and each round: for logs, pipes and CI."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.folder: Path | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.finished()

    def say(self, text: str) -> None:
        """Print the line at once."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def writing_to(self, folder: Path) -> None:
        """Print where the files go."""
        self.folder = folder
        self.say(f"writing to {folder}")

    def started(self, rounds: int, phases: Sequence[str]) -> None:
        """Print what lies ahead."""
        ahead = f"{plural(rounds, 'round')} ahead"
        self.say(f"{ahead}; first: {', '.join(phases)}" if phases else ahead)

    def phase(self, text: str) -> None:
        """Print the step."""
        self.say(text)

    def round_done(self, progress: RoundProgress) -> None:
        """Print the round, and why it failed if it did."""
        line = f"round {progress.round}/{progress.rounds}  {describe(progress)}  {progress.seconds:.1f} s"
        self.say(line if progress.reason is None else f"{line}  failed: {progress.reason}")

    def finished(self) -> None:
        """Nothing is left open."""


class BarWatcher:
    """A bar that moves with the rounds, the last round's figures beside it; failed rounds stay above as lines."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}", markup=False),
            TimeElapsedColumn(),
            console=console,
        )
        self._bar: TaskID = self._progress.add_task("starting", total=None, figures="")
        self.folder: Path | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.finished()

    def say(self, text: str) -> None:
        """Print the line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False)

    def writing_to(self, folder: Path) -> None:
        """Print where the files go, above the bar."""
        self.folder = folder
        self.say(f"writing to {folder}")

    def started(self, rounds: int, phases: Sequence[str]) -> None:
        """Give the bar its length."""
        self._progress.update(self._bar, total=rounds, description=phases[0] if phases else "starting")

    def phase(self, text: str) -> None:
        """Put the step before the bar."""
        self._progress.update(self._bar, description=text)

    def round_done(self, progress: RoundProgress) -> None:
        """Move the bar and show the round's figures; a failed round also leaves a line."""
        if progress.reason is not None:
            self.say(f"round {progress.round} failed: {progress.reason}")
        self._progress.update(
            self._bar,
            completed=progress.round,
            total=progress.rounds,
            description=f"round {progress.round}/{progress.rounds}",
            figures=describe(progress),
        )

    def finished(self) -> None:
        """Stop the bar where it is; harmless when repeated."""
        self._progress.stop()
