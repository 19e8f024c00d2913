"""Proof that a node asked about two specs of one round: both of its signatures, kept for the member's owner.

The signature of each of the last rounds is in `state/`; a pair is a file in `evidence/`, which outlives the task.
Whoever holds the cohort file can check it: it names the node's key.
"""

import json
from dataclasses import dataclass, field
from typing import Final

from fednode.disk.atomic import write_whole
from fednode.disk.private_folder import make_private
from fednode.errors import PeerFault, StoreError
from fednode.protocol.cohort import Cohort
from fednode.protocol.envelope import NO_SPEC, Signed
from fednode.reasons import Reason
from fednode.wire import canonical
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.state_files import hashed
from fednode_crypto import CryptoError
from fednode_crypto.identity import VerifyKey

_FOLDER: Final = "evidence"
_ROUNDS: Final = 256
"""Rounds of which a signature is kept: one for each rest of the round's number."""

_MOST: Final = 100
"""Most pairs: a node that goes on does not fill the member's disk."""


@dataclass(frozen=True, slots=True)
class TwoSpecs:
    """Two requests that the node signed for one round, with different specs. `cohort` is the digest of the list."""

    node: VerifyKey
    cohort: bytes
    requests: tuple[Signed, Signed] = field(repr=False)

    def verified(self) -> "TwoSpecs":
        """Return self if the node signed both, for one round with two specs. Raises `PeerFault`."""
        for signed in self.requests:
            signed.verified_by(self.node)
        first, second = (signed.head.topic for signed in self.requests)
        if (first.task, first.round) != (second.task, second.round) or first.spec == second.spec:
            raise PeerFault(Reason.UNSIGNED_REQUEST, "the two requests do not contradict each other")
        return self


def note_request(folder: KeyFolder, seal: bytes, cohort: Cohort) -> None:
    """Remember a verified signature of this cohort's node, and keep a pair if it contradicts an earlier one.

    Raises `StoreError`.
    """
    signed = Signed.from_bytes(seal)
    topic, name = signed.head.topic, f"seal/{signed.head.task}/{signed.head.round % _ROUNDS}"
    if topic.spec == NO_SPEC:
        return
    kept = folder.state.get(name)
    before = None if kept is None else Signed.from_bytes(kept)
    if before is None or before.head.round != topic.round:
        folder.state.put(name, seal)
    elif before.head.spec != topic.spec:
        _keep(folder, TwoSpecs(cohort.node, cohort.digest(), (before, signed)))


def evidence(folder: KeyFolder) -> list[TwoSpecs]:
    """The pairs in this folder, each verified. Raises `StoreError` for a file that proves nothing."""
    found = []
    for file in sorted((folder.path / _FOLDER).glob("*.json")):
        try:
            entry = json.loads(file.read_bytes())
            first, second = (Signed.from_bytes(bytes.fromhex(text)) for text in entry["requests"])
            pair = TwoSpecs(VerifyKey(bytes.fromhex(entry["node"])), bytes.fromhex(entry["cohort"]), (first, second))
            found.append(pair.verified())
        except (OSError, ValueError, TypeError, KeyError, CryptoError, PeerFault) as error:
            raise StoreError(f"{file} is damaged and proves nothing; put it back from a copy, or remove it") from error
    return found


def _keep(folder: KeyFolder, pair: TwoSpecs) -> None:
    """Write the first contradiction of this round, if there is room."""
    place, head = folder.path / _FOLDER, pair.requests[0].head
    file = place / f"{hashed(head.task)}-{head.round}.json"
    if file.exists() or (place.exists() and sum(1 for _ in place.iterdir()) >= _MOST):
        return
    make_private(place)
    requests = [signed.to_bytes().hex() for signed in pair.requests]
    entry = {"node": pair.node.raw.hex(), "cohort": pair.cohort.hex(), "requests": requests}
    write_whole(file, canonical(entry), 0o600)
