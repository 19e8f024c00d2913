"""The keys of the boxes: fresh for every round, one for each client, signed by their holders, destroyed when the round
is opened.

A holder derives the keys of all clients from one seed and signs the root of a Merkle tree over them (Merkle 1987). So
each client is sent its own key and the path to the root, and a holder can show the secret key of one box and of no
other. Leaf i of the tree is the key of client i, in the order of the cohort.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fednode.errors import PeerFault
from fednode.protocol.cohort import Cohort, Member
from fednode.protocol.envelope import Envelope, Head, Signed, Topic, parts_of_holders
from fednode.reasons import Reason
from fednode.wire import Fields, canonical, digest
from fednode_crypto import CryptoError
from fednode_crypto.identity import BoxPublicKey
from fednode_crypto.params import MOST_HOLDERS

BOX_KEY = "box-key"
KEY_BYTES = 32

Levels = tuple[tuple[bytes, ...], ...]
"""A Merkle tree: the hashes of the leaves first, the root last."""


def key_tree(keys: Sequence[bytes]) -> Levels:
    """Return the tree over one key or more. A node without a neighbour is paired with itself."""
    level = tuple(digest("box-key-leaf", key) for key in keys)
    levels = [level]
    while len(level) > 1:
        pairs = zip(level[::2], (*level[1::2], level[-1]), strict=False)
        level = tuple(digest("box-key-node", left, right) for left, right in pairs)
        levels.append(level)
    return tuple(levels)


def about_keys(tree: Levels) -> dict[str, object]:
    """Return the fields of a signed head under the keys of this tree."""
    return {"root": tree[-1][0].hex()}


def client_indices(cohort: Cohort) -> Mapping[str, int]:
    """Return the place of each client among the keys of a holder, by name."""
    return cohort.indices


def key_digest(heads: Mapping[int, Signed]) -> bytes:
    """Return 32 bytes that identify the keys under these signed heads, by point; they are part of the round's spec."""
    return digest("box-keys", *(heads[point].to_bytes() for point in sorted(heads)))


@dataclass(frozen=True, slots=True)
class ClientKey:
    """One holder's key for one client, and the hashes that lead from it to the root that the holder signed."""

    signed: Signed
    key: bytes
    path: bytes = field(repr=False)

    def to_bytes(self) -> bytes:
        """Return the key, the path and the signed head."""
        return self.key + self.path + self.signed.to_bytes()

    @staticmethod
    def from_bytes(data: bytes, clients: int) -> "ClientKey":
        """Undo `to_bytes` for a cohort of so many clients; nothing is verified yet. Raises `PeerFault("malformed")`."""
        size = KEY_BYTES * (1 + (clients - 1).bit_length())
        return ClientKey(Signed.from_bytes(data[size:]), data[:KEY_BYTES], data[KEY_BYTES:size])

    def verified(self, cohort: Cohort, point: int, topic: Topic, index: int) -> tuple[Member, BoxPublicKey]:
        """Return the holder at `point` and its key, if it signed this key for client `index` and this round.

        Raises `PeerFault`: "bad-box-key", "stranger" or "bad-signature".
        """
        member, root = _signed_root(self.signed, cohort, point, topic)
        node = digest("box-key-leaf", self.key)
        for at in range(0, len(self.path), 32):
            neighbour = self.path[at : at + 32]
            node = digest("box-key-node", *((neighbour, node) if index & 1 else (node, neighbour)))
            index >>= 1
        if node != root:
            raise PeerFault(Reason.BAD_BOX_KEY, f"{member.name} signed another key for this client")
        return member, _public(member, self.key)


def _signed_root(signed: Signed, cohort: Cohort, point: int, topic: Topic) -> tuple[Member, bytes]:
    """The holder and the root that it signed for this round."""
    member, head = signed.verified_holder(cohort, point, Reason.BAD_BOX_KEY), signed.head
    if (head.kind, head.topic) != (BOX_KEY, topic):
        raise PeerFault(Reason.BAD_BOX_KEY, f"{member.name} signed other keys, not those of round {topic.round}")
    return member, Fields(head.about).only("root").octets("root", 32)


def _public(member: Member, key: bytes) -> BoxPublicKey:
    try:
        return BoxPublicKey(key)
    except (ValueError, CryptoError) as error:
        raise PeerFault(Reason.BAD_BOX_KEY, f"{member.name} signed bytes that are not a key") from error


