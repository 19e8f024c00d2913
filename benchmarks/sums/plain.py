"""Row `plain`: float32 vectors in the clear, as numpy holds them. Every ratio is taken against it."""

import numpy as np

from benchmarks.harness.timing import Stopwatch
from benchmarks.harness.worker import peak_bytes
from benchmarks.sums.cases import Case, Figures, check_sum, some_floats


def measure(case: Case, watch: Stopwatch) -> Figures:
    """Time copying out, adding, and dividing by the number of clients."""
    update = some_floats(case)
    payload = update.tobytes()
    total = np.zeros(case.dimension, dtype=np.float32)

    def fold() -> None:
        np.add(total, np.frombuffer(payload, dtype=np.float32), out=total)

    fold()
    check_sum(total, [update])
    return Figures(
        bytes_up=len(payload),
        bytes_down=case.float_bytes,
        client=watch.time(update.tobytes),
        node=watch.time(fold),
        opening=watch.time(lambda: total / case.clients),
        peak_bytes=peak_bytes(),
    )
