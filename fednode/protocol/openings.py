"""Proof that a round was opened: the signed heads of the holders' answers.

A holder answers for a roster of at least `min_survivors` signed updates for one spec. So answers of t holders prove
that the spec, and the model that it names, were not made up for one client alone.
"""

from collections.abc import Mapping
from contextlib import suppress

from fednode.errors import PeerFault
from fednode.protocol.cohort import Cohort
from fednode.protocol.envelope import Signed, numbered, parts_of_holders
from fednode.reasons import Reason

_PREFIX = "opened"


def opening_parts(answers: Mapping[int, Signed]) -> dict[str, bytes]:
    """Return the signed heads of answers, by point, as named parts: opened-1, opened-2, ..."""
    return numbered(_PREFIX, answers)


def opened_by(parts: Mapping[str, bytes], cohort: Cohort, task: str, spec: bytes) -> frozenset[int]:
    """Return the points of the holders among untrusted parts that signed an answer for exactly this round.

    A part that is unsigned, signed by another member or about another round is ignored, not an error.
    """
    found = set()
    for point, data in parts_of_holders(_PREFIX, parts, cohort).items():
        with suppress(PeerFault):
            signed = Signed.from_bytes(data)
            signed.verified_holder(cohort, point, Reason.STRANGER)
            if (signed.head.kind, signed.head.task, signed.head.spec) == ("answer", task, spec):
                found.add(point)
    return frozenset(found)
