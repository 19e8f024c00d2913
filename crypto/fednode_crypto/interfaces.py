"""The seam that every secure sum stands behind: roles get the verbs of their role, and no others.

Two kinds of scheme share the client's, the node's and the release step's verbs. Under a `KeyedScheme` (`boxed` is
False) holders make one joint key a task, and answer what the node asks them to open. Under a `BoxedScheme` (`boxed` is
True) there is no key: each client sends each holder a share of its mask in a box, and holders answer for a roster.
`if scheme.boxed:` tells them apart, for mypy too.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fednode_crypto.params import SumParams
from fednode_crypto.rng import Rng
from fednode_crypto.secret import Sealing


class Contribution(Protocol):
    """A holder's part of the joint key: secret as a whole, published in two steps."""

    @property
    def commitment(self) -> bytes:
        """32 bytes to publish first: they bind the holder to its part and show nothing of it."""
        ...

    def reveal(self) -> bytes:
        """Return the public part, to publish when every holder's commitment is known."""
        ...

    def shares(self) -> Mapping[int, bytes]:
        """Return one secret share for each point 1 to k, for the holder at that point only."""
        ...

    def private_bytes(self) -> bytes:
        """Return everything, for the key folder and nothing else."""
        ...


class JointKey(Protocol):
    """The public key of one task."""

    def digest(self) -> bytes:
        """Return 32 bytes that stand for the key, its parameters and its task."""
        ...

    def to_bytes(self) -> bytes:
        """Return the key as bytes, to send to those who trust its digest."""
        ...


class HolderShare(Protocol):
    """What one holder opens with: secret."""

    def private_bytes(self) -> bytes:
        """Return everything, for the key folder and nothing else."""
        ...


class Sealer(Protocol):
    """Seals updates under one set of parameters (and one joint key, if the scheme has one)."""

    def seal(self, values: NDArray[np.int64], rng: Rng, context: bytes = b"") -> Sealing:
        """Return exactly `payload_bytes` that hide `values`, int64 (dimension,), and `share_bytes` for each holder.

        `context` binds the round: everyone in it uses the same bytes, no other round does. Keyed schemes ignore it.
        Raises Overflow when a value lies outside the bound; ValueError for another type or shape, and when a boxed
        scheme gets no context.
        """
        ...


class SealedSum(Protocol):
    """A sum of sealed updates: a commutative monoid, added up by a party without any key.

    Every verb returns a new sum and leaves this one as it is, except `absorb`.
    """

    @property
    def count(self) -> int:
        """Payloads in the sum."""
        ...

    def absorb(self, payload: bytes) -> None:
        """Add one payload to this very sum, without allocating: for the one who owns it. Raises as `add`.

        Nothing is changed when it raises.
        """
        ...

    def add(self, payload: bytes) -> Self:
        """Return this sum and one payload. Raises Tampered for a malformed one, Overflow when the sum is full."""
        ...

    def merge(self, other: Self) -> Self:
        """Return the sum of both. Raises Overflow when it would be too full."""
        ...

    def subtract(self, payload: bytes) -> Self:
        """Return this sum without a payload that was added before."""
        ...

    def request(self) -> bytes:
        """Return what holders need to open this sum: exactly `request_bytes`. ValueError when nothing was added."""
        ...

    def to_bytes(self) -> bytes:
        """Return a checkpoint: the same bytes for the same payloads in any order and grouping."""
        ...


