"""What happened in a round: frozen values that `Round.handle` takes."""

from dataclasses import dataclass

from fednode.privacy.ledger import Receipt


@dataclass(frozen=True, slots=True)
class Arrived:
    """A well-formed update, signed by `client`: for which spec, and the digest of what it signed, boxes included."""

    client: str
    spec_digest: bytes
    update_digest: bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """The update of `client` is in the store and in the sum."""

    client: str


@dataclass(frozen=True, slots=True)
class NotKept:
    """There was no room for the update of `client`: it is not in the sum.

    `wait` is the number of seconds after which there may be room; None where there will be none in this round.
    """

    client: str
    reason: str
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class WaitOver:
    """The time that `client` was to wait before it is asked again is over."""

    client: str


@dataclass(frozen=True, slots=True)
class Late:
    """An answer of `client` to an earlier round."""

    client: str


@dataclass(frozen=True, slots=True)
class Faulted:
    """Something from (or about) `client` that is no update: garbage, a refusal, an error on its side."""

    client: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The time to answer is over."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The operator wants the run to end."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A holder tried its boxes: `excluded` are the clients whose box it could not open."""

    point: int
    excluded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A holder signed that this roster is the one that it will open, and no other."""

    point: int


@dataclass(frozen=True, slots=True)
class Charged:
    """The ledger holds the charge, on disk."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class ChargeRefused:
    """The budget does not hold what these survivors cost; nothing was spent."""

    reason: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A holder's partial opening, well-formed and signed."""

    point: int


@dataclass(frozen=True, slots=True)
class HolderSilent:
    """A holder refused, failed or ran out of time."""

    point: int
    reason: str


@dataclass(frozen=True, slots=True)
class Opened:
    """The sum is open and passed its checks."""


@dataclass(frozen=True, slots=True)
class OpeningFailed:
    """What came out is not what honest holders open."""

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
