"""Only the node of a task's cohort may ask about the task: checked where a request enters, before anything is done."""

from fednode.errors import PeerFault
from fednode.protocol.cohort import Cohort
from fednode.protocol.requests import frame_kind, read_ask
from fednode.protocol.signed_requests import SignedRequest, task_of, verify_request
from fednode.reasons import Reason
from fednode.wire import split_parts
from fednode_clients.keyfolder.evidence import note_request
from fednode_clients.keyfolder.folder import KeyFolder

_MOST_PARTS = 64


def require_authentic(folder: KeyFolder, request: SignedRequest) -> None:
    """Return if the node signed this request for this member; two specs for one round are kept as evidence.

    The node's key is in the cohort, which the enrolment key signed: that of the known task, or the one that a new task
    brings. Raises `PeerFault`: UNSIGNED_REQUEST, BAD_SIGNATURE, UNKNOWN_COHORT, UNKNOWN_TASK, RETIRED; `StoreError`.
    """
    kind, task = frame_kind(request.frame), task_of(request.seal)
    brings = kind in ("task", "key-commit")
    parts = read_ask(kind, request.frame)[1] if brings else _kept(folder, task)
    cohort = Cohort.verified_from_bytes(parts.get("cohort", b""), folder.enrolment_key)
    verify_request(request, folder.name, cohort.node)
    note_request(folder, request.seal, cohort)


def _kept(folder: KeyFolder, task: str) -> dict[str, bytes]:
    folder.tasks.require_open(task)
    kept = folder.state.get(f"task/{task}") or folder.state.get(f"key-card/{task}")
    if kept is None:
        raise PeerFault(Reason.UNKNOWN_TASK, f"{task} was never given to {folder.name}")
    return split_parts(kept, _MOST_PARTS)
