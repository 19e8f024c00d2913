"""A run's progress as plain lines: for logs, pipes, CI and Flower's log."""

from collections.abc import Callable
from pathlib import Path

from fednode.clock import Clock, SystemClock
from fednode.errors import visible
from fednode.observer import Observer, RoundProgress

_QUIET = 5.0
"""Seconds without a line after which the progress of a step is shown."""


def describe(progress: RoundProgress) -> str:
    """One round in one line, without its number."""
    from fednode.reports.figures import bound, plain, size

    accuracy = "not measured" if progress.accuracy is None else f"{100 * progress.accuracy:.1f} %"
    parts = [
        f"survivors {progress.survivors}/{progress.invited}",
        f"accuracy {accuracy}",
        f"epsilon {bound(progress.epsilon, zeros=True)} of {progress.budget:g}",
        f"{plain(size(progress.bytes_up))} a client",
    ]
    return "  ".join(parts)


class LineObserver(Observer):
    """One line for each step and each round, and one at least every five seconds while a step makes progress."""

    def __init__(self, write: Callable[[str], None], clock: Clock | None = None) -> None:
        self._write, self._clock = write, clock or SystemClock()
        self._last = self._clock.now()
        self.folder: Path | None = None
        """Where the run's files go, once that is known."""

    def say(self, text: str) -> None:
        """Write the line at once, with whatever could disturb a terminal escaped."""
        self._last = self._clock.now()
        self._write(visible(text))

    def writing_to(self, folder: Path) -> None:
        """Say where."""
        self.folder = folder
        self.say(f"writing to {folder}")

    def started(self, rounds: int) -> None:
        """Say how many rounds there are."""
        self.say(f"rounds ahead: {rounds}")

    def phase(self, text: str) -> None:
        """Say what begins."""
        self.say(text)

    def progress(self, step: str, done: int, total: int) -> None:
        """Say how far the step is, if nothing was said for a while."""
        if self._clock.now() - self._last >= _QUIET:
            self.say(f"{step}: {done} of {total}")

    def round_done(self, progress: RoundProgress) -> None:
        """Say how the round ended, and why it failed if it did."""
        line = f"round {progress.round}/{progress.rounds}  {describe(progress)}  {progress.seconds:.1f} s"
        self.say(line if progress.reason is None else f"{line}  failed: {progress.reason}")