class CommonVerbs(Protocol):
    """What every scheme does for the node and the release step.

    Objects of one scheme (keys, shares, sums) given to another raise ValueError, its parameters WrongParameters.
    `restore_*` undo `private_bytes` and `to_bytes`, and raise Tampered for other bytes; a key shows some in its digest.
    """

    @property
    def name(self) -> str:
        """What `SumParams.scheme` calls it."""
        ...

    @property
    def boxed(self) -> bool:
        """Whether clients send boxes (`BoxedScheme`); else there is a joint key (`KeyedScheme`)."""
        ...

    def sealer(self, params: SumParams, key: JointKey | None = None) -> Sealer:
        """Return what a client seals with, worth keeping for the task.

        Keyed schemes need the task's key, boxed ones take None: else ValueError.
        """
        ...

    def zero(self, params: SumParams) -> SealedSum:
        """Return the empty sum."""
        ...

    def restore_sum(self, params: SumParams, data: bytes) -> SealedSum:
        """Return the sum in a checkpoint."""
        ...

    def check_answer(self, params: SumParams, answer: bytes) -> None:
        """Return if `answer` can be a holder's: size and ranges, nothing more. Else raise Tampered: leave it out.

        Cheap, so worth asking as each answer comes; `combine` says WrongAnswer for one only.
        """
        ...

    def combine(
        self, params: SumParams, total: SealedSum, answers: Mapping[int, bytes], context: bytes = b""
    ) -> NDArray[np.int64]:
        """Return the exact sum, int64 (dimension,), from t or more answers by point; `context` as for `Sealer.seal`.

        Raises NotEnoughShares for fewer; Tampered when the answers do not open this sum, a value is out of bound, or
        answers contradict each other: as WrongAnswer, whose `points` name the holders to leave out where that shows.
        """
        ...


class KeyedScheme(CommonVerbs, Protocol):
    """A scheme with a joint key. `task` is the caller's: bytes that bind the task and its cohort."""

    @property
    def boxed(self) -> Literal[False]:
        """False: there is a joint key, and no boxes."""
        ...

    def contribute(self, params: SumParams, task: bytes, point: int, rng: Rng) -> Contribution:
        """Return a fresh part of the joint key for the holder at `point` (1 to k)."""
        ...

    def restore_contribution(self, params: SumParams, task: bytes, private: bytes) -> Contribution:
        """Return the contribution that a holder kept."""
        ...

    def joint_key(
        self, params: SumParams, task: bytes, reveals: Mapping[int, bytes], commitments: Mapping[int, bytes]
    ) -> JointKey:
        """Return the key that the holders made, by point.

        Raises NotEnoughShares when a holder is missing, Tampered for a reveal that is malformed or not committed to.
        """
        ...

    def restore_key(self, params: SumParams, task: bytes, data: bytes) -> JointKey:
        """Return the key in `data`; compare its digest with the expected one before use."""
        ...

    def join(self, params: SumParams, task: bytes, shares: Mapping[int, bytes]) -> HolderShare:
        """Return a holder's share from what every holder, by point, sent to it.

        Raises NotEnoughShares when one is missing, Tampered for a malformed one.
        """
        ...

    def restore_share(self, params: SumParams, task: bytes, private: bytes) -> HolderShare:
        """Return the share that a holder kept."""
        ...

    def answer(self, params: SumParams, share: HolderShare, request: bytes, rng: Rng) -> bytes:
        """Return a holder's part of the opening, exactly `answer_bytes`.

        The caller has checked the roster and recorded it. Raises Tampered for a malformed request.
        """
        ...


class BoxedScheme(CommonVerbs, Protocol):
    """A scheme in which each client shares its own mask among the holders."""

    @property
    def boxed(self) -> Literal[True]:
        """True: there is no key, and each client sends each holder a box."""
        ...

    def check_share(self, params: SumParams, share: bytes) -> None:
        """Return if `share` can be a client's, else raise Tampered: strike that client from the roster, by name."""
        ...

    def answer(self, params: SumParams, shares: Iterable[bytes]) -> bytes:
        """Return a holder's part of the opening, exactly `answer_bytes`: one share of each client of the roster.

        The caller has checked the roster and recorded it, and answers no second roster in that round. Raises Tampered
        for a malformed share, Overflow for more than were planned, ValueError for none.
        """
        ...


SumScheme = KeyedScheme | BoxedScheme
"""A secure sum: clients seal integers, a node adds what it cannot read, t of k holders open the sum exactly."""