@dataclass(frozen=True, slots=True)
class HolderKeys:
    """All keys of one holder, verified: `keys` in the order of the cohort's clients, and the signed root over them."""

    signed: Signed
    keys: tuple[bytes, ...] = field(repr=False)
    tree: Levels = field(repr=False)

    @staticmethod
    def verified(envelope: Envelope, cohort: Cohort, point: int, topic: Topic) -> "HolderKeys":
        """Return the keys, if the holder at `point` signed one for each client, for this round.

        Raises `PeerFault`: "bad-box-key", "stranger" or "bad-signature".
        """
        member, root = _signed_root(envelope.signed, cohort, point, topic)
        body, count = envelope.body, len(cohort.clients)
        if len(body) != KEY_BYTES * count:
            raise PeerFault(Reason.BAD_BOX_KEY, f"{len(body)} bytes of keys for {count} clients")
        keys = tuple(body[at : at + KEY_BYTES] for at in range(0, len(body), KEY_BYTES))
        for key in keys:
            _public(member, key)
        tree = key_tree(keys)
        if tree[-1][0] != root:
            raise PeerFault(Reason.BAD_BOX_KEY, f"{member.name} signed the root of other keys")
        return HolderKeys(envelope.signed, keys, tree)

    def of(self, index: int) -> ClientKey:
        """Return the key of client `index` with its path."""
        path = (level[min(place ^ 1, len(level) - 1)] for level, place in self._places(index))
        return ClientKey(self.signed, self.keys[index], b"".join(path))

    def _places(self, index: int) -> list[tuple[tuple[bytes, ...], int]]:
        return [(level, index >> depth) for depth, level in enumerate(self.tree[:-1])]


@dataclass(frozen=True, slots=True)
class BoxKeys:
    """What the node has: the keys of each holder that gave them, by Shamir point, and each client's place in them."""

    holders: Mapping[int, HolderKeys] = field(repr=False)
    indices: Mapping[str, int] = field(repr=False)

    @property
    def points(self) -> frozenset[int]:
        """The holders that gave keys."""
        return frozenset(self.holders)

    @property
    def heads(self) -> dict[int, Signed]:
        """What each holder signed."""
        return {point: keys.signed for point, keys in self.holders.items()}

    def digest(self) -> bytes:
        """Return 32 bytes that identify all these keys."""
        return key_digest(self.heads)

    def parts_of(self, client: str) -> dict[str, bytes]:
        """Return what this client is sent, as named parts: box-key-1, box-key-2, ..."""
        index = self.indices[client]
        return {f"{BOX_KEY}-{point}": keys.of(index).to_bytes() for point, keys in self.holders.items()}


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """What one client has: its own key at each holder that gave one, by Shamir point."""

    keys: Mapping[int, ClientKey] = field(repr=False)

    def digest(self) -> bytes:
        """Return 32 bytes that identify all keys under these signed heads."""
        return key_digest({point: key.signed for point, key in self.keys.items()})

    @staticmethod
    def from_parts(parts: Mapping[str, bytes], cohort: Cohort) -> "ClientKeys":
        """Return the keys among untrusted parts, not verified yet. Raises `PeerFault("malformed")`."""
        count = len(cohort.clients)
        found = parts_of_holders(BOX_KEY, parts, cohort)
        return ClientKeys({point: ClientKey.from_bytes(data, count) for point, data in found.items()})

    def verified(self, cohort: Cohort, topic: Topic, client: str) -> dict[int, tuple[Member, BoxPublicKey]]:
        """Return holder and key by point, if each holder signed this key for this client and round.

        Raises `PeerFault`: "bad-box-key", "stranger" or "bad-signature".
        """
        index = client_indices(cohort)[client]
        return {point: key.verified(cohort, point, topic, index) for point, key in self.keys.items()}


def box_name(point: int) -> str:
    """Return the name of the attachment that is the box for the holder at this point."""
    return f"box-{point}"


def share_challenge(spec_digest: bytes, client: str, boxes: Mapping[int, bytes]) -> bytes:
    """Return the challenge of a client's check: 32 bytes that depend on the SHA-256 of each of its boxes, by point."""
    points = [bytes([point]) + boxes[point] for point in sorted(boxes)]
    return digest("share-check", spec_digest, client.encode("utf-8"), *points)


def box_hashes(head: Head) -> dict[int, bytes]:
    """Return the SHA-256 of each box that an update's head names, by point. Raises `PeerFault("malformed")`."""
    attached = head.attached()
    points = range(1, MOST_HOLDERS + 1)
    return {point: attached[box_name(point)] for point in points if box_name(point) in attached}


def box_context(spec_digest: bytes, client: str, holder: Member) -> bytes:
    """Return the associated data of a box, so that it opens for this round, client, holder and point only."""
    return canonical({"spec": spec_digest.hex(), "client": client, "holder": holder.name, "point": holder.point})
