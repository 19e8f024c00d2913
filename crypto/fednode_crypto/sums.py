"""Scheme `bfv`: sealing an update, and the running sum of sealed ones, which a party without any key adds up."""

from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.encoding import from_bytes, to_bytes
from fednode_crypto.errors import Overflow, Tampered
from fednode_crypto.hazmat.ntt import Ring
from fednode_crypto.hazmat.tenseal_bfv import PublicContext, public_context
from fednode_crypto.keys import BfvKey
from fednode_crypto.packing import to_slots
from fednode_crypto.params import SumParams
from fednode_crypto.rng import Rng
from fednode_crypto.setting import common_polynomial, setting

Words = NDArray[np.uint64]

_SUM: Final = b"FNT1"
_COUNT: Final = 4


@dataclass(frozen=True, slots=True)
class BfvSealer:
    """Seals updates under one joint key."""

    params: SumParams
    _context: PublicContext = field(repr=False)

    @classmethod
    def under(cls, params: SumParams, key: BfvKey) -> Self:
        """Return a sealer; takes about 50 ms, so keep it for the task. ValueError for a key of other parameters."""
        if key.params != params:
            raise ValueError("this joint key belongs to other parameters: take the key of this task")
        pair = np.stack([key.words, common_polynomial(params, key.task)])
        return cls(params, public_context(setting(params).shape, pair))

    def seal(self, values: NDArray[np.int64], rng: Rng) -> bytes:
        """Return exactly `payload_bytes` that hide `values`, int64 (dimension,), from all but t holders together.

        `rng` is not used: the randomness is SEAL's own, seeded by the operating system for each seal.
        Raises Overflow when a value is out of bound, ValueError for another type or shape.
        """
        del rng
        slots = to_slots(values, self.params)
        return to_bytes(np.stack([self._context.encrypt(block) for block in slots]), setting(self.params).data)


@dataclass(frozen=True, slots=True, eq=False)
class BfvSealedSum:
    """A sum of `count` sealed updates; `words` are its ciphertexts, (blocks, 2, r, degree).

    A commutative monoid: payloads added in any order and grouping give the same bytes. Instances do not change.
    """

    params: SumParams
    count: int
    words: Words = field(repr=False)

    @classmethod
    def zero(cls, params: SumParams) -> Self:
        """Return the empty sum."""
        return cls(params, 0, np.zeros(_shape(params), dtype=np.uint64))

    def add(self, payload: bytes) -> Self:
        """Return this sum and one payload.

        Raises Tampered for a wrong size or a number out of range, Overflow when the sum is full.
        """
        self._room(1)
        return self._plus(_read(payload, self.params, "sealed update"), 1)

    def merge(self, other: Self) -> Self:
        """Return the sum of both. Raises Overflow when it would be too full, ValueError for other parameters."""
        if other.params != self.params:
            raise ValueError("sums with different parameters cannot be merged")
        self._room(other.count)
        return self._plus(other.words, other.count)

    def subtract(self, payload: bytes) -> Self:
        """Return this sum without a payload that was added before. Raises Tampered as `add`, ValueError when empty."""
        if self.count == 0:
            raise ValueError("nothing was added yet: there is nothing to subtract")
        words = self.words.copy()
        self._ring.subtract(words, _read(payload, self.params, "sealed update"))
        return type(self)(self.params, self.count - 1, words)

    def request(self) -> bytes:
        """Return what holders need to open this sum: exactly `request_bytes`. ValueError when nothing was added."""
        if self.count == 0:
            raise ValueError("nothing was added yet: there is nothing to open")
        return to_bytes(np.ascontiguousarray(self.words[:, 1]), self._ring)

    def to_bytes(self) -> bytes:
        """Return the whole sum as bytes, a checkpoint."""
        head = _SUM + self.params.digest() + self.count.to_bytes(_COUNT, "little")
        return head + to_bytes(self.words, self._ring)

    @classmethod
    def from_bytes(cls, params: SumParams, data: bytes) -> Self:
        """Undo `to_bytes`. Raises Tampered for damaged bytes, or a sum under other parameters."""
        head = _SUM + params.digest()
        count = int.from_bytes(data[len(head) : len(head) + _COUNT], "little")
        if data[: len(head)] != head or count > params.summands:
            raise Tampered("the stored sum is damaged or belongs to other parameters: add the updates again")
        return cls(params, count, _read(data[len(head) + _COUNT :], params, "stored sum"))

    @property
    def _ring(self) -> Ring:
        return setting(self.params).data

    def _room(self, more: int) -> None:
        if self.count + more > self.params.summands:
            raise Overflow(f"the sum was planned for {self.params.summands} updates: plan it for more")

    def _plus(self, words: Words, count: int) -> Self:
        total = self.words.copy()
        self._ring.add(total, words)
        return type(self)(self.params, self.count + count, total)


def _shape(params: SumParams) -> tuple[int, int, int, int]:
    known = setting(params)
    return params.blocks, 2, len(known.data.primes), known.data.degree


def _read(data: bytes, params: SumParams, what: str) -> Words:
    return from_bytes(data, setting(params).data, (params.blocks, 2), what)
