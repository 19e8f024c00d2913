"""What the driver has to do: frozen values that `Round.handle` returns, in order of execution."""

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
    """Count a harmless message of `client` that came too late or twice."""

    client: str
    reason: str


@dataclass(frozen=True, slots=True)
class AskLater:
    """Send `WaitOver` to the round after `wait` seconds: the node has no room for this client's update."""

    client: str
    wait: float


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Ask this client again for its sealed update: there may be room now."""

    client: str


@dataclass(frozen=True, slots=True)
class CheckBoxes:
    """Send every holder its boxes of these clients."""

    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exclude:
    """Remove the updates of these clients from the sum: a holder showed that their boxes are wrong."""

    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Confirm:
    """Ask every holder that checked its boxes to sign the final roster, these clients."""

    clients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChargeBudget:
    """Charge the ledger for a sum over these survivors."""

    survivors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Open:
    """Ask every holder for its part of the opening; the receipt is the right to do so."""

    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Combine:
    """Combine the answers of these holders into the sum."""

    points: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish the mean of the sum; the release carries the receipt."""

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
