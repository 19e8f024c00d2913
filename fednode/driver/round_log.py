"""What happened in a round, for the record: names, reasons and bytes, never a payload."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fednode.driver.outcome import RoundOutcome
from fednode.driver.query import describe
from fednode.errors import FednodeError, PeerFault
from fednode.round.machine import Round

BROKEN = "broken"
"""The cause of a round whose work was broken off before it had come to an end of its own."""


@dataclass(slots=True)
class RoundLog:
    """Filled while a round is driven. `rejected` and `discarded` hold (member, reason), `silent` a reason by holder.

    `asked_again` counts by client how often it was asked for an update that had found no room. `details` holds the
    first detail of each reason: with it a round that fails can say why on one line.
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
        """Keep the detail of a fault, if it is the first of its reason."""
        if fault.detail:
            self.details.setdefault(fault.reason, fault.detail)

    def silence(self, holder: str, fault: PeerFault) -> None:
        """A holder did not do its part, and why; of several reasons the first counts."""
        self.explain(fault)
        self.silent.setdefault(holder, fault.reason)

    def heard(self, holder: str) -> None:
        """A holder did its part after all: what it said before that is forgiven."""
        self.silent.pop(holder, None)

    def lost(self, invited: Collection[str], survivors: Collection[str]) -> tuple[str, ...]:
        """Who was invited and said nothing. A stopped round did not wait for them: they are not lost."""
        heard = set(survivors) | {name for name, _ in self.rejected + self.discarded}
        return () if self.cause == "stopped" else tuple(sorted(set(invited) - heard))

    def silences(self, more: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Each silent holder with its reason; `more` are those of whom nothing was heard, unless they have one
        already."""
        unheard = {name: reason for name, reason in more.items() if name not in self.silent}
        return tuple((self.silent | unheard).items())

    def why(self, faults: Iterable[tuple[str, str]]) -> str:
        """The commonest reason among (member, reason), with how many members gave it and its first detail; or "".

        Of several reasons of one member the last counts.
        """
        counted = Counter(dict(faults).values()).most_common(1)
        return "".join(
            f"; {count} {describe(PeerFault(reason, self.details.get(reason, '')))}" for reason, count in counted
        )

    def outcome(self, number: int, now: Round, silent: Mapping[str, str]) -> RoundOutcome:
        """How round `number` stands; `silent` are holders of whom nothing was heard. It took no time yet."""
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
            silent=self.silences(silent),
            opened=now.receipt is not None,
            asked_again=self.asked_again.total(),
            bytes_up=mean_of(self.bytes_up),
            bytes_down=mean_of(self.bytes_down),
            seconds=0.0,
        )


def describe_error(error: BaseException) -> str:
    """What broke something off, in words: FedNode's own, or the type of an error alone, whose words are anybody's."""
    if isinstance(error, FednodeError):
        return str(error) or type(error).__name__
    if isinstance(error, KeyboardInterrupt):
        return "aborted by the operator"
    return f"an error that nobody foresaw ({type(error).__name__})"


def mean_of(sizes: Mapping[str, int]) -> float:
    """Mean bytes of those that sent or got any; 0 if nobody did."""
    return sum(sizes.values()) / len(sizes) if sizes else 0.0
