"""Scheme `bfv`: a joint key without a dealer, and the shares that open under it.

Each holder j samples a ternary s_j and a small e_j and publishes b_j = -(a s_j + e_j); the joint key is (sum b_j, a).
Its secret, the sum of all s_j, is never computed: every s_j is Shamir-shared to all holders, and a holder keeps the sum
of the shares it received.
Source: Asharov et al., "Multiparty computation with low communication, computation and interaction via threshold FHE"
(2012); sharing as in Mouchet et al., "An efficient threshold access-structure for RLWE-based multiparty HE" (2023).
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.bfv.context import bfv_context, binding, common_polynomial
from fednode_crypto.bfv.params import BfvParams
from fednode_crypto.encoding import from_bytes, size_of, to_bytes
from fednode_crypto.errors import NotEnoughShares, Tampered
from fednode_crypto.hazmat.shamir import share
from fednode_crypto.hazmat.uniform import ternary
from fednode_crypto.noise import discrete_gaussian
from fednode_crypto.rng import Rng
from fednode_crypto.secret import Secret

Words = NDArray[np.uint64]

ERROR_VARIANCE: Final = Fraction(1024, 100)
"""Standard deviation 3.2, as in the HomomorphicEncryption.org standard."""

_NONCE: Final = 32
_DIGEST: Final = 32
_CONTRIBUTION, _SHARE = b"FNC2", b"FNS2"


def commit(context: bytes, point: int, reveal: bytes) -> bytes:
    """Return the commitment to `reveal` (b_j and 32 random bytes) by the holder at `point`; binding and hiding."""
    return hashlib.sha256(b"fednode/bfv/commit/1\n" + context + bytes([point]) + reveal).digest()


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class BfvContribution(Secret):
    """One holder's part of the joint key. s_j itself is not kept; its shares are as secret as it is."""

    _context: bytes
    _point: int
    _reveal: bytes
    _shares: Mapping[int, bytes]

    @classmethod
    def fresh(cls, params: BfvParams, task: bytes, point: int, rng: Rng) -> Self:
        """Return a new contribution of the holder at `point`. ValueError unless `point` is 1 to k."""
        if not 1 <= point <= params.holders:
            raise ValueError(f"a holder's point is 1 to {params.holders}")
        ctx = bfv_context(params)
        secret = ctx.key.residues(ternary(params.ring_degree, rng))
        error = ctx.key.residues(discrete_gaussian(ERROR_VARIANCE, params.ring_degree, rng))
        ctx.key.forward(secret)
        ctx.key.forward(error)
        product = common_polynomial(params, task)
        ctx.key.multiply(product, secret)
        ctx.key.add(product, error)
        public = np.zeros_like(product)
        ctx.key.subtract(public, product)
        points = range(1, params.holders + 1)
        shares = share(secret[:-1].copy(), ctx.data, params.threshold, points, rng)
        return cls(
            binding(params, task),
            point,
            to_bytes(public, ctx.key) + rng.bytes(_NONCE),
            {p: to_bytes(s, ctx.data) for p, s in shares.items()},
        )

    @property
    def commitment(self) -> bytes:
        """32 bytes to publish, before anyone reveals."""
        return commit(self._context, self._point, self._reveal)

    def reveal(self) -> bytes:
        """Return b_j and the nonce of the commitment: public once every commitment is ctx."""
        return self._reveal

    def shares(self) -> Mapping[int, bytes]:
        """Return one share for each holder's point. Each is secret and for its holder only."""
        return self._shares

    def private_bytes(self) -> bytes:
        """Return everything, for the key folder."""
        head = _CONTRIBUTION + self._context
        return _with_digest(head, bytes([self._point]) + self._reveal + b"".join(self._shares.values()))

    @classmethod
    def restore(cls, params: BfvParams, task: bytes, private: bytes) -> Self:
        """Undo `private_bytes`. Raises Tampered for damaged bytes, or another task's."""
        ctx = bfv_context(params)
        reveal_size, share_size = size_of(ctx.key) + _NONCE, size_of(ctx.data)
        body = _verified(private, _CONTRIBUTION + binding(params, task), 1 + reveal_size + params.holders * share_size)
        starts = range(1 + reveal_size, len(body), share_size)
        shares = {point: body[at : at + share_size] for point, at in enumerate(starts, start=1)}
        return cls(binding(params, task), body[0], body[1 : 1 + reveal_size], shares)


