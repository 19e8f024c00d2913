"""A holder's boxed shares: a fresh key for each round, the boxes sealed to it, and the sum of the shares in them.

Key and boxes are destroyed when the round is opened or closed, or when a later round gets its key: from then on the key
folder reveals no share of the round.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fednode.errors import PeerFault
from fednode.protocol.boxkeys import box_context, box_name
from fednode.protocol.envelope import Signed
from fednode.protocol.spec import RoundSpec
from fednode.reasons import Reason
from fednode.wire import join_parts, split_parts
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.tasks import KnownTask
from fednode_crypto import BoxedScheme, Tampered
from fednode_crypto.identity import BoxKey, open_box

_MOST_BOXES = 1 << 20
_ROUND = 8


@dataclass(frozen=True, slots=True)
class BoxStore:
    """The key and the boxes of one holder's current round of each task."""

    folder: KeyFolder = field(repr=False)

    def key(self, task: str, round_number: int) -> BoxKey:
        """The key of this round, made at the first call; destroys the key of an earlier round.

        Raises `PeerFault`: PAST_ROUND if a later round has a key, ROUND_CLOSED if this round's key was destroyed.
        """
        kept = self.folder.state.get(f"box-key/{task}")
        if kept is not None:
            current = int.from_bytes(kept[:_ROUND], "little")
            if current > round_number:
                raise PeerFault(Reason.PAST_ROUND, f"round {round_number} is past, the current round is {current}")
            if current == round_number and len(kept) > _ROUND:
                return BoxKey.from_private_bytes(kept[_ROUND:])
            if current == round_number:
                raise PeerFault(Reason.ROUND_CLOSED, f"round {round_number} is over, its key was destroyed")
        fresh = BoxKey.generate()
        self.folder.state.drop(f"boxes/{task}")
        self.folder.state.put(f"box-key/{task}", round_number.to_bytes(_ROUND, "little") + fresh.private_bytes())
        return fresh

    def take(self, known: KnownTask, spec: RoundSpec, heads: Iterable[Signed], boxes: Mapping[str, bytes]) -> list[str]:
        """Keep the boxes that open to a share; return the names of the clients whose box does not.

        Raises `PeerFault` BAD_REQUEST if a box is not the one that its client signed: the node exchanged it.
        """
        digest, key, good, excluded = spec.digest(), self._current(spec), {}, []
        for signed in heads:
            name = signed.head.sender
            box = boxes.get(name, b"")
            if signed.head.attached().get(box_name(known.me.point)) != hashlib.sha256(box).digest():
                raise PeerFault(Reason.BAD_REQUEST, f"the box of {name} is not the one that it signed")
            try:
                _scheme(known).check_share(spec.sum_params, open_box(key, box, box_context(digest, name, known.me)))
                good[name] = box
            except Tampered:
                excluded.append(name)
        self.folder.state.put(f"boxes/{spec.task}", digest + join_parts(good))
        return excluded

    def require(self, spec: RoundSpec, names: Iterable[str]) -> Mapping[str, bytes]:
        """The boxes of this round. Raises `PeerFault` BAD_REQUEST if the key or a box of `names` is missing."""
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
        boxes, key, digest = self.require(spec, names), self._current(spec), spec.digest()
        shares = (open_box(key, boxes[name], box_context(digest, name, known.me)) for name in names)
        return _scheme(known).answer(spec.sum_params, shares)

    def close(self, task: str, round_number: int) -> None:
        """Destroy the key and the boxes of this round, if any, also on a full disk. It never gets a key again."""
        kept = self.folder.state.get(f"box-key/{task}")
        if kept is not None and int.from_bytes(kept[:_ROUND], "little") == round_number:
            self.folder.state.shorten(f"box-key/{task}", _ROUND)
            self.folder.state.drop(f"boxes/{task}")

    def _current(self, spec: RoundSpec) -> BoxKey:
        kept = self.folder.state.get(f"box-key/{spec.task}") or b""
        if len(kept) <= _ROUND or int.from_bytes(kept[:_ROUND], "little") != spec.round:
            raise PeerFault(Reason.BAD_REQUEST, f"round {spec.round} has no key here")
        return BoxKey.from_private_bytes(kept[_ROUND:])


def _scheme(known: KnownTask) -> BoxedScheme:
    if not known.scheme.boxed:
        raise PeerFault(Reason.UNEXPECTED, "this scheme has no boxes")
    return known.scheme
