"""Row `ckks`: TenSEAL's CKKS as federated learning commonly sets it, 8192, [60, 40, 40], 2^40.

Clients hold the secret key; the node adds and sends the sealed sum back.
"""

from typing import Any, Final

import numpy as np
import tenseal as ts
from numpy.typing import NDArray

from benchmarks.harness.timing import Stopwatch
from benchmarks.harness.worker import peak_bytes
from benchmarks.sums.cases import Case, Figures, check_sum, some_floats

DEGREE: Final = 8192
PRIME_BITS: Final = [60, 40, 40]
SCALE: Final = 2.0**40
SLOTS: Final = DEGREE // 2
CLOSE: Final = 1e-4


def measure(case: Case, watch: Stopwatch) -> Figures:
    """Check a small sum, then time sealing, adding and decrypting."""
    own = ts.context(ts.SCHEME_TYPE.CKKS, DEGREE, coeff_mod_bit_sizes=PRIME_BITS, n_threads=1)
    own.global_scale = SCALE
    node = ts.context_from(own.serialize(save_secret_key=False), n_threads=1)
    small = some_floats(Case(2 * SLOTS + 1, 2))
    payload = _seal(own, small)
    total = _loaded(node, payload)
    _fold(node, total, payload)
    check_sum(_opened(own, _sent(total)), [small, small], tolerance=CLOSE)
    update = some_floats(case)
    payload = _seal(own, update)
    total = _loaded(node, payload)
    answer = _sent(total)
    return Figures(
        bytes_up=sum(map(len, payload)),
        bytes_down=sum(map(len, answer)),
        client=watch.time(lambda: _seal(own, update)),
        node=watch.time(lambda: _fold(node, total, payload)),
        opening=watch.time(lambda: _opened(own, answer)),
        peak_bytes=peak_bytes(),
    )


def _seal(own: Any, update: NDArray[np.float32]) -> list[bytes]:
    return [ts.ckks_vector(own, update[i : i + SLOTS]).serialize() for i in range(0, len(update), SLOTS)]


def _loaded(node: Any, payload: list[bytes]) -> list[Any]:
    return [ts.ckks_vector_from(node, piece) for piece in payload]


def _fold(node: Any, total: list[Any], payload: list[bytes]) -> None:
    for running, piece in zip(total, payload, strict=True):
        running.add_(ts.ckks_vector_from(node, piece))


def _sent(total: list[Any]) -> list[bytes]:
    return [running.serialize() for running in total]


def _opened(own: Any, total: list[bytes]) -> NDArray[Any]:
    return np.concatenate([ts.ckks_vector_from(own, piece).decrypt() for piece in total])
