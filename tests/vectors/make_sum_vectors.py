"""Writes sum_ring.json and sum_bfv.json: `python tests/vectors/make_sum_vectors.py`, tests/ and crypto/ on the path.

A change of these files is a change of what travels: old rounds and other implementations no longer fit.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from kit.crypto.bfv_payload import insecure_payload
from kit.crypto.committee import CHALLENGE, TASK, BoxedCommittee, Committee, keyed
from kit.crypto.insecure import InsecureRng

from fednode_crypto import Demand, Sealing, SumParams, params_from_dict, plan, scheme
from fednode_crypto.errors import CryptoError, WrongAnswer
from fednode_crypto.hazmat.ring import mask_block
from fednode_crypto.ring.context import public_keys, ring_context

HERE = Path(__file__).parent
CONTEXT = bytes(range(32))
CLIENTS = 3

RNG = "InsecureRng(seed): AES-256-CTR (nonce 0) keyed by SHA-256('insecure' | seed as 16 bytes, big-endian)"
MESSAGES = (
    "messages are given by length, first 8 bytes and SHA-256; words in 'a' and in 'share_check_matrix', which is "
    "(L, N) and expanded from 'challenge', are little-endian"
)
VALUES = "value i of client c (0, 1, ..): (i * i + 7 * c) mod (2 * bound + 1) - bound, 'bound' beside it"
BAD = (
    "'bad': each names the step that must refuse and the error; 'change' is made to the message named by client and "
    "holder's point: 'cut' drops bytes at the end, 'append' adds some, 'bit' flips bit b (of byte b // 8, least "
    "significant first), 'at' / 'bits' / 'value' overwrite that many bits from that bit on; of check_share, 'share_of' "
    "and 'check_of' name whose share and check are shown instead, 'check' is the change of the check"
)


def digest_of(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "head": data[:8].hex(), "sha256": hashlib.sha256(data).hexdigest()}


def values_of(params: SumParams, client: int, bound: int) -> np.ndarray:
    i = np.arange(params.dimension, dtype=np.int64)
    return (i * i + 7 * client) % (2 * bound + 1) - bound


def changed(data: bytes, change: dict[str, Any]) -> bytes:
    """`data` with the change of one bad case."""
    if not {"cut", "append", "bit", "at"} & set(change):
        return data
    if "cut" in change:
        return data[: -change["cut"]]
    if "append" in change:
        return data + bytes.fromhex(change["append"])
    number, size = int.from_bytes(data, "little"), len(data)
    if "bit" in change:
        number ^= 1 << change["bit"]
    else:
        mask = ((1 << change["bits"]) - 1) << change["at"]
        number = (number & ~mask) | change["value"] << change["at"]
    return number.to_bytes(size, "little")


class Play:
    """One case with everybody in it; `run` plays one step with one message changed."""

    def __init__(self, everyone: Committee, sealings: list[Sealing]) -> None:
        self.everyone, self.params, self.sealings = everyone, everyone.params, sealings
        self.total = everyone.summed(sealings)
        self.answers = everyone.answers(self.total, sealings)

    def run(self, step: str, change: dict[str, Any]) -> object:
        return getattr(self, f"step_{step}")(change)

    def step_params(self, change: dict[str, Any]) -> object:
        return params_from_dict({**self.params.to_dict(), **change})

    def step_add(self, change: dict[str, Any]) -> object:
        payload = changed(self.sealings[change["client"]].payload, change)
        return self.everyone.scheme.zero(self.params).add(payload)

    def step_check_share(self, change: dict[str, Any]) -> object:
        sealing, point = self.sealings[change["client"]], change["point"]
        share = changed(sealing.shares[change.get("share_of", point)], change)
        check = changed(
            self.sealings[change.get("check_of", change["client"])].check(CHALLENGE), change.get("check", {})
        )
        challenge = bytes.fromhex(change.get("challenge", CHALLENGE.hex()))
        return self.everyone.scheme.check_share(self.params, share, point, challenge, check)

    def step_answer(self, change: dict[str, Any]) -> object:
        return keyed_answer(self.everyone, changed(self.total.request(), change))

    def step_joint_key(self, change: dict[str, Any]) -> object:
        made, point = self.everyone.contributions, change["point"]
        reveals = {p: changed(c.reveal(), change) if p == point else c.reveal() for p, c in made.items()}
        return self.everyone.scheme.joint_key(self.params, TASK, reveals, {p: c.commitment for p, c in made.items()})

    def step_combine(self, change: dict[str, Any]) -> object:
        answers, total = self._answers(change), self.total
        context = bytes.fromhex(change.get("context", CONTEXT.hex()))
        if "client" in change and "payload" in change:
            total = self.everyone.summed([s for i, s in enumerate(self.sealings) if i != change["client"]])
            total.absorb(changed(self.sealings[change["client"]].payload, change["payload"]))
        return self.everyone.scheme.combine(self.params, total, answers, context)

    def _answers(self, change: dict[str, Any]) -> dict[int, bytes]:
        answers = dict(self.answers)
        if "roster" in change:
            some = [self.sealings[i] for i in change["roster"]]
            answers = self.everyone.answers(self.everyone.summed(some), some)
        if "point" in change and "answer" in change:
            answers[change["point"]] = changed(answers[change["point"]], change["answer"])
        if "share_of" in change:
            mixed = [
                s.shares[change["share_of"] if i == change["client"] else change["point"]]
                for i, s in enumerate(self.sealings)
            ]
            answers[change["point"]] = self.everyone.scheme.answer(self.params, mixed)
        return {p: a for p, a in answers.items() if p in change.get("from", answers)}


def keyed_answer(everyone: Committee, request: bytes) -> bytes:
    return everyone.scheme.answer(everyone.params, everyone.shares[1], request, InsecureRng(1))


def outcome(play: Play, step: str, change: dict[str, Any]) -> dict[str, Any]:
    """What the step says to the change: the error's name, and the points of a WrongAnswer."""
    try:
        play.run(step, change)
    except (CryptoError, ValueError) as error:
        points = {"points": list(error.points)} if isinstance(error, WrongAnswer) else {}
        return {"error": type(error).__name__, **points}
    return {"error": None}


