"""Row `confirm`: one holder signs the final roster of a round, the step between the last exclusion and the charge.

The round is a real one, with all members present, over few values: nothing in the step depends on how many there are.
It is timed in the middle of the round, and counts only if the round then opens.
"""

from typing import Final

from benchmarks.harness.local_rounds import LocalChannel, LocalRounds, place_of, run_rounds
from benchmarks.harness.timing import Stopwatch
from benchmarks.sums.cases import HOLDERS, THRESHOLD, Case, ConfirmStep
from fednode.driver import Request
from fednode.protocol.requests import frame_kind
from fednode_clients.keyfolder.audit_log import RECORD_HEAD

_HOLDER: Final = "holder-1"


def measure(case: Case, watch: Stopwatch) -> ConfirmStep:
    """Run one round and time a holder of it when it is asked to confirm. Raises RuntimeError where it does not open."""
    found: list[ConfirmStep] = []

    def heard(channel: LocalChannel, name: str, request: Request) -> None:
        if name == _HOLDER and not found and frame_kind(request.frame) == "confirm":
            found.append(_timed(channel, request.frame, watch))

    run_rounds(LocalRounds(case.clients, case.dimension, HOLDERS, THRESHOLD), heard)
    if not found:
        raise RuntimeError("no holder was asked to confirm, so nothing was measured")
    return found[0]


def _timed(channel: LocalChannel, frame: bytes, watch: Stopwatch) -> ConfirmStep:
    holder = channel.members.holder(place_of(_HOLDER))
    record = channel.keys / _HOLDER / "record.jsonl"
    before = record.read_bytes() if record.exists() else b""
    head = holder.folder.state.get(RECORD_HEAD)

    def forget() -> None:
        # a holder only repeats what it has signed: put its record back, so that each time is the first
        record.write_bytes(before)
        if head is None:
            holder.folder.state.drop(RECORD_HEAD)
        else:
            holder.folder.state.put(RECORD_HEAD, head)

    answer = holder.handle(frame).to_bytes()
    taken = watch.time(lambda: holder.handle(frame).to_bytes(), before=forget)
    forget()
    return ConfirmStep(len(frame), len(answer), taken)
