"""Only the node of a task's cohort may ask about the task: checked where a request enters, before anything is done."""

from collections.abc import Mapping

from fednode.errors import PeerFault
from fednode.protocol.cohort import Cohort
from fednode.protocol.requests import frame_kind, read_ask
from fednode.protocol.signed_requests import SignedRequest, task_of, verify_request
from fednode.reasons import Reason
from fednode.wire import split_parts
from fednode_clients.keyfolder.evidence import note_request
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_crypto.identity import VerifyKey

_MOST_PARTS = 64
_last: dict[tuple[VerifyKey, bytes], Cohort] = {}
"""The last cohort that was verified here, by the key that signed it and its digest."""


def require_authentic(folder: KeyFolder, request: SignedRequest) -> None:
    """Return if the node signed this request for this member; two specs for one round are kept as evidence.

    The node's key is in the cohort, which the enrolment key signed: that of the known task, or the one that a new task
    brings. Raises `PeerFault`: UNSIGNED_REQUEST, BAD_SIGNATURE, UNKNOWN_COHORT, UNKNOWN_TASK, RETIRED; `StoreError`.
    """
    kind, task = frame_kind(request.frame), task_of(request.seal)
    brings = kind in ("task", "key-commit")
    cohort = _verified(folder, read_ask(kind, request.frame)[1]) if brings else _kept(folder, task)
    verify_request(request, folder.name, cohort.node)
    note_request(folder, request.seal, cohort)


def _verified(folder: KeyFolder, parts: Mapping[str, bytes]) -> Cohort:
    return Cohort.verified_from_bytes(parts.get("cohort", b""), folder.enrolment_key)


def _kept(folder: KeyFolder, task: str) -> Cohort:
    """The cohort of a task that was taken; the last one is remembered by its digest, whoever asks."""
    folder.tasks.require_open(task)
    key = (folder.enrolment_key, (folder.state.get(f"task-key/{task}") or b"")[32:64])
    if (last := _last.get(key)) is not None:
        return last
    kept = folder.state.get(f"task/{task}") or folder.state.get(f"key-card/{task}")
    if kept is None:
        raise PeerFault(Reason.UNKNOWN_TASK, f"{task} was never given to {folder.name}")
    cohort = _verified(folder, split_parts(kept, _MOST_PARTS))
    if cohort.digest() == key[1]:
        _last.clear()
        _last[key] = cohort
    return cohort
