"""The running sum of sealed updates, which needs no key to add up; the same for every scheme."""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.encoding import add_bytes, from_bytes, to_bytes
from fednode_crypto.errors import Overflow, Tampered
from fednode_crypto.hazmat.moduli import Moduli
from fednode_crypto.params import SumParams

Words = NDArray[np.uint64]

_SUM: Final = b"FNT2"
_COUNT: Final = 4
_DIGEST: Final = 32


@dataclass(slots=True, eq=False)
class ResidueSum(ABC):
    """A sum of `count` sealed updates; `words` are its polynomials, (*lead, r, degree).

    A commutative monoid: payloads added in any order and grouping give the same bytes. Only `absorb` changes an
    instance.
    """

    params: SumParams
    count: int
    words: Words = field(repr=False)

    @staticmethod
    @abstractmethod
    def shape(params: SumParams) -> tuple[Moduli, tuple[int, ...]]:
        """Return the moduli of the residues, and the shape of a payload's polynomials."""

    @classmethod
    def zero(cls, params: SumParams) -> Self:
        """Return the empty sum."""
        moduli, lead = cls.shape(params)
        return cls(params, 0, np.zeros((*lead, len(moduli.primes), moduli.degree), dtype=np.uint64))

    def absorb(self, payload: bytes) -> None:
        """Add one payload in place, without allocating. If it raises, nothing has changed.

        Raises Tampered for a wrong size or a number out of range, Overflow if the sum is full.
        """
        self._require_space(1)
        add_bytes(self.words, payload, self.shape(self.params)[0], "sealed update")
        self.count += 1

    def add(self, payload: bytes) -> Self:
        """Return this sum plus one payload. Raises as `absorb`."""
        total = self._copy()
        total.absorb(payload)
        return total

    def merge(self, other: Self) -> Self:
        """Return the sum of both. Raises Overflow if it would be too full, ValueError for other parameters."""
        if other.params != self.params:
            raise ValueError("sums with different parameters cannot be merged")
        self._require_space(other.count)
        total = self._copy()
        self.shape(self.params)[0].add(total.words, other.words)
        total.count += other.count
        return total

    def subtract(self, payload: bytes) -> Self:
        """Return this sum without a payload that was added before. Raises Tampered as `add`, ValueError if empty."""
        if self.count == 0:
            raise ValueError("nothing was added yet: there is nothing to subtract")
        total, (moduli, lead) = self._copy(), self.shape(self.params)
        moduli.subtract(total.words, from_bytes(payload, moduli, lead, "sealed update"))
        total.count -= 1
        return total

    def request(self) -> bytes:
        """Return what holders need to open this sum, exactly `request_bytes`. ValueError for an empty sum."""
        if self.count == 0:
            raise ValueError("nothing was added yet: there is nothing to open")
        return self._request()

    @abstractmethod
    def _request(self) -> bytes:
        """Return the part of the sum that holders need."""

    def to_bytes(self) -> bytes:
        """Return a checkpoint of the whole sum: head, polynomials, and the SHA-256 of both."""
        head = _SUM + self.params.digest() + self.count.to_bytes(_COUNT, "little")
        body = to_bytes(self.words, self.shape(self.params)[0])
        return b"".join((head, body, _digest(head, body)))

    @classmethod
    def from_bytes(cls, params: SumParams, data: bytes) -> Self:
        """Undo `to_bytes`. Raises Tampered for damaged bytes, or a sum under other parameters.

        The hash finds accidents only: whoever can write the checkpoint file can replace the checkpoint.
        """
        known, start = _SUM + params.digest(), len(_SUM) + _DIGEST + _COUNT
        head, body, digest = data[:start], data[start:-_DIGEST], data[-_DIGEST:]
        count = int.from_bytes(head[len(known) :], "little")
        if head[: len(known)] != known or digest != _digest(head, body) or count > params.summands:
            raise Tampered("the stored sum is damaged or belongs to other parameters: add the updates again")
        return cls(params, count, from_bytes(body, *cls.shape(params), "stored sum"))

    def _copy(self) -> Self:
        return type(self)(self.params, self.count, self.words.copy())

    def _require_space(self, more: int) -> None:
        if self.count + more > self.params.summands:
            raise Overflow(f"the sum was planned for {self.params.summands} updates: plan it for more")


def _digest(head: bytes, body: bytes) -> bytes:
    state = hashlib.sha256(head)
    state.update(body)
    return state.digest()
