"""What can go wrong in `fednode_crypto`, by cause. Each message is one sentence and never holds a secret."""

from collections.abc import Iterable


class CryptoError(Exception):
    """An error that the caller must decide about. Plain programming errors are ValueError or TypeError instead."""


class WrongParameters(CryptoError):
    """The parameters do not work or do not belong together. Nothing was computed or sent."""


class Overflow(CryptoError):
    """A value does not fit its place. Nothing was clamped, wrapped or sealed."""


class Tampered(CryptoError):
    """Bytes from outside are not what an honest sender would have sent. No part of them was used."""


class BadSignature(Tampered):
    """The signature does not verify for this key, domain and message. Do not act on the message."""


class WrongAnswer(Tampered):
    """The answers do not open the sum. `points` are the holders to leave out; empty if they cannot be identified."""

    def __init__(self, message: str, points: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.points = tuple(sorted(points))


class NotEnoughShares(CryptoError):
    """Fewer answers than the threshold. The sum stays closed, and the answers reveal nothing about it."""