def ring_bad(params: SumParams) -> Iterator[tuple[str, dict[str, Any]]]:
    sizes, n = [p.bit_length() for p in params.primes], params.ring_degree
    yield "params", {"shift": params.shift - 1}
    yield "params", {"lanes": params.lanes + 20}
    yield "params", {"value_bound": 1 << params.lane_bits}
    yield "add", {"client": 0, "cut": 1}
    yield "add", {"client": 0, "append": "00"}
    yield "add", {"client": 1, "at": 0, "bits": sizes[0], "value": params.primes[0]}
    yield "add", {"client": 2, "at": n * sizes[0] + 7 * sizes[1], "bits": sizes[1], "value": (1 << sizes[1]) - 1}
    size = params.share_prime.bit_length()
    yield "check_share", {"client": 0, "point": 1, "cut": 1}
    yield "check_share", {"client": 0, "point": 1, "at": 9 * size, "bits": size, "value": params.share_prime}
    of_one = {"client": 0, "point": 1}
    yield "check_share", {**of_one, "append": "00"}
    yield "check_share", {**of_one, "bit": 0}
    yield "check_share", {**of_one, "bit": n * size}
    yield "check_share", {**of_one, "bit": 8 * params.share_bytes - 1}
    yield "check_share", {**of_one, "share_of": 2}
    yield "check_share", {**of_one, "check_of": 1}
    yield "check_share", {**of_one, "challenge": CHALLENGE[::-1].hex()}
    yield "check_share", {**of_one, "challenge": CHALLENGE[:16].hex()}
    for change in ({"cut": 1}, {"append": "00"}, {"bit": 0}, {"at": 0, "bits": size, "value": params.share_prime}):
        yield "check_share", {**of_one, "check": change}
    yield "combine", {"from": list(range(1, params.threshold))}
    yield "combine", {"context": CONTEXT[::-1].hex()}
    yield "combine", {"context": ""}
    yield "combine", {"roster": [0, 1]}
    yield "combine", {"roster": [0, 1, 2, 2]}
    yield "combine", {"point": 2, "answer": {"cut": 1}}
    yield "combine", {"point": 3, "answer": {"at": 0, "bits": size, "value": params.share_prime}}
    yield "combine", {"point": 2, "answer": {"bit": 0}}
    yield "combine", {"point": 2, "answer": {"bit": 0}, "from": list(range(1, params.threshold + 1))}
    yield "combine", {"client": 1, "point": 3, "share_of": 2}
    yield "combine", {"client": 0, "payload": {"bit": 40}}


def ring_case(params: SumParams, bound: int) -> dict[str, Any]:
    """One round of scheme `ring`: client c seals with InsecureRng(c)."""
    everyone = BoxedCommittee(scheme("ring"), params)
    values = [values_of(params, c, bound) for c in range(CLIENTS)]
    sealings = [everyone.sealer.seal(v, InsecureRng(c), CONTEXT) for c, v in enumerate(values)]
    play = Play(everyone, sealings)
    opened = everyone.scheme.combine(params, play.total, play.answers, CONTEXT)
    assert np.array_equal(opened, sum(values))
    known = ring_context(params)
    a = mask_block(public_keys(params, CONTEXT), 0, known.data)
    bad = [{"step": s, "change": c, **outcome(play, s, c)} for s, c in ring_bad(params)]
    matrix = np.concatenate([mask_block((CHALLENGE,), row, known.shares) for row in range(params.check_rows)])
    return {
        "params": params.to_dict(),
        "params_digest": params.digest().hex(),
        "primes": list(params.primes),
        "share_prime": params.share_prime,
        "small": params.small,
        "context": CONTEXT.hex(),
        "challenge": CHALLENGE.hex(),
        "share_check_matrix": digest_of(matrix.astype("<u8").tobytes()),
        "a": [digest_of(row.astype("<u8").tobytes()) for row in a],
        "bound": bound,
        "clients": [
            {
                "seed": c,
                "payload": digest_of(s.payload),
                "shares": {str(p): digest_of(x) for p, x in s.shares.items()},
                "check": s.check(CHALLENGE).hex(),
            }
            for c, s in enumerate(sealings)
        ],
        "checkpoint": digest_of(play.total.to_bytes()),
        "answers": {str(p): digest_of(x) for p, x in play.answers.items()},
        "sum": {**digest_of(opened.astype("<i8").tobytes()), "first": opened[:12].tolist()},
        "bad": bad,
    }


