"""Row `secagg`: the functions that Flower's SecAgg+ client and server call, as installed, at their default settings.

Timed on the client: quantize, one private mask and one mask a neighbour (`pseudo_rand_gen` and an addition each), the
reduction, `ndarray_to_bytes`. Left out, in its favour: key agreement, Shamir shares, and every control message. These
modules are private to Flower: a release may move them, and this is the one file to mend then.
"""

from typing import Any, Final

import numpy as np
from flwr.common import bytes_to_ndarray, ndarray_to_bytes
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    parameters_addition,
    parameters_mod,
    parameters_multiply,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.quantization import dequantize, quantize
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from numpy.typing import NDArray

from benchmarks.harness.timing import Stopwatch
from benchmarks.harness.worker import peak_bytes
from benchmarks.sums.cases import Case, Figures, check_sum, some_floats

CLIPPING: Final = 8.0
TARGET: Final = 1 << 22
MODULUS: Final = 1 << 32
MOST_NEIGHBOURS: Final = 100
"""Everybody is everybody's neighbour up to here; a larger cohort is a sparse graph, which is what the + stands for."""

Vectors = list[NDArray[Any]]


def neighbours(clients: int) -> int:
    """Return with how many others a client shares masks."""
    return min(clients - 1, MOST_NEIGHBOURS)


def measure(case: Case, watch: Stopwatch) -> Figures:
    """Time one mask and all the rest apart; a client's time is the rest plus one mask a neighbour and its own."""
    update, seed, pair = some_floats(case), bytes(range(32)), bytes(range(32, 64))
    masked = _masked(_quantised(update), seed)
    payload = _sent(_masked(masked, pair))
    _check(update, payload, (seed, pair))
    total = _received(payload)
    mask = watch.time(lambda: _masked(masked, pair))
    prepare, send = watch.time(lambda: _quantised(update)), watch.time(lambda: _sent(masked))
    client = prepare.plus(mask.times(neighbours(case.clients) + 1)).plus(send)
    unmask = watch.time(lambda: _unmasked(total, seed))
    return Figures(
        bytes_up=len(payload),
        bytes_down=case.float_bytes,
        client=client,
        node=watch.time(lambda: parameters_addition(total, _received(payload))),
        opening=unmask.times(case.clients).plus(watch.time(lambda: _opened(total))),
        parts={"mask": mask.median, "quantise": prepare.median, "reduce and serialise": send.median},
        peak_bytes=peak_bytes(),
    )


def _quantised(update: NDArray[np.float32]) -> Vectors:
    return [*quantize(parameters_multiply([update], 1.0), CLIPPING, TARGET)]


def _masked(vectors: Vectors, seed: bytes) -> Vectors:
    return parameters_addition(vectors, [*pseudo_rand_gen(seed, MODULUS, [v.shape for v in vectors])])


def _unmasked(vectors: Vectors, seed: bytes) -> Vectors:
    return parameters_subtraction(vectors, [*pseudo_rand_gen(seed, MODULUS, [v.shape for v in vectors])])


def _sent(vectors: Vectors) -> bytes:
    return b"".join(ndarray_to_bytes(v) for v in parameters_mod(vectors, MODULUS))


def _received(payload: bytes) -> Vectors:
    return [bytes_to_ndarray(payload)]


def _opened(vectors: Vectors) -> Vectors:
    return [*dequantize(parameters_mod(vectors, MODULUS), CLIPPING, TARGET)]


def _check(update: NDArray[np.float32], payload: bytes, seeds: tuple[bytes, ...]) -> None:
    vectors = _received(payload)
    for seed in seeds:
        vectors = _unmasked(vectors, seed)
    check_sum(_opened(vectors)[0], [update], tolerance=4 * CLIPPING / TARGET)
