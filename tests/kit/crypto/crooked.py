"""Clients whose boxes are wrong, and holders that say so of good ones."""

from collections.abc import Callable, Mapping
from hashlib import sha256

import numpy as np
from kit.cohort import TASK, Conduct, FakeCohort
from kit.crypto.insecure import InsecureRng

from fednode.driver import Request
from fednode.protocol.boxkeys import ClientKeys, box_context, box_name, client_indices, share_challenge
from fednode.protocol.envelope import Envelope, Topic, about_check
from fednode.protocol.requests import read_spec
from fednode.protocol.spec import RoundSpec
from fednode.wire import canonical
from fednode_crypto.encoding import from_bytes, to_bytes
from fednode_crypto.identity import seal_box
from fednode_crypto.ring.context import ring_context

Boxes = dict[int, bytes]


def crooked(
    shares: Callable[[RoundSpec, Boxes], Mapping[int, bytes]] = lambda _, own: own,
    boxes: Callable[[Boxes], Mapping[int, bytes]] = lambda own: own,
) -> Conduct:
    """A client that changes its shares before it boxes them, or its boxes before it signs them, and answers the
    challenge as well as it can. What it seals is zero."""

    def conduct(cohort: FakeCohort, name: str, request: Request) -> list[bytes]:
        spec, parts = read_spec("round", request.frame)
        keys = ClientKeys.from_parts(parts, cohort.cohort).verified(cohort.cohort, Topic(spec.task, spec.round), name)
        values, digest = np.zeros(cohort.size.dimension, dtype=np.int64), spec.digest()
        own = cohort.scheme.sealer(spec.sum_params).seal(values, InsecureRng(2), digest)
        cohort.plain[name] = values
        dealt = shares(spec, dict(own.shares))
        sealed = boxes(
            {p: seal_box(key, dealt[p], box_context(digest, name, holder)) for p, (holder, key) in keys.items()}
        )
        hashes = {point: sha256(box).digest() for point, box in sealed.items()}
        about = about_check(own.check(share_challenge(digest, name, hashes)))
        attached = {box_name(point): box for point, box in sealed.items()}
        topic = Topic(spec.task, spec.round, digest)
        return [cohort.folder(name).signer.write("update", topic, own.payload, about, attached).to_bytes()]

    return conduct


def moved(spec: RoundSpec, share: bytes, by: int, coefficient: int = 7) -> bytes:
    """A share with one coefficient off."""
    field = ring_context(spec.sum_params).masked
    numbers = from_bytes(share, field)
    numbers[..., coefficient] = (numbers[..., coefficient] + np.uint64(by)) % field.q[0]
    return to_bytes(numbers, field)


def another_secret(*points: int) -> Callable[[RoundSpec, Boxes], Boxes]:
    """Shares of another secret for these holders."""
    return lambda spec, own: own | {point: moved(spec, own[point], 1, point) for point in points}


def higher_degree(spec: RoundSpec, own: Boxes) -> Boxes:
    """Shares of a polynomial of degree t in one coefficient."""
    prime, degree = spec.sum_params.share_prime, spec.sum_params.threshold
    return {point: moved(spec, share, pow(point, degree, prime)) for point, share in own.items()}


CHEATS: dict[str, tuple[Conduct, str]] = {
    "one coefficient for one holder": (crooked(another_secret(3)), "crooked-share"),
    "two holders' shares of another secret": (crooked(another_secret(3, 4)), "crooked-share"),
    "a higher degree": (crooked(higher_degree), "crooked-share"),
    "no share inside": (crooked(lambda _, own: own | {2: bytes(len(own[2]))[:-1] + b"\xff"}), "crooked-share"),
    "a box of junk": (crooked(boxes=lambda own: own | {5: bytes(len(own[5]))}), "bad-box"),
}
"""What a client may do to its boxes, and what it is named for."""


def key_of(cohort: FakeCohort, holder: str, spec: RoundSpec, client: str) -> bytes:
    """The secret key of one box."""
    seed = cohort.holder(holder)._boxes._current(spec)
    return seed.key(client_indices(cohort.cohort)[client]).private_bytes()


def complaining(victim: str, secret: bytes | None = None) -> Conduct:
    """A holder that strikes `victim` without cause and shows the true key of its box, or `secret`."""

    def conduct(cohort: FakeCohort, name: str, request: Request) -> list[bytes]:
        told = Envelope.from_bytes(cohort.speak(name, request), 1 << 20)
        spec, _ = read_spec("boxes", request.frame)
        shown = key_of(cohort, name, spec, victim) if secret is None else secret
        topic = Topic(TASK, spec.round, spec.digest())
        body = canonical({"struck": {victim: shown.hex()}})
        return [cohort.folder(name).signer.write("checked", topic, body, told.head.about).to_bytes()]

    return conduct