def bfv_bad(params: SumParams) -> Iterator[tuple[str, dict[str, Any]]]:
    size, p = params.data_bits, params.primes[0]
    yield "params", {"plain_modulus": params.plain_modulus + 2 * params.ring_degree}
    yield "params", {"prime_bits": [60, 60, 60, 60]}
    yield "joint_key", {"point": 2, "bit": 5}
    yield "joint_key", {"point": 2, "cut": 1}
    yield "add", {"client": 0, "cut": 1}
    yield "add", {"client": 0, "append": "00"}
    yield "add", {"client": 1, "at": 0, "bits": size, "value": p}
    yield "answer", {"cut": 1}
    yield "answer", {"at": 3 * size, "bits": size, "value": p}
    yield "combine", {"from": list(range(1, params.threshold))}
    yield "combine", {"roster": [0, 1]}
    yield "combine", {"point": 2, "answer": {"cut": 1}}
    yield "combine", {"point": 3, "answer": {"at": 0, "bits": size, "value": p}}
    yield "combine", {"point": 2, "answer": {"bit": size - 2}}
    yield "combine", {"client": 0, "payload": {"bit": size - 2}}


def bfv_case(params: SumParams, bound: int) -> dict[str, Any]:
    """One round of scheme `bfv`: holder p contributes with InsecureRng(100 + p) and answers with InsecureRng(p)."""
    everyone = keyed(scheme("bfv"), params)
    values = [values_of(params, c, bound) for c in range(CLIENTS)]
    payloads = [insecure_payload(params, everyone.key, v, InsecureRng(c)) for c, v in enumerate(values)]
    play = Play(everyone, [Sealing(p) for p in payloads])
    opened = everyone.scheme.combine(params, play.total, play.answers)
    assert np.array_equal(opened, sum(values))
    bad = [{"step": s, "change": c, **outcome(play, s, c)} for s, c in bfv_bad(params)]
    return {
        "params": params.to_dict(),
        "params_digest": params.digest().hex(),
        "primes": list(params.primes),
        "task": TASK.hex(),
        "holders": {
            str(point): {
                "commitment": c.commitment.hex(),
                "reveal": digest_of(c.reveal()),
                "shares": {str(p): digest_of(x) for p, x in c.shares().items()},
            }
            for point, c in everyone.contributions.items()
        },
        "key_digest": everyone.key.digest().hex(),
        "bound": bound,
        "clients": [{"seed": c, "payload": digest_of(p)} for c, p in enumerate(payloads)],
        "checkpoint": digest_of(play.total.to_bytes()),
        "request": digest_of(play.total.request()),
        "answers": {str(p): digest_of(x) for p, x in play.answers.items()},
        "sum": {**digest_of(opened.astype("<i8").tobytes()), "first": opened[:12].tolist()},
        "bad": bad,
    }


def ring_document() -> dict[str, Any]:
    small = plan("ring", Demand(dimension=12, summands=4, value_bound=4_000, holders=5, threshold=4))
    blocks = plan("ring", Demand(dimension=50_000, summands=100, value_bound=204_800, holders=3, threshold=2))
    four = replace(small, dimension=9_000, ring_degree=8192)
    return {
        "what": [RNG, MESSAGES, VALUES, BAD, "client c seals with InsecureRng(c); the sum is int64, little-endian"],
        "cases": [ring_case(small, 1_000), ring_case(blocks, 2_047), ring_case(four, 1_000)],
    }


def bfv_document() -> dict[str, Any]:
    params = plan("bfv", Demand(dimension=12, summands=4, value_bound=4_000, holders=3, threshold=2))
    what = [
        RNG,
        MESSAGES,
        VALUES,
        BAD,
        "holder p contributes with InsecureRng(100 + p) and answers with InsecureRng(p)",
        "payloads are textbook BFV (kit.crypto.bfv_payload) with InsecureRng(c), since SEAL draws its own randomness",
    ]
    return {"what": what, "cases": [bfv_case(params, 1_000)]}


def main() -> None:
    for name, document in (("sum_ring.json", ring_document()), ("sum_bfv.json", bfv_document())):
        (HERE / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
