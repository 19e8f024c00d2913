"""Row `ring`: masks that add up with the updates; boxes for all holders and signatures are part of every figure."""

from benchmarks.harness.timing import Stopwatch
from benchmarks.harness.worker import peak_bytes
from benchmarks.sums.cases import (
    CHECK_BOX,
    CHECK_CLIENT,
    CHECK_HEAD,
    CHECK_HOLDER,
    FOLDED,
    HOLDERS,
    THRESHOLD,
    Case,
    Figures,
    check_sum,
    some_values,
)
from benchmarks.sums.uploads import (
    HASH_BYTES,
    KEY_BYTES,
    SIGNATURE_BYTES,
    SPEC,
    BenchClient,
    Upload,
    associated,
    challenge_of,
    holder_keys,
    planned,
)
from fednode.protocol.envelope import about_check
from fednode.wire import canonical
from fednode_crypto import Sealing, SumParams, SystemRng
from fednode_crypto.identity import BoxKey, open_box
from fednode_crypto.ring.scheme import RingMask


def measure(case: Case, watch: Stopwatch) -> Figures:
    """Check that a sum opens exactly, then time each role."""
    params, keys, rng, ring = planned(case), holder_keys(), SystemRng(), RingMask()
    clients = [BenchClient.made(params, keys) for _ in range(min(FOLDED, case.clients))]
    updates = [some_values(case, number) for number in range(len(clients))]
    uploads = [client.upload(values, rng) for client, values in zip(clients, updates, strict=True)]
    total = ring.zero(params)
    for upload in uploads:
        total.absorb(upload.payload)
    answers = {point: answer(params, keys[point - 1], point, uploads) for point in range(1, THRESHOLD + 1)}
    check_sum(ring.combine(params, total, answers, SPEC), updates)
    roster = [uploads[number % len(uploads)] for number in range(case.clients)]
    fold = _Fold(params, uploads[0].payload)
    return Figures(
        bytes_up=len(uploads[0].to_bytes()),
        bytes_down=case.float_bytes + HOLDERS * (_key_bytes(case) + SIGNATURE_BYTES) + len(SPEC),
        client=watch.time(lambda: clients[0].upload(updates[0], rng)),
        node=watch.time(fold.run, before=fold.make_room),
        opening=watch.time(lambda: ring.combine(params, total, answers, SPEC)),
        holder_bytes=case.clients * _holder_part(uploads[0]) + len(answers[1]),
        holder=watch.time(lambda: answer(params, keys[0], 1, roster)),
        parts=_parts(watch, clients[0], uploads[0], case) | _check(watch, clients[0], keys[0], case),
        peak_bytes=peak_bytes(),
    )


def answer(params: SumParams, key: BoxKey, point: int, roster: list[Upload]) -> bytes:
    """Do everything a holder does: check each header's signature, open each box, add up, answer."""
    shares = []
    for upload in roster:
        upload.check()
        shares.append(open_box(key, upload.boxes[point - 1], associated(upload.sender, point)))
    return RingMask().answer(params, shares)


def _key_bytes(case: Case) -> int:
    """A client's key at one holder, the path to the root of that holder's keys, and the root."""
    return KEY_BYTES + HASH_BYTES * ((case.clients - 1).bit_length() + 1)


def _holder_part(upload: Upload) -> int:
    return KEY_BYTES + SIGNATURE_BYTES + len(upload.header) + len(upload.boxes[0])


def _parts(watch: Stopwatch, client: BenchClient, upload: Upload, case: Case) -> dict[str, float]:
    rng, values = SystemRng(), some_values(case)
    sealing = client.seal(values, rng)
    boxes = client.boxed(sealing.shares)
    check = client.checked(sealing, boxes)
    data = upload.to_bytes()
    return {
        "pack, mask and share": watch.time(lambda: client.seal(values, rng)).median,
        "boxes": watch.time(lambda: client.boxed(sealing.shares)).median,
        "hash and sign": watch.time(lambda: client.signed(sealing.payload, boxes, check)).median,
        "node: hash and check the signature": watch.time(lambda: Upload.from_bytes(data, client.params).check()).median,
    }


def _check(watch: Stopwatch, client: BenchClient, key: BoxKey, case: Case) -> dict[str, float]:
    """What the check of shares costs the client, and a holder for each client, which opens the box for it."""
    params, ring, values, rng = client.params, RingMask(), some_values(case), SystemRng()
    waiting: list[Sealing] = []
    boxes = client.boxed(client.seal(values, rng).shares)
    shown = watch.time(lambda: client.checked(waiting.pop(), boxes), lambda: waiting.append(client.seal(values, rng)))
    upload = client.upload(values, rng)

    def holder() -> None:
        share = open_box(key, upload.boxes[0], associated(upload.sender, 1))
        ring.check_share(params, share, 1, challenge_of(upload.sender, upload.boxes), upload.check_of_shares)

    return {
        CHECK_CLIENT: shown.median,
        CHECK_HOLDER: watch.time(holder).median,
        CHECK_HEAD: float(len(canonical(about_check(upload.check_of_shares))) - 1),
        CHECK_BOX: float(params.share_bytes - params.answer_bytes),
    }


class _Fold:
    """A running sum that always has room for one more payload."""

    def __init__(self, params: SumParams, payload: bytes) -> None:
        self._params, self._payload = params, payload
        self._total = RingMask().zero(params)

    def make_room(self) -> None:
        if self._total.count == self._params.summands:
            self._total = self._total.subtract(self._payload)

    def run(self) -> None:
        self._total.absorb(self._payload)
