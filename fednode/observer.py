"""What a run reports while it runs, and how it is asked to stop: no terminal, no signal, no Flower here."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RoundProgress:
    """One round as it ended: nothing in it depends on a single client's data.

    `accuracy` is on the public test set, 0 to 1, or None if it was not measured. `epsilon` is what the ledger holds
    after the round, `budget` what it may hold. `bytes_up` is the mean upload of one client in this round, in bytes.
    `reason` says in a few words why the round failed; None for a released one.
    """

    round: int
    rounds: int
    survivors: int
    invited: int
    accuracy: float | None
    epsilon: float
    budget: float
    bytes_up: int
    seconds: float
    reason: str | None = None


Progress = Callable[[str, int, int], None]
"""How far a step is: what is being done, how many parts of it are done, of how many."""


class Observer:
    """Whoever watches a run: override what you want to see. Every call returns at once.

    An `OSError` (a terminal that was closed) does not end the run; any other exception does.
    """

    def writing_to(self, folder: Path) -> None:
        """The run's files go to `folder`, which exists from now on."""

    def started(self, rounds: int) -> None:
        """The run begins; `rounds` counts the rounds that lie ahead."""

    def phase(self, text: str) -> None:
        """A step begins, or something happened that the operator should know."""

    def progress(self, step: str, done: int, total: int) -> None:
        """`done` of `total` parts of `step` are done; called as often as that changes."""

    def round_done(self, progress: RoundProgress) -> None:
        """A round ended, released or failed."""

    def finished(self) -> None:
        """No further call follows, whatever the outcome."""


class Unfailing(Observer):
    """Passes everything on to another observer and ignores its `OSError`s: a closed pipe ends no run."""

    def __init__(self, inner: Observer) -> None:
        self._inner = inner

    def writing_to(self, folder: Path) -> None:
        """Pass it on."""
        with suppress(OSError):
            self._inner.writing_to(folder)

    def started(self, rounds: int) -> None:
        """Pass it on."""
        with suppress(OSError):
            self._inner.started(rounds)

    def phase(self, text: str) -> None:
        """Pass it on."""
        with suppress(OSError):
            self._inner.phase(text)

    def progress(self, step: str, done: int, total: int) -> None:
        """Pass it on."""
        with suppress(OSError):
            self._inner.progress(step, done, total)

    def round_done(self, progress: RoundProgress) -> None:
        """Pass it on."""
        with suppress(OSError):
            self._inner.round_done(progress)

    def finished(self) -> None:
        """Pass it on."""
        with suppress(OSError):
            self._inner.finished()


class StopFlag:
    """Set by the operator to stop the run, read by the run between two rounds; never cleared."""

    __slots__ = ("_raised",)

    def __init__(self) -> None:
        self._raised = False

    @property
    def raised(self) -> bool:
        """Whether the run is to end with the current round."""
        return self._raised

    def stop(self) -> None:
        """Ask the run to end with the current round; asking twice changes nothing."""
        self._raised = True
