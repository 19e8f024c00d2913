"""The roles of a secure sum as Protocols: each role gets its own verbs and no others.

There are two kinds of scheme, with the same verbs for client, node and release step. Under a `KeyedScheme` (`boxed` is
False) holders make one joint key for a task, and answer what the node asks them to open. Under a `BoxedScheme` (`boxed`
is True) there is no key: each client sends each holder a share of its mask in a box, and holders answer for a roster.
mypy narrows the type by `if scheme.boxed:`.
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
        """32 bytes to publish first: they bind the holder to its part and reveal nothing of it."""
        ...

    def reveal(self) -> bytes:
        """Return the public part. Publish it once every holder's commitment is known."""
        ...

    def shares(self) -> Mapping[int, bytes]:
        """Return one secret share for each point 1 to k; each is for the holder at that point only."""
        ...

    def private_bytes(self) -> bytes:
        """Return the whole secret: for the key folder only."""
        ...


class JointKey(Protocol):
    """The public key of one task."""

    def digest(self) -> bytes:
        """Return 32 bytes that identify the key, its parameters and its task."""
        ...


class HolderShare(Protocol):
    """The secret with which one holder opens sums."""

    def private_bytes(self) -> bytes:
        """Return the whole secret: for the key folder only."""
        ...


class Sealer(Protocol):
    """Seals updates under one set of parameters (and one joint key, if the scheme has one)."""

    def seal(self, values: NDArray[np.int64], rng: Rng, context: bytes = b"") -> Sealing:
        """Return exactly `payload_bytes` that hide `values`, int64 (dimension,), and `share_bytes` for each holder.

        `context` binds the round: everyone in it uses the same bytes, no other round does. Keyed schemes ignore it.
        Raises Overflow for a value out of bound; ValueError for another type or shape, and if a boxed scheme gets no
        context.
        """
        ...


class SealedSum(Protocol):
    """A sum of sealed updates: a commutative monoid that needs no key to add up.

    Only `absorb` changes an instance; every other verb returns a new sum.
    """

    @property
    def count(self) -> int:
        """The number of payloads in the sum."""
        ...

    def absorb(self, payload: bytes) -> None:
        """Add one payload in place, without allocating. Raises as `add`, and then nothing has changed."""
        ...

    def add(self, payload: bytes) -> Self:
        """Return this sum plus one payload. Raises Tampered for a malformed one, Overflow if the sum is full."""
        ...

    def merge(self, other: Self) -> Self:
        """Return the sum of both. Raises Overflow if it would be too full."""
        ...

    def subtract(self, payload: bytes) -> Self:
        """Return this sum without a payload that was added before."""
        ...

    def request(self) -> bytes:
        """Return what holders need to open this sum: exactly `request_bytes`. ValueError for an empty sum."""
        ...

    def to_bytes(self) -> bytes:
        """Return a checkpoint: the same bytes for the same payloads in any order and grouping."""
        ...


class CommonVerbs(Protocol):
    """What every scheme offers the node and the release step.

    Keys, shares and sums of another scheme raise ValueError, its parameters WrongParameters. `restore_*` undo
    `private_bytes` and `to_bytes`, and raise Tampered for other bytes.
    """

    @property
    def name(self) -> str:
        """The name of the scheme in `SumParams.scheme`."""
        ...

    @property
    def boxed(self) -> bool:
        """Whether clients send boxes (`BoxedScheme`); else there is a joint key (`KeyedScheme`)."""
        ...

    def sealer(self, params: SumParams, key: JointKey | None = None) -> Sealer:
        """Return what a client seals with; keep it for the task.

        ValueError unless a keyed scheme gets the task's key and a boxed one gets None.
        """
        ...

    def zero(self, params: SumParams) -> SealedSum:
        """Return the empty sum."""
        ...

    def restore_sum(self, params: SumParams, data: bytes) -> SealedSum:
        """Return the sum in a checkpoint."""
        ...

    def check_answer(self, params: SumParams, answer: bytes) -> None:
        """Return if `answer` has the right size and ranges, else raise Tampered: leave it out.

        Cheap: call it as each answer arrives. `combine` names only the first bad answer it finds.
        """
        ...

    def combine(
        self, params: SumParams, total: SealedSum, answers: Mapping[int, bytes], context: bytes = b""
    ) -> NDArray[np.int64]:
        """Return the exact sum, int64 (dimension,), from t or more answers by point; `context` as for `Sealer.seal`.

        Raises NotEnoughShares for fewer; Tampered if the answers do not open this sum or a value is out of bound;
        WrongAnswer if answers contradict each other, with the `points` of the holders to leave out if known.
        """
        ...


class KeyedScheme(CommonVerbs, Protocol):
    """A scheme with a joint key. `task` are bytes of the caller that bind the task and its cohort."""

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

        Raises NotEnoughShares if a holder is missing, Tampered for a reveal that is malformed or not committed to.
        """
        ...

    def join(self, params: SumParams, task: bytes, shares: Mapping[int, bytes]) -> HolderShare:
        """Return a holder's share from what every holder sent to it, by point.

        Raises NotEnoughShares if one is missing, Tampered for a malformed one.
        """
        ...

    def restore_share(self, params: SumParams, task: bytes, private: bytes) -> HolderShare:
        """Return the share that a holder kept."""
        ...

    def answer(self, params: SumParams, share: HolderShare, request: bytes, rng: Rng) -> bytes:
        """Return a holder's part of the opening, exactly `answer_bytes`.

        The caller has checked and recorded the roster. Raises Tampered for a malformed request.
        """
        ...


class BoxedScheme(CommonVerbs, Protocol):
    """A scheme in which each client shares its own mask among the holders."""

    @property
    def boxed(self) -> Literal[True]:
        """True: there is no key, and each client sends each holder a box."""
        ...

    def check_share(self, params: SumParams, share: bytes, point: int, challenge: bytes, check: bytes) -> None:
        """Return if `share`, from the box for `point`, belongs with the client's others, else raise Tampered.

        `check` is the client's answer to `challenge`, 32 bytes that depend on all its boxes. Exclude it if refused.
        """
        ...

    def answer(self, params: SumParams, shares: Iterable[bytes]) -> bytes:
        """Return a holder's part of the opening, exactly `answer_bytes`: one share of each client of the roster.

        The caller has checked and recorded the roster, and answers no second roster in that round. Raises Tampered for
        a malformed share, Overflow for more than were planned, ValueError for none.
        """
        ...


SumScheme = KeyedScheme | BoxedScheme
"""A secure sum: clients seal integers, a node adds what it cannot read, t of k holders open the sum exactly."""
