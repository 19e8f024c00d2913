"""What a run's guarantee rests on, as its report says it: what was verified, attested and assumed.

`docs/threats.md` lists the same claims; `tests/docs/test_docs_threats.py` compares the two.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fednode.members import corrupt_holders
from fednode.protocol.spec import Terms
from fednode.reports import Claim, Claims
from fednode.reports.figures import plural
from fednode.units import UNITS
from fednode_crypto import SumParams

STRENGTH = {
    "ring": "FedNode's own arithmetic, which nobody outside has audited; it rests on ring-LWE: about 128 bits as the "
    "HomomorphicEncryption.org standard counts, 96 to 98 by core-SVP, the more cautious count",
    "bfv": "TenSEAL's BFV, a standard scheme, under FedNode's own joint key, which nobody outside has audited; it "
    "rests on ring-LWE: about 128 bits as the HomomorphicEncryption.org standard counts, 95 by core-SVP, the more "
    "cautious count",
}
"""By scheme: who wrote it, what it rests on, and its estimated strength (docs/crypto.md)."""

_HARD = {
    "ring": ("Ring-LWE is hard at width 3.2, with the sum of the masks known", f"{STRENGTH['ring']} (docs/crypto.md)"),
    "bfv": ("Ring-LWE is hard with ternary secrets", f"{STRENGTH['bfv']} (docs/crypto.md)"),
}

ONE_LIE = "one lie gives it the joint secret key, and with that every update of the task, past and to come"

_HONEST_NODE = "only for a node that follows the protocol"


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a run came: what was never done is not claimed as verified.

    `spared` counts the releases with more answers than needed to open, so that the answers could be compared.
    """

    arrived: bool
    charged: bool
    released: int
    spared: int


def adversary(params: SumParams) -> str:
    """Completes the sentence "the secure sum withstands ..."."""
    if params.scheme == "bfv":
        return (
            "a node that follows the protocol and looks at all it gets, with fewer holders than it takes to open; "
            f"not a node that lies: {ONE_LIE}"
        )
    most = corrupt_holders(params.threshold, params.holders)
    beside = f"and up to {plural(most, 'corrupt holder')}" if most else "but no corrupt holder"
    return f"a node that lies, together with any clients {beside}, as long as two of the survivors are honest"


def committee_warnings(params: SumParams) -> list[str]:
    """Weaknesses of the committee and the scheme that are known before the first round."""
    if params.scheme == "bfv":
        return [f"bfv does not withstand a node that lies: {ONE_LIE}; ring does"]
    if corrupt_holders(params.threshold, params.holders) > 0:
        return []
    chosen = f"with {params.threshold} of {params.holders} holders"
    return [
        f"{chosen} one corrupt holder is enough for a node that lies to read an update; 4 of 5 withstand two of them"
    ]


def claims(terms: Terms, params: SumParams, reached: Reached, public_inputs: Sequence[str] = ()) -> Claims:
    """The three lists for a run that came so far, and began from what is said to be public."""
    verified = [*_of_updates(reached), *_of_openings(terms, params, reached), *_of_releases(params, reached)]
    public = [Claim("What was made before the run is public", f"in no epsilon: {text}") for text in public_inputs]
    return Claims(tuple(verified), tuple(_attested(terms)), (*_assumed(terms, params, reached), *public))


def _of_updates(reached: Reached) -> Iterable[Claim]:
    if reached.arrived:
        yield Claim(
            "Every update in a sum came from an enrolled client",
            "its signature, checked by the node and by every holder that opened",
        )
        yield Claim("Every update was made for this round, model and task", "the spec digest that the client signed")
        yield Claim(
            "Every update had the one allowed size, and every number in it was in range",
            "the node, before it added the update",
        )


