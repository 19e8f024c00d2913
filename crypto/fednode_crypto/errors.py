"""What can go wrong in `fednode_crypto`, by cause. Messages are one sentence and never hold a secret."""


class CryptoError(Exception):
    """Something that the caller has to decide about; every error of this package that is not a plain bug is one."""


class WrongParameters(CryptoError):
    """The parameters cannot work or do not belong together: nothing was computed, nothing was sent."""


class Overflow(CryptoError):
    """A value does not fit where it must fit: nothing was clamped, wrapped or sealed."""


class Tampered(CryptoError):
    """Bytes from outside are not what an honest sender would have sent: nothing of them was used."""


class BadSignature(Tampered):
    """The signature is not this key's over these bytes in this domain: the message must not be acted on."""


class NotEnoughShares(CryptoError):
    """Fewer answers than the threshold: the sum stays closed, and the answers so far say nothing about it."""


class AlreadyOpened(CryptoError):
    """This round was answered before with another roster: no second answer was computed."""
