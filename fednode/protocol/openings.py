"""That a round was opened, said by those who opened it: the signed heads of the holders' answers.

A holder answers for a roster of at least `min_survivors` signed updates for one spec. So the answers of as many holders
as it takes to open prove that the spec, and the model it names, was not made up for one client alone.
"""

from collections.abc import Iterable, Mapping

from fednode.errors import PeerFault
from fednode.protocol.cohort import Cohort
from fednode.protocol.envelope import Signed


def opening_parts(answers: Mapping[int, Signed]) -> dict[str, bytes]:
    """Signed heads of answers by point, as named bytes: opened-1, opened-2, ..."""
    return {_name(point): signed.to_bytes() for point, signed in answers.items()}


def opened_by(parts: Mapping[str, bytes], cohort: Cohort, task: str, spec: bytes) -> frozenset[int]:
    """The points of the holders among untrusted parts that signed an answer for exactly this round.

    What is not signed, by another or about something else, does not count; nothing is raised.
    """
    return frozenset(_opened(parts, cohort, task, spec))


def _opened(parts: Mapping[str, bytes], cohort: Cohort, task: str, spec: bytes) -> Iterable[int]:
    for holder in cohort.holders:
        try:
            signed = Signed.from_bytes(parts.get(_name(holder.point), b""))
            signer, head = signed.verified(cohort), signed.head
        except PeerFault:
            continue
        if signer == holder and (head.kind, head.task, head.spec) == ("answer", task, spec):
            yield holder.point


def _name(point: int) -> str:
    return f"opened-{point}"
