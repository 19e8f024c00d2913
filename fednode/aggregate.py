"""The running sum of a round: updates are added as they arrive, in memory that does not grow with their number."""

from dataclasses import dataclass, field, replace

from fednode.errors import PeerFault
from fednode.reasons import Reason
from fednode_crypto import SealedSum, Tampered


@dataclass(frozen=True, slots=True)
class Fold:
    """A sum of sealed updates, and the names of their clients."""

    total: SealedSum = field(repr=False)
    names: tuple[str, ...] = ()

    def add(self, name: str, payload: bytes) -> "Fold":
        """Return the fold with one more update.

        Raises `PeerFault(BAD_PAYLOAD)` for bytes that no honest client sends, and `ValueError` for a name that is
        already in the sum: no update is counted twice.
        """
        if name in self.names:
            raise ValueError(f"{name} is in this sum already")
        try:
            total = self.total.add(payload)
        except Tampered as error:
            raise PeerFault(Reason.BAD_PAYLOAD, str(error)) from error
        return replace(self, total=total, names=(*self.names, name))

    def remove(self, name: str, payload: bytes) -> "Fold":
        """Return the fold without this update. Raises `ValueError` if it is not in the sum."""
        if name not in self.names:
            raise ValueError(f"{name} is not in this sum")
        names = tuple(other for other in self.names if other != name)
        return replace(self, total=self.total.subtract(payload), names=names)
