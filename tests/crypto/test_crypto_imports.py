"""What importing the package loads, and what a holder of scheme `ring` can do without."""

import subprocess
import sys

NOT_FOR_RING = ("tenseal", "zstandard", "torch", "sklearn", "matplotlib", "flwr", "ray")
ONE_SUM = f"""
import sys
sys.modules.update(dict.fromkeys({NOT_FOR_RING}))  # None there makes an import fail
import numpy as np
from fednode_crypto import Demand, SystemRng, params_from_dict, plan, scheme
params = params_from_dict(plan("ring", Demand(3, 2, 100, 1, 1)).to_dict())
ring = scheme("ring")
sealing = ring.sealer(params).seal(np.array([1, -2, 3]), SystemRng(), b"round")
total = ring.zero(params).add(sealing.payload)
print(ring.combine(params, total, {{1: ring.answer(params, [sealing.shares[1]])}}, b"round").tolist())
"""


def printed(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_package_loads_neither_kernels_nor_tenseal() -> None:
    loaded = "import fednode_crypto, sys; print(sorted({'numba', 'tenseal', 'torch'} & set(sys.modules)))"
    assert printed(loaded) == "[]"


def test_scheme_ring_needs_no_tenseal_and_no_learning_library() -> None:
    assert printed(ONE_SUM) == "[1, -2, 3]"
