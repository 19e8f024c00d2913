"""What a run's guarantee rests on, in the words of its report: what was verified, attested, assumed; and by which sum.

`docs/threats.md` lists the same claims; `tests/docs/test_docs_threats.py` holds the two together.
"""

from dataclasses import dataclass

from fednode.protocol.spec import Terms
from fednode.reports import Claim, Claims
from fednode.reports.figures import plural
from fednode_crypto import SumParams

STRENGTH = {
    "ring": "FedNode's own arithmetic, which nobody outside has audited; it rests on ring-LWE: about 128 bits as the "
    "HomomorphicEncryption.org standard counts, 96 to 98 by core-SVP, the more cautious count",
    "bfv": "TenSEAL's BFV, a standard scheme, under FedNode's own joint key, which nobody outside has audited; it "
    "rests on ring-LWE: about 128 bits as the HomomorphicEncryption.org standard counts, 95 by core-SVP, the more "
    "cautious count",
}
"""Whose work the secure sum is, what it rests on and how strong that is (docs/crypto.md, estimated bits)."""

ONE_LIE = "one lie gives it the joint secret key, and with that every update of the task, past and to come"

_HONEST_NODE = "only for a node that follows the protocol"


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a run came: nothing counts as verified that was never done.

    `spared` counts the releases that had more answers than it takes to open, so that answers could be compared.
    """

    arrived: bool
    charged: bool
    released: int
    spared: int


def corrupt_holders(params: SumParams) -> int:
    """How many corrupt holders beside a node that lies `ring` withstands: 2t - k, less one."""
    return 2 * params.threshold - params.holders - 1


def adversary(params: SumParams) -> str:
    """What completes "the secure sum withstands", and what is out of scope."""
    if params.scheme == "bfv":
        return (
            "a node that follows the protocol and looks at all it gets, with fewer holders than it takes to open; "
            f"not a node that lies: {ONE_LIE}"
        )
    most = corrupt_holders(params)
    beside = f"and up to {plural(most, 'corrupt holder')}" if most else "but no corrupt holder"
    return f"a node that lies, together with any clients {beside}, as long as two of the survivors are honest"


def committee_warnings(params: SumParams) -> list[str]:
    """What somebody should know of the committee and the sum before the first round."""
    if params.scheme == "bfv":
        return [f"bfv does not withstand a node that lies: {ONE_LIE}; ring does"]
    if corrupt_holders(params) > 0:
        return []
    chosen = f"with {params.threshold} of {params.holders} holders"
    return [
        f"{chosen} one corrupt holder is enough for a node that lies to read an update; 4 of 5 withstand two of them"
    ]


def claims(terms: Terms, params: SumParams, reached: Reached) -> Claims:
    """The three lists for a run that came so far."""
    attested = _attested(terms, params)
    return Claims(*map(_listed, (_verified(terms, params, reached), attested, _assumed(terms, params, reached))))


def _listed(found: dict[str, str]) -> tuple[Claim, ...]:
    return tuple(Claim(what, how) for what, how in found.items())


def _verified(terms: Terms, params: SumParams, reached: Reached) -> dict[str, str]:
    found: dict[str, str] = {}
    if reached.arrived:
        found |= _of_updates()
    if reached.charged:
        found |= _of_openings(terms, params)
    if reached.released:
        return found | _of_releases(params, reached)
    if reached.charged:
        return found | {"No model was released": "the node's own record: no opening came to a release"}
    return found | {"No sum was opened": "the node's own record: no holder was asked to open one"}


def _of_updates() -> dict[str, str]:
    return {
        "Every update in a sum came from an enrolled client": "signature, checked by the node, and by every holder "
        "that opened",
        "Every update was made for this round, model and task": "spec digest under the client's signature",
        "Every update had its one size, and every number in it was in range": "the node, before it added it",
    }


def _of_openings(terms: Terms, params: SumParams) -> dict[str, str]:
    floor = f"No sum of fewer than {plural(terms.min_survivors, 'update')} was opened, and none counted one twice"
    found = {
        "The charge was on disk before the holders were asked": "the node alone: a ledger, a chain of hashes; it binds "
        "a node that follows the protocol",
        "No round was opened twice": "each holder's own record, on disk before it answers",
    }
    if params.scheme == "bfv":
        return {floor: f"roster, checked by every holder; {_HONEST_NODE}", **found}
    return {
        floor: "roster, checked by every holder",
        "Each box was the one that its client signed, and opened to what can be a share": "every holder that answered, "
        "its own boxes",
        f"{_least(params)} signed the final roster before the charge, and answers are over that roster only": "the "
        "signatures, checked by every holder before it answers",
        **found,
    }


def _least(params: SumParams) -> str:
    return f"At least {plural(params.threshold, 'holder')}"


def _of_releases(params: SumParams, reached: Reached) -> dict[str, str]:
    exact = "What was opened is the exact sum"
    spared = f"in {reached.spared} of {plural(reached.released, 'release')} the answers to spare agreed"
    small = "what has to be small in an opening was small"
    if params.scheme == "ring":
        return {exact: f"{small}; {spared}" if reached.spared else small}
    if not reached.spared:
        # junk is seen, a shift by one of the answers is not: it is assumed below
        return {"What was opened is no junk": f"{small}; {_HONEST_NODE}"}
    return {exact: f"{small}; {spared}; {_HONEST_NODE}"}


def _attested(terms: Terms, params: SumParams) -> dict[str, str]:
    code = "the client's own code: nobody can look inside"
    found = {
        f"Each record's gradient was clipped to {terms.clip:g}": code,
        "Each client added its share of the noise": code,
        "Each update was computed from records at all": code,
        "Each client refused what is below its own floor": "the client's own configuration",
    }
    if params.scheme == "ring":
        found["A box that a holder struck did not open"] = "that holder's signature: nobody else can try"
    return found


def _assumed(terms: Terms, params: SumParams, reached: Reached) -> dict[str, str]:
    return {
        _colluders(terms.assumed_colluders): "more of them know more of the noise",
        f"Fewer than {params.threshold} of {params.holders} holders work together": "that many, with the node or the "
        "network, open every update",
        **(_assumed_of_ring(params) if params.scheme == "ring" else _assumed_of_bfv(reached)),
        "X25519, Ed25519, HKDF-SHA256 and AES-256-GCM hold": "signatures, boxes and keys; a quantum computer that "
        "breaks X25519 opens boxes that were recorded",
        "A hash, and a stream keyed by one, are as good as random": "the public polynomials are made so",
        "The operating system's randomness is good, on every machine": "all keys, masks and noise come from it",
        "The enrolment key is honest": "whoever has it can enrol a crowd around one client",
        "One person's messages are one record": "somebody with several records is protected less",
    }


def _assumed_of_ring(params: SumParams) -> dict[str, str]:
    enough = corrupt_holders(params) + 1
    few = "No holder is corrupt" if enough == 1 else f"Fewer than {enough} of {params.holders} holders are corrupt"
    return {
        f"{few}, if the node lies": "with more it can have two sums opened, and so one client's update",
        "Ring-LWE is hard at width 3.2, with the sum of the masks known": f"{STRENGTH['ring']} (docs/crypto.md)",
        "Keys and boxes that holders destroyed are gone": "with them, recorded traffic of old rounds opens",
    }


def _assumed_of_bfv(reached: Reached) -> dict[str, str]:
    found = {
        "The node follows the protocol": ONE_LIE,
        "Ring-LWE is hard with ternary secrets": f"{STRENGTH['bfv']} (docs/crypto.md)",
    }
    if reached.spared < reached.released:
        found["No holder shifted a sum that had no answer to spare"] = (
            f"{plural(reached.released - reached.spared, 'release')} had exactly as many answers as it takes to open: "
            "nobody sees a shift there"
        )
    return found


def _colluders(count: int) -> str:
    if count == 0:
        return "No survivor gives its noise away"
    return f"At most {plural(count, 'survivor')} {'gives its' if count == 1 else 'give their'} noise away"
