"""What the driver has to do: frozen values that `Round.handle` returns, in the order in which they are to be done."""

from dataclasses import dataclass

from fednode.privacy.ledger import Receipt


@dataclass(frozen=True, slots=True)
class Keep:
    """Store this client's update and fold it into the sum."""

    client: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Count a fault against `client`."""

    client: str
    reason: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Count something harmless that came too late or twice."""

    client: str
    reason: str


@dataclass(frozen=True, slots=True)
class AskLater:
    """Say `WaitOver` after `wait` seconds: there was no room for this client's update."""

    client: str
    wait: float


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Ask this client again for what it sealed: there may be room now."""

    client: str


@dataclass(frozen=True, slots=True)
class CheckBoxes:
    """Give every holder its boxes of these clients."""

    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exclude:
    """Take the updates of these clients out of the sum: a holder could not open their boxes."""

    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Confirm:
    """Have every holder that could check sign the final roster: these clients."""

    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChargeBudget:
    """Charge the ledger with what these survivors added."""

    survivors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Open:
    """Ask every holder for its part; the receipt is the right to do so."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Combine:
    """Put the answers of these holders together."""

    points: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the new model back: the receipt goes into the release."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Fail:
    """End the round without a release."""

    cause: str
    reason: str


Effect = (
    Keep
    | Reject
    | Discard
    | AskLater
    | AskAgain
    | CheckBoxes
    | Exclude
    | Confirm
    | ChargeBudget
    | Open
    | Combine
    | Publish
    | Fail
)
