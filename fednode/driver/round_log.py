"""What happened in a round: names, reasons and bytes, never a payload."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fednode.driver.outcome import RoundOutcome
from fednode.driver.query import describe
from fednode.errors import FednodeError, PeerFault
from fednode.round.machine import Round

BROKEN = "broken"
"""The cause of a round that an error or an abort ended."""


@dataclass(slots=True)
class RoundLog:
    """Collects what a round's outcome needs, while the round runs.

    `rejected` and `discarded` hold (member, reason), `silent` a reason by holder. `details` holds the first detail of
    each reason, so that a failed round can explain itself in one line. `asked_again` counts by client.
    """

    rejected: list[tuple[str, str]] = field(default_factory=list)
    discarded: list[tuple[str, str]] = field(default_factory=list)
    silent: dict[str, str] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    bytes_up: Counter[str] = field(default_factory=Counter)
    bytes_down: Counter[str] = field(default_factory=Counter)
    asked_again: Counter[str] = field(default_factory=Counter)
    cause: str = ""
    reason: str = ""

    def explain(self, fault: PeerFault) -> None:
        """Keep the detail of the first fault of each reason."""
        if fault.detail:
            self.details.setdefault(fault.reason, fault.detail)

    def silence(self, holder: str, fault: PeerFault) -> None:
        """Note why a holder did not do its part; the first reason stays."""
        self.explain(fault)
        self.silent.setdefault(holder, fault.reason)

    def heard(self, holder: str) -> None:
        """Note that a holder did its part; earlier faults no longer count."""
        self.silent.pop(holder, None)

    def lost(self, invited: Collection[str], survivors: Collection[str]) -> tuple[str, ...]:
        """The invited clients that never answered; none in a round that the operator stopped: it did not wait."""
        heard = set(survivors) | {name for name, _ in self.rejected + self.discarded}
        return () if self.cause == "stopped" else tuple(sorted(set(invited) - heard))

    def why(self, faults: Iterable[tuple[str, str]]) -> str:
        """The commonest reason among (member, reason), with its count and first detail; "" for none.

        Of several reasons of one member the last counts.
        """
        counted = Counter(dict(faults).values()).most_common(1)
        return "".join(
            f"; {count} {describe(PeerFault(reason, self.details.get(reason, '')))}" for reason, count in counted
        )

    def outcome(self, number: int, now: Round, silent: Mapping[str, str]) -> RoundOutcome:
        """The outcome so far, without its seconds; `silent` gives a reason for each holder that has no other."""
        return RoundOutcome(
            round=number,
            cause=self.cause,
            reason=self.reason,
            invited=len(now.invited),
            survivors=now.survivors,
            rejected=tuple(self.rejected),
            discarded=tuple(self.discarded),
            lost=self.lost(now.invited, now.survivors),
            answered=tuple(sorted(self.answered)),
            # first those with a reason of their own, in order; their reason wins
            silent=tuple((self.silent | dict(silent) | self.silent).items()),
            opened=now.receipt is not None,
            asked_again=self.asked_again.total(),
            bytes_up=mean_of(self.bytes_up),
            bytes_down=mean_of(self.bytes_down),
            seconds=0.0,
        )


def describe_error(error: BaseException) -> str:
    """What ended a run or round. Other errors than FedNode's are named by type only: their text may quote data."""
    if isinstance(error, FednodeError):
        return str(error) or type(error).__name__
    if isinstance(error, KeyboardInterrupt):
        return "aborted by the operator"
    return f"an unexpected error ({type(error).__name__})"


def mean_of(sizes: Mapping[str, int]) -> float:
    """The mean over members, in bytes; 0 if there are none."""
    return sum(sizes.values()) / len(sizes) if sizes else 0.0
