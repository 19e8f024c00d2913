"""What a client of scheme `ring` sends, from its values to signed bytes; and, as a program, some of these on disk."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.sums.cases import HOLDERS, THRESHOLD, Case, some_values
from fednode.protocol.boxkeys import share_challenge
from fednode_crypto import Demand, Sealing, SumParams, SystemRng, plan
from fednode_crypto.identity import BoxKey, BoxPublicKey, SigningKey, VerifyKey, seal_box
from fednode_crypto.ring.scheme import RingMask

SPEC: Final = hashlib.sha256(b"fednode bench: the digest of a round's specification").digest()
DOMAIN: Final = b"bench-upload"
KEY_BYTES: Final = 32
HASH_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64


def planned(case: Case) -> SumParams:
    """Return the cheapest parameters for a full cohort of values of `VALUE_BITS`."""
    return plan("ring", Demand(case.dimension, case.clients, case.largest_sum, HOLDERS, THRESHOLD))


@dataclass(frozen=True, slots=True)
class Upload:
    """One client's message: its key, a header (spec digest, hashes of payload and boxes, check), signature, bytes."""

    sender: bytes
    header: bytes
    signature: bytes
    payload: bytes
    boxes: tuple[bytes, ...]
    check_of_shares: bytes

    def to_bytes(self) -> bytes:
        """Return what travels: hashes do not, since whoever checks them computes them."""
        return b"".join((self.sender, self.signature, self.check_of_shares, *self.boxes, self.payload))

    @classmethod
    def from_bytes(cls, data: bytes, params: SumParams) -> Self:
        """Undo `to_bytes`, hashing everything on the way."""
        signed, split = KEY_BYTES + SIGNATURE_BYTES, len(data) - params.payload_bytes
        fixed = signed + params.check_bytes
        size = (split - fixed) // HOLDERS
        boxes = tuple(data[fixed + i * size : fixed + (i + 1) * size] for i in range(HOLDERS))
        payload, check = data[split:], data[signed:fixed]
        return cls(data[:KEY_BYTES], header_of(payload, boxes, check), data[KEY_BYTES:signed], payload, boxes, check)

    def check(self) -> None:
        """Raise BadSignature unless the sender signed this header."""
        VerifyKey(self.sender).verify(self.signature, DOMAIN, self.header)


def header_of(payload: bytes, boxes: tuple[bytes, ...], check: bytes) -> bytes:
    """Return what a client signs."""
    return SPEC + b"".join(hashlib.sha256(part).digest() for part in (payload, *boxes)) + check


def challenge_of(sender: bytes, boxes: tuple[bytes, ...]) -> bytes:
    """Return what the check of a client's shares answers."""
    hashes = {point: hashlib.sha256(box).digest() for point, box in enumerate(boxes, start=1)}
    return share_challenge(SPEC, sender.hex(), hashes)


def associated(sender: bytes, point: int) -> bytes:
    """Return what a box is bound to: round, client, holder."""
    return SPEC + sender + bytes([point])


@dataclass(frozen=True, slots=True)
class BenchClient:
    """A client with its keys, the holders' box keys of this round, and a sealer."""

    params: SumParams
    key: SigningKey
    holders: tuple[BoxPublicKey, ...]

    @classmethod
    def made(cls, params: SumParams, holders: tuple[BoxKey, ...]) -> Self:
        """Return a client with a new identity."""
        return cls(params, SigningKey.generate(), tuple(key.public for key in holders))

    def seal(self, values: NDArray[np.int64], rng: SystemRng) -> Sealing:
        """Mask the values and share the mask's secret."""
        return RingMask().sealer(self.params).seal(values, rng, SPEC)

    def boxed(self, shares: Mapping[int, bytes]) -> tuple[bytes, ...]:
        """Put each share in a box that its holder alone opens."""
        sender = self.key.public.raw
        return tuple(
            seal_box(holder, shares[point], associated(sender, point))
            for point, holder in enumerate(self.holders, start=1)
        )

    def checked(self, sealing: Sealing, boxes: tuple[bytes, ...]) -> bytes:
        """Show that the shares in these boxes belong together."""
        return sealing.check(challenge_of(self.key.public.raw, boxes))

    def signed(self, payload: bytes, boxes: tuple[bytes, ...], check: bytes) -> Upload:
        """Hash and sign all of it."""
        header = header_of(payload, boxes, check)
        return Upload(self.key.public.raw, header, self.key.sign(DOMAIN, header), payload, boxes, check)

    def upload(self, values: NDArray[np.int64], rng: SystemRng) -> Upload:
        """Do everything a client does from its values to its message."""
        sealing = self.seal(values, rng)
        boxes = self.boxed(sealing.shares)
        return self.signed(sealing.payload, boxes, self.checked(sealing, boxes))


def holder_keys() -> tuple[BoxKey, ...]:
    """Return the holders' box keys of one round."""
    return tuple(BoxKey.generate() for _ in range(HOLDERS))


def upload_file(folder: Path, number: int) -> Path:
    """Return where an upload lies."""
    return folder / f"upload-{number}.bin"


def work(folder: str, dimension: int, planned_for: int, count: int) -> dict[str, Any]:
    """Write `count` uploads into `folder`, for a node that is measured in another process."""
    case = Case(dimension, planned_for)
    params, keys, rng = planned(case), holder_keys(), SystemRng()
    for number in range(count):
        upload = BenchClient.made(params, keys).upload(some_values(case, number), rng)
        upload_file(Path(folder), number).write_bytes(upload.to_bytes())
    return {"bytes": upload_file(Path(folder), 0).stat().st_size}
