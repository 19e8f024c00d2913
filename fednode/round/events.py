"""What happened in a round: frozen values that `Round.handle` takes."""

from dataclasses import dataclass

from fednode.privacy.ledger import Receipt


@dataclass(frozen=True, slots=True)
class Arrived:
    """`client` sent a well-formed, signed update. `update_digest` is the digest of its signed head, boxes included."""

    client: str
    spec_digest: bytes
    update_digest: bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """The update of `client` is stored and in the sum."""

    client: str


@dataclass(frozen=True, slots=True)
class NotKept:
    """The node has no room for the update of `client`; it is not in the sum.

    After `wait` seconds there may be room; None means that there will be none in this round.
    """

    client: str
    reason: str
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class WaitOver:
    """It is time to ask `client` again."""

    client: str


@dataclass(frozen=True, slots=True)
class Late:
    """`client` answered an earlier round."""

    client: str


@dataclass(frozen=True, slots=True)
class Faulted:
    """`client` sent garbage or a refusal, or failed."""

    client: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The time for the present step is over."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The operator asked to stop the run."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A holder tried to open its boxes; it showed that those of the `excluded` clients are wrong."""

    point: int
    excluded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A holder signed that it will open this roster, and no other."""

    point: int


@dataclass(frozen=True, slots=True)
class Charged:
    """The charge is in the ledger, on disk."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class ChargeRefused:
    """The budget is too small for these survivors; nothing was spent."""

    reason: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A holder sent its part of the opening, well-formed and signed."""

    point: int


@dataclass(frozen=True, slots=True)
class HolderSilent:
    """A holder refused, failed or ran out of time."""

    point: int
    reason: str


@dataclass(frozen=True, slots=True)
class Opened:
    """The opened sum passed its checks."""


@dataclass(frozen=True, slots=True)
class OpeningFailed:
    """The opened sum failed its checks."""

    reason: str


Event = (
    Arrived
    | Kept
    | NotKept
    | WaitOver
    | Late
    | Faulted
    | DeadlinePassed
    | StopAsked
    | Checked
    | Confirmed
    | Charged
    | ChargeRefused
    | Answered
    | HolderSilent
    | Opened
    | OpeningFailed
)
