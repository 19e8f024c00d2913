"""Row `ckks` of `fednode bench sum`: TenSEAL's CKKS as federated learning commonly sets it, 8192, [60, 40, 40], 2^40.

Clients hold the secret key; the node adds and sends the sealed sum back.
"""

from typing import Any

import numpy as np
import tenseal as ts

from benchmarks.harness.timing import Stopwatch
from benchmarks.harness.worker import peak_bytes
from benchmarks.sums.cases import Case, Figures, check_sum, some_floats
from fednode.clock import SystemClock

DEGREE = 8192
PRIME_BITS = [60, 40, 40]
SCALE = 2.0**40
SLOTS = DEGREE // 2
CLOSE = 1e-4


def work(asked: dict[str, Any]) -> dict[str, Any]:
    """Measure the case."""
    case = Case.from_dict(asked)
    return measure(case, Stopwatch(SystemClock(), case.repeats)).to_dict()


def _contexts() -> tuple[Any, Any]:
    """The clients' context with the secret key, and the node's without."""
    own = ts.context(ts.SCHEME_TYPE.CKKS, DEGREE, coeff_mod_bit_sizes=PRIME_BITS, n_threads=1)
    own.global_scale = SCALE
    return own, ts.context_from(own.serialize(save_secret_key=False), n_threads=1)


def _seal(own: Any, update: np.ndarray) -> list[bytes]:
    return [ts.ckks_vector(own, update[i : i + SLOTS]).serialize() for i in range(0, len(update), SLOTS)]


def _fold(node: Any, total: list[Any], payload: list[bytes]) -> None:
    for running, piece in zip(total, payload, strict=True):
        running.add_(ts.ckks_vector_from(node, piece))


def _opened(own: Any, total: list[bytes]) -> np.ndarray:
    return np.concatenate([ts.ckks_vector_from(own, piece).decrypt() for piece in total])


def _check_sum(own: Any, node: Any) -> None:
    update = some_floats(Case(2 * SLOTS + 1, 2))
    payload = _seal(own, update)
    total = [ts.ckks_vector_from(node, piece) for piece in payload]
    _fold(node, total, payload)
    check_sum(_opened(own, [running.serialize() for running in total]), [update, update], tolerance=CLOSE)


def measure(case: Case, watch: Stopwatch) -> Figures:
    """Check a sum, then time sealing, adding and decrypting."""
    own, node = _contexts()
    _check_sum(own, node)
    update = some_floats(case)
    payload = _seal(own, update)
    total = [ts.ckks_vector_from(node, piece) for piece in payload]
    answer = [running.serialize() for running in total]
    return Figures(
        bytes_up=sum(map(len, payload)),
        bytes_down=sum(map(len, answer)),
        client=watch.time(lambda: _seal(own, update)),
        node=watch.time(lambda: _fold(node, total, payload)),
        opening=watch.time(lambda: _opened(own, answer)),
        peak_bytes=peak_bytes(),
    )
