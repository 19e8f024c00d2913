"""Scheme `ring`: exact sums under masks that add up as the updates do, at about the bytes of float32.

A client seals m by c = a s + e + D m over Z_q[x] / (x^n + 1), with a fresh secret s and error e, both discrete
Gaussian of width 6.4; everyone hashes `a` from the round's context. It Shamir-shares s, a few kilobytes whatever the
model, among k holders. The node adds the c; each holder adds its shares over one roster; t answers give S, the sum of
the s, and c - a S is D times the sum of the m, plus an error that rounds away.

Guarantee: whoever has all payloads, fewer than t holders' shares, and answers for one roster a round, learns the sums
of m, s and e over that roster and nothing else about honest clients, as long as two of them are in it, under ring-LWE
of width 3.2 with n = 4096, log q = 109 or n = 8192, log q = 218: 128 bits as the HomomorphicEncryption.org table
counts. The opened sums of s and e are hints, and from width 6.4 they leave 3.2 (Hint-MLWE): it takes Gaussian secrets,
ternary ones have no such theorem. A node that lies about what it added gains nothing: an answer depends on the roster,
not on the sum. `docs/crypto.md` has the argument, the estimates and the assumptions.
Edge cases: the sum of one honest client is its update; answers for two rosters in one round, even fewer than t for
each, can give both away (holders answer for the one that t of them signed); shares that do not belong together are
found before the sum is opened, with whose they are (`ring.share_check`); a payload of junk, or shares that belong
together and not to the payload, only when it is opened, and not whose it was.

Sources: Boneh, Lewi, Montgomery, Raghunathan, "Key homomorphic PRFs and their applications" (2013), for masks that add
up; Becker, Guajardo, Zimmermann, "Revisiting private stream aggregation: lattice-based PSA" (2018), and Ernst, Koch,
"Private stream aggregation with labels in the standard model" (2021), for sums of updates under them; Karthikeyan,
Polychroniadou, "OPA: one-shot private aggregation with single client interaction" (2024), for one message a client and
a committee that opens; Kim, Lee, Seo, Song, "Toward practical lattice-based proof of knowledge from Hint-MLWE" (2023).
A close relative, in which clients encrypt the mask's key under an additively homomorphic scheme, is the subject of a
patent application: here Shamir shares go to holders, and no key is encrypted homomorphically.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.encoding import check_bytes
from fednode_crypto.interfaces import BoxedScheme, JointKey, SealedSum
from fednode_crypto.params import SumParams
from fednode_crypto.ring import opening, share_check
from fednode_crypto.ring.context import ring_context
from fednode_crypto.ring.params import RingParams
from fednode_crypto.ring.sealing import RingSealedSum, RingSealer


class RingMask:
    """The verbs of scheme `ring`; the interface says what each returns and raises. It has no state."""

    name: Final = "ring"
    boxed: Literal[True] = True

    def sealer(self, params: SumParams, key: JointKey | None = None) -> RingSealer:
        """Return what a client seals with. ValueError for a key: this scheme has none."""
        if key is not None:
            raise ValueError("scheme 'ring' has no joint key: pass None")
        return RingSealer(RingParams.of(params))

    def zero(self, params: SumParams) -> RingSealedSum:
        """Return the empty sum."""
        return RingSealedSum.zero(RingParams.of(params))

    def restore_sum(self, params: SumParams, data: bytes) -> RingSealedSum:
        """Return the sum in a checkpoint."""
        return RingSealedSum.from_bytes(RingParams.of(params), data)

    def check_share(self, params: SumParams, share: bytes, point: int, challenge: bytes, check: bytes) -> None:
        """Return if `share` belongs to the client's check; guarantee as `ring.share_check.check_share`."""
        share_check.check_share(RingParams.of(params), share, point, challenge, check)

    def answer(self, params: SumParams, shares: Iterable[bytes]) -> bytes:
        """Return one holder's part of the opening; guarantee as `ring.opening.answer`."""
        return opening.answer(RingParams.of(params), shares)

    def check_answer(self, params: SumParams, answer: bytes) -> None:
        """Return if `answer` can be a holder's: the exact size, every number in the field."""
        check_bytes(answer, ring_context(RingParams.of(params)).shares, what="answer")

    def combine(
        self, params: SumParams, total: SealedSum, answers: Mapping[int, bytes], context: bytes = b""
    ) -> NDArray[np.int64]:
        """Return the exact sum from t or more answers; checks as `ring.opening.combine`."""
        if not isinstance(total, RingSealedSum):
            raise ValueError("this sum belongs to another scheme: use one that scheme 'ring' made")
        return opening.combine(RingParams.of(params), total, answers, context)


SCHEME: Final[BoxedScheme] = RingMask()
