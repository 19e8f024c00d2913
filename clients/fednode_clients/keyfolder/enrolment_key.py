"""The files of an enrolment key. Each starts with its kind, since both halves are 64 hexadecimal digits."""

from pathlib import Path
from typing import Final

from fednode.disk.atomic import write_whole
from fednode.errors import ConfigError, DataError
from fednode_crypto import CryptoError
from fednode_crypto.identity import VerifyKey

PUBLIC_FILE: Final = "enrolment.pub"
PUBLIC_KIND: Final = "fednode-enrolment-public-1"
SECRET_KIND: Final = "fednode-enrolment-secret-1"  # noqa: S105 (the name of a kind, no secret)


def write_enrolment_public(file: Path, key: VerifyKey) -> None:
    """Write the public half of an enrolment key. Raises `StoreError`."""
    write_whole(file, f"{PUBLIC_KIND} {key.raw.hex()}\n".encode(), 0o644)


def read_enrolment_public(file: Path) -> VerifyKey:
    """The public half of an enrolment key. Raises `DataError` if it cannot be read, `ConfigError` for another file, as
    the secret half."""
    try:
        kind, _, digits = file.read_text(encoding="ascii").strip().partition(" ")
        if kind == SECRET_KIND:
            raise ConfigError(
                f"{file} holds the secret enrolment key, which only the enroller may have; name {PUBLIC_FILE}, the "
                "file with its public half"
            )
        if kind != PUBLIC_KIND:
            raise ValueError("another kind of file")
        return VerifyKey(bytes.fromhex(digits))
    except OSError as error:
        raise DataError(f"could not read {file}: {error.strerror}; ask the enroller for {PUBLIC_FILE}") from None
    except (ValueError, CryptoError):
        # the error's text may hold a part of a secret
        raise ConfigError(
            f"{file} does not hold the public half of an enrolment key; ask the enroller for {PUBLIC_FILE}"
        ) from None
