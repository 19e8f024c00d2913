"""A holder's boxed shares: a fresh seed for each round, the boxes sealed to its keys, and the sum of their shares.

Seed and boxes are destroyed when the round is opened or closed, or when a later round gets its seed: from then on the
key folder reveals no share of the round.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import final

from fednode.errors import PeerFault
from fednode.protocol.boxkeys import BOX_KEY, box_context, client_indices
from fednode.protocol.complaints import KeyedBox
from fednode.protocol.envelope import Signed
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.wire import digest, join_parts, split_parts
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.tasks import KnownTask
from fednode_crypto import BoxedScheme
from fednode_crypto.identity import BoxKey, open_box
from fednode_crypto.secret import Secret

_MOST_BOXES = 1 << 20
_ROUND, _SEED = 8, 32


@final
@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RoundSeed(Secret):
    """32 secret bytes from which the keys of one round follow, one for each client."""

    _raw: bytes

    def key(self, index: int) -> BoxKey:
        """The key for client `index` of the cohort. Whoever learns it learns no other."""
        return BoxKey.from_private_bytes(digest(BOX_KEY, self._raw, index.to_bytes(4, "little")))


@dataclass(frozen=True, slots=True)
class BoxStore:
    """The seed and the boxes of one holder's current round of each task."""

    folder: KeyFolder = field(repr=False)

    def seed(self, task: str, round_number: int) -> RoundSeed:
        """The seed of this round, made at the first call; destroys the seed of an earlier round.

        Raises `PeerFault`: PAST_ROUND if a later round has a seed, ROUND_CLOSED if this round's seed was destroyed.
        """
        kept = self.folder.state.get(f"box-key/{task}")
        if kept is not None:
            current = int.from_bytes(kept[:_ROUND], "little")
            if current > round_number:
                raise PeerFault(Reason.PAST_ROUND, f"round {round_number} is past, the current round is {current}")
            if current == round_number and len(kept) > _ROUND:
                return RoundSeed(kept[_ROUND:])
            if current == round_number:
                raise PeerFault(Reason.ROUND_CLOSED, f"round {round_number} is over, its keys were destroyed")
        fresh = os.urandom(_SEED)
        self.folder.state.drop(f"boxes/{task}")
        self.folder.state.put(f"box-key/{task}", round_number.to_bytes(_ROUND, "little") + fresh)
        return RoundSeed(fresh)

    def take(
        self, known: KnownTask, spec: RoundSpec, heads: Iterable[Signed], boxes: Mapping[str, bytes]
    ) -> dict[str, bytes]:
        """Keep the boxes whose share belongs to the client's others. Of each other box return, by client, its secret
        key: whoever has it sees what is wrong in this box, and in no other.

        Raises `PeerFault` BAD_REQUEST if a box is not the one that its client signed: the node exchanged it.
        """
        about, seed, good, struck = spec.digest(), self._current(spec), {}, {}
        indices = client_indices(known.card.cohort)
        for signed in heads:
            name = signed.head.sender
            box = KeyedBox(signed.head, known.me, boxes.get(name, b""), seed.key(indices[name]))
            if not box.signed:
                raise PeerFault(Reason.BAD_REQUEST, f"the box of {name} is not the one that it signed")
            if box.fault(spec, about, boxed_scheme(known)) is None:
                good[name] = box.box
            else:
                struck[name] = box.key.private_bytes()
        self.folder.state.put(f"boxes/{spec.task}", about + join_parts(good))
        return struck

    def require(self, spec: RoundSpec, names: Iterable[str]) -> Mapping[str, bytes]:
        """The boxes of this round. Raises `PeerFault` BAD_REQUEST if the seed or a box of `names` is missing."""
        self._current(spec)
        kept = self.folder.state.get(f"boxes/{spec.task}") or b""
        if kept[:32] != spec.digest():
            raise PeerFault(Reason.BAD_REQUEST, "no boxes of this round are here")
        boxes = split_parts(kept[32:], _MOST_BOXES)
        missing = [name for name in names if name not in boxes]
        if missing:
            raise PeerFault(Reason.BAD_REQUEST, f"the box of {missing[0]} is missing")
        return boxes

    def answer(self, known: KnownTask, spec: RoundSpec, names: Collection[str]) -> bytes:
        """The sum of the shares of exactly these clients. Raises `PeerFault` BAD_REQUEST if a box is missing."""
        boxes, seed, about = self.require(spec, names), self._current(spec), spec.digest()
        indices = client_indices(known.card.cohort)
        shares = (open_box(seed.key(indices[name]), boxes[name], box_context(about, name, known.me)) for name in names)
        return boxed_scheme(known).answer(spec.sum_params, shares)

    def close(self, task: str, round_number: int) -> None:
        """Destroy the seed and the boxes of this round, if any, also on a full disk. It never gets a seed again."""
        kept = self.folder.state.get(f"box-key/{task}")
        if kept is not None and int.from_bytes(kept[:_ROUND], "little") == round_number:
            self.folder.state.shorten(f"box-key/{task}", _ROUND)
            self.folder.state.drop(f"boxes/{task}")

    def _current(self, spec: RoundSpec) -> RoundSeed:
        kept = self.folder.state.get(f"box-key/{spec.task}") or b""
        if len(kept) <= _ROUND or int.from_bytes(kept[:_ROUND], "little") != spec.round:
            raise PeerFault(Reason.BAD_REQUEST, f"round {spec.round} has no keys here")
        return RoundSeed(kept[_ROUND:])


def boxed_scheme(known: KnownTask) -> BoxedScheme:
    """The secure sum of a task with boxes. Raises `PeerFault` UNEXPECTED for another."""
    if not known.scheme.boxed:
        raise PeerFault(Reason.UNEXPECTED, "this scheme has no boxes")
    return known.scheme
