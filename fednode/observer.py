"""What a run tells whoever watches it, and how it is asked to stop: no terminal, no signal, no Flower here."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RoundProgress:
    """One round as it ended: nothing in it depends on a single client's data.

    `accuracy` is on the public test set, 0 to 1, or None where it was not measured. `epsilon` is what the ledger holds
    after the round, `budget` what it may hold. `bytes_up` is the mean upload of one client in this round, in bytes.
    `reason` says in a few words why a round failed, and is None for one that was released.
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


class Observer(Protocol):
    """Whoever watches a run: every call returns at once and raises nothing."""

    def writing_to(self, folder: Path) -> None:
        """The run's files go to `folder`, which exists from now on."""
        ...

    def started(self, rounds: int, phases: Sequence[str]) -> None:
        """The run begins: `phases` names the steps before round 1, `rounds` counts the rounds after them."""
        ...

    def phase(self, text: str) -> None:
        """A step begins: one of the names that `started` was given, or another of the same kind."""
        ...

    def round_done(self, progress: RoundProgress) -> None:
        """A round ended, released or failed."""
        ...

    def finished(self) -> None:
        """No further call follows, whatever the outcome."""
        ...


class SilentObserver:
    """Watches and says nothing: for runs that somebody else reports on."""

    def writing_to(self, folder: Path) -> None:
        """Say nothing."""

    def started(self, rounds: int, phases: Sequence[str]) -> None:
        """Say nothing."""

    def phase(self, text: str) -> None:
        """Say nothing."""

    def round_done(self, progress: RoundProgress) -> None:
        """Say nothing."""

    def finished(self) -> None:
        """Say nothing."""


class Unfailing:
    """An observer around another whose failure to say something is nobody's failure: a closed pipe ends no run."""

    def __init__(self, inner: Observer) -> None:
        self._inner = inner

    def writing_to(self, folder: Path) -> None:
        """Pass it on if somebody can hear it."""
        with suppress(OSError):
            self._inner.writing_to(folder)

    def started(self, rounds: int, phases: Sequence[str]) -> None:
        """Pass it on if somebody can hear it."""
        with suppress(OSError):
            self._inner.started(rounds, phases)

    def phase(self, text: str) -> None:
        """Pass it on if somebody can hear it."""
        with suppress(OSError):
            self._inner.phase(text)

    def round_done(self, progress: RoundProgress) -> None:
        """Pass it on if somebody can hear it."""
        with suppress(OSError):
            self._inner.round_done(progress)

    def finished(self) -> None:
        """Pass it on if somebody can hear it."""
        with suppress(OSError):
            self._inner.finished()


class StopFlag:
    """A wish to stop, raised by the operator and read by the run between two rounds; it is never lowered."""

    __slots__ = ("_raised",)

    def __init__(self) -> None:
        self._raised = False

    @property
    def raised(self) -> bool:
        """Whether the run shall end with the round it is in."""
        return self._raised

    def stop(self) -> None:
        """Ask the run to end with the round it is in; asking twice is the same as asking once."""
        self._raised = True
