"""Secure sums that are not secure, keyed and boxed: whole protocols, integers in the clear. Never outside tests."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from fednode_crypto import NotEnoughShares, Overflow, Rng, Sealing, SumParams, Tampered, WrongAnswer
from fednode_crypto.interfaces import Contribution, HolderShare, JointKey, SealedSum, Sealer
from fednode_crypto.packing import checked_values
from fednode_crypto.secret import Secret

_COUNT = 4
_TAG = 32
_TAGS = 1 << (8 * _TAG)
_CHECK = 16
_CHECKS = 1 << (8 * _CHECK)


def _hash(*parts: bytes) -> bytes:
    return hashlib.sha256(b"|".join(parts)).digest()


def _same_points(got: Mapping[int, bytes], params: SumParams) -> None:
    points = set(range(1, params.holders + 1))
    if not set(got) <= points:
        raise Tampered("something comes from nobody")
    if points - set(got):
        raise NotEnoughShares("a holder is missing")


@dataclass(frozen=True, slots=True, repr=False)
class InsecureContribution:
    context: bytes
    point: int
    nonce: bytes
    holders: int

    def __reduce__(self) -> str:
        raise TypeError("secret")

    @property
    def commitment(self) -> bytes:
        return _hash(bytes([self.point]), self.context, self.nonce)

    def reveal(self) -> bytes:
        return self.nonce

    def shares(self) -> Mapping[int, bytes]:
        return {p: bytes([p]) + self.context for p in range(1, self.holders + 1)}

    def private_bytes(self) -> bytes:
        return self.context + bytes([self.point]) + self.nonce


@dataclass(frozen=True, slots=True)
class InsecureKey:
    params: SumParams
    context: bytes
    sum_of_nonces: bytes

    def digest(self) -> bytes:
        return _hash(self.context, self.sum_of_nonces)

    def to_bytes(self) -> bytes:
        return self.sum_of_nonces


@dataclass(frozen=True, slots=True, repr=False)
class InsecureShare:
    params: SumParams
    context: bytes
    point: int

    def __reduce__(self) -> str:
        raise TypeError("secret")

    def private_bytes(self) -> bytes:
        return self.context + bytes([self.point])


@dataclass(frozen=True, slots=True)
class InsecureSealer:
    params: SumParams

    def seal(self, values: NDArray[np.int64], rng: Rng, context: bytes = b"") -> Sealing:
        payload = _in_clear(checked_values(values, self.params), 0, self.params)
        # under parameters of `ring` a node waits for a check of this size
        return Sealing(payload, {}, lambda _: bytes(self.params.check_bytes))


@dataclass(slots=True, repr=False)
class InsecureCheck(Secret):
    params: SumParams
    tag: int
    challenge: bytes | None = None

    def check(self, challenge: bytes) -> bytes:
        if self.challenge not in (None, challenge):
            raise ValueError("another challenge")
        self.challenge, answer = challenge, (self.tag + _mark(challenge)) % _CHECKS
        return answer.to_bytes(_CHECK, "little").ljust(self.params.check_bytes, b"\0")


@dataclass(frozen=True, slots=True)
class InsecureBoxedSealer:
    params: SumParams

    def seal(self, values: NDArray[np.int64], rng: Rng, context: bytes = b"") -> Sealing:
        values, tag = checked_values(values, self.params), int.from_bytes(rng.bytes(_TAG), "little")
        payload = _in_clear(values, (tag + _mark(context)) % _TAGS, self.params)
        shares = {p: _tagged(tag * p, self.params) for p in range(1, self.params.holders + 1)}
        return Sealing(payload, shares, InsecureCheck(self.params, tag).check)


def _tagged(tag: int, params: SumParams) -> bytes:
    return (tag % _TAGS).to_bytes(_TAG, "little").ljust(params.share_bytes, b"\0")


def _mark(context: bytes) -> int:
    if not context:
        raise ValueError("the round's context is missing")
    return int.from_bytes(_hash(context), "little")


def _width(params: SumParams) -> int:
    return -(-params.lane_bits // 8)


def _in_clear(values: NDArray[np.int64], tag: int, params: SumParams) -> bytes:
    octets = values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, : _width(params)]
    return (octets.tobytes() + tag.to_bytes(_TAG, "little")).ljust(params.payload_bytes, b"\0")


def _from_clear(payload: bytes, params: SumParams) -> tuple[NDArray[np.int64], int]:
    used = params.dimension * _width(params)
    if len(payload) != params.payload_bytes or any(payload[used + _TAG :]):
        raise Tampered("the sealed update has not the size it must have")
    octets = np.zeros((params.dimension, 8), dtype=np.uint8)
    octets[:, 8 - _width(params) :] = np.frombuffer(payload[:used], dtype=np.uint8).reshape(params.dimension, -1)
    values = octets.reshape(-1).view("<i8").astype(np.int64) >> (64 - 8 * _width(params))
    return values, int.from_bytes(payload[used : used + _TAG], "little")


@dataclass(slots=True, eq=False)
class InsecureSum:
    params: SumParams
    count: int
    values: NDArray[np.int64]
    tag: int = 0

    def absorb(self, payload: bytes) -> None:
        if self.count == self.params.summands:
            raise Overflow("the sum is full")
        values, tag = _from_clear(payload, self.params)
        self.values, self.tag, self.count = self.values + values, (self.tag + tag) % _TAGS, self.count + 1

    def add(self, payload: bytes) -> Self:
        total = type(self)(self.params, self.count, self.values, self.tag)
        total.absorb(payload)
        return total

    def merge(self, other: Self) -> Self:
        if self.params != other.params:
            raise ValueError("other parameters")
        if self.count + other.count > self.params.summands:
            raise Overflow("the sum is full")
        tag = (self.tag + other.tag) % _TAGS
        return type(self)(self.params, self.count + other.count, self.values + other.values, tag)

    def subtract(self, payload: bytes) -> Self:
        if self.count == 0:
            raise ValueError("nothing to subtract")
        values, tag = _from_clear(payload, self.params)
        return type(self)(self.params, self.count - 1, self.values - values, (self.tag - tag) % _TAGS)

    def request(self) -> bytes:
        if self.count == 0:
            raise ValueError("nothing to open")
        return _hash(self.values.tobytes()).ljust(self.params.request_bytes, b"\0")[: self.params.request_bytes]

    def to_bytes(self) -> bytes:
        head = self.params.digest() + self.count.to_bytes(_COUNT, "little") + self.tag.to_bytes(_TAG, "little")
        data = head + self.values.astype("<i8").tobytes()
        return data + hashlib.sha256(data).digest()

    @classmethod
    def from_bytes(cls, params: SumParams, data: bytes) -> Self:
        start = 32 + _COUNT + _TAG
        data, digest = data[:-32], data[-32:]
        if (
            data[:32] != params.digest()
            or len(data) != start + 8 * params.dimension
            or digest != hashlib.sha256(data).digest()
        ):
            raise Tampered("not a sum under these parameters")
        values = np.frombuffer(data, dtype="<i8", offset=start).astype(np.int64)
        count, tag = data[32 : 32 + _COUNT], data[32 + _COUNT : start]
        return cls(params, int.from_bytes(count, "little"), values, int.from_bytes(tag, "little"))

    def opened(self, answers: Mapping[int, bytes], right: Mapping[int, bytes]) -> NDArray[np.int64]:
        """The sum, when every answer is the right one."""
        if len(answers) < self.params.threshold:
            raise NotEnoughShares("too few answers")
        if not set(answers) <= set(right):
            raise Tampered("an answer from nobody")
        wrong = [p for p, a in answers.items() if a != right[p]]
        if wrong:
            raise WrongAnswer("the answers do not open this sum", wrong)
        if np.abs(self.values).max() > self.params.value_bound:
            raise Tampered("the opened sum has values that no honest updates add up to")
        return self.values.copy()


def _checked_sum(total: SealedSum, params: SumParams) -> InsecureSum:
    if not isinstance(total, InsecureSum) or total.params != params or total.count == 0:
        raise ValueError("nothing to open")
    return total


class InsecureScheme:
    """What both kinds share: the running sum in the clear."""

    def zero(self, params: SumParams) -> SealedSum:
        return InsecureSum(params, 0, np.zeros(params.dimension, dtype=np.int64))

    def restore_sum(self, params: SumParams, data: bytes) -> SealedSum:
        return InsecureSum.from_bytes(params, data)

    def check_answer(self, params: SumParams, answer: bytes) -> None:
        if len(answer) != params.answer_bytes:
            raise Tampered("not an answer")


class InsecurePlainSum(InsecureScheme):
    """Implements `KeyedScheme` under any parameters: same sizes, same refusals, nothing hidden."""

    name = "insecure-plain"
    boxed: Literal[False] = False

    def contribute(self, params: SumParams, task: bytes, point: int, rng: Rng) -> InsecureContribution:
        if not 1 <= point <= params.holders:
            raise ValueError("a holder's point is 1 to k")
        return InsecureContribution(_hash(params.digest(), task), point, rng.bytes(32), params.holders)

    def restore_contribution(self, params: SumParams, task: bytes, private: bytes) -> Contribution:
        if len(private) != 65 or private[:32] != _hash(params.digest(), task):
            raise Tampered("not this task's contribution")
        return InsecureContribution(private[:32], private[32], private[33:], params.holders)

    def joint_key(
        self, params: SumParams, task: bytes, reveals: Mapping[int, bytes], commitments: Mapping[int, bytes]
    ) -> InsecureKey:
        _same_points(reveals, params)
        _same_points(commitments, params)
        context = _hash(params.digest(), task)
        for point, nonce in reveals.items():
            if _hash(bytes([point]), context, nonce) != commitments[point]:
                raise Tampered(f"holder {point} revealed something else")
        return InsecureKey(params, context, _hash(*(reveals[p] for p in sorted(reveals))))

    def join(self, params: SumParams, task: bytes, shares: Mapping[int, bytes]) -> InsecureShare:
        _same_points(shares, params)
        context = _hash(params.digest(), task)
        if any(s[1:] != context for s in shares.values()) or len(set(shares.values())) != 1:
            raise Tampered("not this task's shares")
        return InsecureShare(params, context, shares[1][0])

    def restore_share(self, params: SumParams, task: bytes, private: bytes) -> InsecureShare:
        if len(private) != 33 or private[:32] != _hash(params.digest(), task):
            raise Tampered("not this task's share")
        return InsecureShare(params, private[:32], private[32])

    def sealer(self, params: SumParams, key: JointKey | None = None) -> Sealer:
        if not isinstance(key, InsecureKey) or key.params != params:
            raise ValueError("another key")
        return InsecureSealer(params)

    def answer(self, params: SumParams, share: HolderShare, request: bytes, rng: Rng) -> bytes:
        if not isinstance(share, InsecureShare) or share.params != params:
            raise ValueError("another share")
        if len(request) != params.request_bytes:
            raise Tampered("not a request")
        return _answer(params, share.point, request)

    def combine(
        self, params: SumParams, total: SealedSum, answers: Mapping[int, bytes], context: bytes = b""
    ) -> NDArray[np.int64]:
        plain = _checked_sum(total, params)
        right = {p: _answer(params, p, plain.request()) for p in range(1, params.holders + 1)}
        return plain.opened(answers, right)


def _answer(params: SumParams, point: int, request: bytes) -> bytes:
    return (bytes([point]) + _hash(request)).ljust(params.answer_bytes, b"\0")


def _share(params: SumParams, share: bytes) -> bytes:
    if len(share) != params.share_bytes or any(share[_TAG:]):
        raise Tampered("not a share")
    return share


class InsecureBoxedSum(InsecureScheme):
    """Implements `BoxedScheme` under small parameters of `ring`: same sizes, same refusals, nothing hidden."""

    name = "insecure-boxed"
    boxed: Literal[True] = True

    def sealer(self, params: SumParams, key: JointKey | None = None) -> Sealer:
        if key is not None:
            raise ValueError("there is no joint key")
        if params.payload_bytes < params.dimension * _width(params) + _TAG or params.share_bytes < _TAG:
            raise ValueError("values in the clear do not fit these parameters: take fewer of them")
        return InsecureBoxedSealer(params)

    def check_share(self, params: SumParams, share: bytes, point: int, challenge: bytes, check: bytes) -> None:
        tag = int.from_bytes(check[:_CHECK], "little") - _mark(challenge)
        shared = int.from_bytes(_share(params, share)[:_CHECK], "little")
        if len(check) != params.check_bytes or any(check[_CHECK:]) or shared != tag * point % _CHECKS:
            raise Tampered("not a share of this check")

    def answer(self, params: SumParams, shares: Iterable[bytes]) -> bytes:
        tags = []
        for share in shares:
            _share(params, share)
            if len(tags) == params.summands:
                raise Overflow("too many for one roster")
            tags.append(int.from_bytes(share[:_TAG], "little"))
        if not tags:
            raise ValueError("a roster of nobody")
        return _tagged(sum(tags), params)[: params.answer_bytes]

    def combine(
        self, params: SumParams, total: SealedSum, answers: Mapping[int, bytes], context: bytes = b""
    ) -> NDArray[np.int64]:
        plain = _checked_sum(total, params)
        tag = plain.tag - plain.count * _mark(context)
        return plain.opened(
            answers, {p: _tagged(tag * p, params)[: params.answer_bytes] for p in range(1, params.holders + 1)}
        )