def _of_openings(terms: Terms, params: SumParams, reached: Reached) -> Iterable[Claim]:
    if not reached.charged:
        yield Claim("No sum was opened", "the node's own record: it asked no holder to open one")
        return
    checked = "the roster, checked by every holder"
    yield Claim(
        f"No sum of fewer than {plural(terms.min_survivors, 'update')} was opened, and none counted an update twice",
        f"{checked}; {_HONEST_NODE}" if params.scheme == "bfv" else checked,
    )
    if params.scheme == "ring":
        yield Claim(
            "Each box was the one that its client signed, and opened to a share that belongs with the client's others",
            "every holder that answered, for its own boxes",
        )
        yield Claim(
            "Whoever was excluded for a box, its client or a holder, was shown to be wrong by the key of that box",
            "before the charge: the node, and for a client also every holder that signed the final roster",
        )
        yield Claim(
            f"At least {plural(params.threshold, 'holder')} signed the final roster before the charge, and every "
            "answer is over that roster",
            "the signatures, which every holder checked before it answered",
        )
    yield Claim(
        "The charge was on disk before the holders were asked",
        "the node alone: its ledger is a chain of hashes; this binds only a node that follows the protocol",
    )
    yield Claim("No round was opened twice", "each holder's own record, on disk before it answered")


def _of_releases(params: SumParams, reached: Reached) -> Iterable[Claim]:
    if reached.charged and not reached.released:
        yield Claim("No model was released", "the node's own record: no opening led to a release")
    if not reached.released:
        return
    yield Claim("No opened sum was longer than honest updates can be", "the node, before it published the mean")
    how = ["every value that must be small in an opening was small"]
    if reached.spared:
        how.append(f"in {reached.spared} of {plural(reached.released, 'release')} the surplus answers agreed")
    if params.scheme == "bfv":
        how.append(_HONEST_NODE)
    # under bfv without a surplus answer, junk shows, but a shift by one of the answers does not: it is assumed below
    exact = params.scheme == "ring" or reached.spared
    yield Claim("What was opened is the exact sum" if exact else "What was opened is no junk", "; ".join(how))


def _attested(terms: Terms) -> Iterable[Claim]:
    code = "the client's own code: nobody else can check it"
    yield Claim(f"{UNITS[terms.unit].clipped} clipped to {terms.clip:g}", code)
    yield Claim("Each client added its share of the noise", code)
    yield Claim("Each update was computed from records at all", code)
    yield Claim(
        "Each client refused rounds below its own limits, or beyond its own epsilon over all tasks",
        "the client's own configuration and record; a member whose keys the run made has the limits that the run needs",
    )


def _assumed(terms: Terms, params: SumParams, reached: Reached) -> Iterable[Claim]:
    """The gravest first: what opens single updates, then what weakens the guarantee, then what the world rests on."""
    unit, ring = UNITS[terms.unit], params.scheme == "ring"
    yield from () if ring else _assumed_of_bfv(reached)
    yield Claim(
        f"Fewer than {params.threshold} of {params.holders} holders work together",
        "that many, with the node or the network, can open every update",
    )
    yield from _assumed_of_ring(params) if ring else ()
    yield Claim("The enrolment key is honest", "whoever has it can enrol a crowd around one client")
    yield Claim(unit.person, unit.otherwise)
    yield Claim(_colluders(terms.assumed_colluders), "if more do, less noise is secret than was charged for")
    yield Claim("The operating system's randomness is good, on every machine", "all keys, masks and noise come from it")
    yield Claim(*_HARD[params.scheme])
    yield Claim(
        "X25519, Ed25519, HKDF-SHA256 and AES-256-GCM are secure",
        "signatures, boxes and keys rest on them; a quantum computer that breaks X25519 opens recorded boxes",
    )
    yield Claim(
        "Hashes, and streams keyed by a hash, behave like random functions", "the public polynomials are made from them"
    )


def _assumed_of_ring(params: SumParams) -> Iterable[Claim]:
    enough = corrupt_holders(params.threshold, params.holders) + 1
    few = "No holder is corrupt" if enough == 1 else f"Fewer than {enough} of {params.holders} holders are corrupt"
    yield Claim(f"{few}, if the node lies", "with more it can have two sums opened, and so read one client's update")
    yield Claim("Keys and boxes that holders destroyed are gone", "whoever has them can open recorded rounds")


def _assumed_of_bfv(reached: Reached) -> Iterable[Claim]:
    yield Claim("The node follows the protocol", ONE_LIE)
    exact = reached.released - reached.spared
    if exact > 0:
        yield Claim(
            "No holder shifted a sum that had no surplus answer",
            f"{plural(exact, 'release')} had exactly as many answers as needed to open: nobody can see a shift there",
        )


def _colluders(count: int) -> str:
    if count == 0:
        return "No survivor reveals its noise"
    return f"At most {plural(count, 'survivor')} {'reveals its' if count == 1 else 'reveal their'} noise"