@dataclass(frozen=True, slots=True, eq=False)
class BfvKey:
    """The public joint key of one task under `params`; `words` is sum b_j in NTT form, (R, degree)."""

    params: BfvParams
    task: bytes
    words: Words = field(repr=False)

    @classmethod
    def joined(
        cls, params: BfvParams, task: bytes, reveals: Mapping[int, bytes], commitments: Mapping[int, bytes]
    ) -> Self:
        """Return the key that the holders at points 1 to k revealed.

        Raises NotEnoughShares if one is missing; Tampered, naming the holder's point, for a reveal that was not
        committed to or has a wrong size or a number out of range, and for an unknown point.
        """
        ctx = bfv_context(params)
        _require_all_points(params, commitments)
        _require_all_points(params, reveals)
        total = np.zeros((len(params.primes), params.ring_degree), dtype=np.uint64)
        for point, reveal in sorted(reveals.items()):
            if not hmac.compare_digest(commit(binding(params, task), point, reveal), commitments[point]):
                raise Tampered(f"holder {point} revealed another key than it committed to: exclude it and start again")
            ctx.key.add(total, from_bytes(reveal[:-_NONCE], ctx.key, what=f"key of holder {point}"))
        return cls(params, task, total)

    def digest(self) -> bytes:
        """Return 32 bytes that identify this key, its parameters and its task."""
        packed = to_bytes(self.words, bfv_context(self.params).key)
        return hashlib.sha256(b"fednode/bfv/key/1\n" + binding(self.params, self.task) + packed).digest()


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class BfvShare(Secret):
    """What one holder opens with: the sum of the shares it received, in NTT form, (r, degree)."""

    _context: bytes
    _params: BfvParams
    _words: Words

    @classmethod
    def joined(cls, params: BfvParams, task: bytes, shares: Mapping[int, bytes]) -> Self:
        """Return the sum of what the holders at points 1 to k sent to one of them.

        Raises NotEnoughShares if one is missing, Tampered for a share of wrong size or range or of an unknown point.
        A share that does not fit the others is detected at the first opening with more than t answers.
        """
        ctx = bfv_context(params)
        _require_all_points(params, shares)
        total = np.zeros((params.data_primes, params.ring_degree), dtype=np.uint64)
        for point, part in sorted(shares.items()):
            ctx.data.add(total, from_bytes(part, ctx.data, what=f"share from holder {point}"))
        return cls(binding(params, task), params, total)

    def words(self, params: BfvParams) -> Words:
        """Return a copy of the secret. ValueError if it belongs to other parameters."""
        if self._params != params:
            raise ValueError("this share belongs to other parameters: load the share of this task")
        return self._words.copy()

    def private_bytes(self) -> bytes:
        """Return everything, for the key folder."""
        return _with_digest(_SHARE + self._context, to_bytes(self._words, bfv_context(self._params).data))

    @classmethod
    def restore(cls, params: BfvParams, task: bytes, private: bytes) -> Self:
        """Undo `private_bytes`. Raises Tampered for damaged bytes, or another task's."""
        ctx = bfv_context(params)
        body = _verified(private, _SHARE + binding(params, task), size_of(ctx.data))
        return cls(binding(params, task), params, from_bytes(body, ctx.data, what="stored share"))


def _require_all_points(params: BfvParams, given: Mapping[int, bytes]) -> None:
    points = set(range(1, params.holders + 1))
    if not set(given) <= points:
        raise Tampered(f"holder points are 1 to {params.holders}: got {sorted(set(given) - points)}")
    if missing := points - set(given):
        raise NotEnoughShares(f"the joint key needs every holder: nothing came from {sorted(missing)}")


def _with_digest(head: bytes, body: bytes) -> bytes:
    """Return head, body, and the SHA-256 of both, so that a bit flipped on the disk cannot become a wrong answer."""
    return head + body + hashlib.sha256(head + body).digest()


def _verified(private: bytes, head: bytes, size: int) -> bytes:
    body = private[len(head) : -_DIGEST]
    if len(body) != size or not hmac.compare_digest(private, _with_digest(head, body)):
        raise Tampered("the stored secret is damaged or belongs to another task: make a new key")
    return body
