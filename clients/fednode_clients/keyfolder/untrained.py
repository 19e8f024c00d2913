"""In how many rounds a client's training gave nothing to seal: for its owner, and for nobody else."""

import json
import logging
from typing import Final

from fednode.errors import StoreError
from fednode.protocol.spec import RoundSpec
from fednode.wire import canonical
from fednode_clients.keyfolder.state_files import StateFiles

log = logging.getLogger("fednode.clients")

_NAME: Final = "untrained"


def note_untrained(state: StateFiles, spec: RoundSpec, reason: str) -> None:
    """Count this round, and keep its task, its number and the reason.

    A disk that does not take the note changes nothing: what the client answers must not depend on how training went.
    """
    try:
        rounds = int(str(untrained(state).get("rounds", 0))) + 1
        note = {"untrained": spec.task, "round": spec.round, "reason": reason, "rounds": rounds}
        state.put(_NAME, canonical(note))
    except (StoreError, ValueError, TypeError) as fault:
        log.warning("could not note a round without training: %s", fault)


def untrained(state: StateFiles) -> dict[str, object]:
    """The last note: "untrained" is its task; "rounds" counts them all. Empty without one. Raises `StoreError`."""
    data = state.get(_NAME)
    return {} if data is None else dict(json.loads(data))
