"""The source of random bits as an interface: every function that draws takes one as an argument."""

import builtins
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@runtime_checkable
class Rng(Protocol):
    """A source of uniform, independent bits."""

    def bytes(self, count: int) -> builtins.bytes:
        """Return `count` uniform bytes."""
        ...

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return `count` uniform 64-bit words in a fresh, writable array."""
        ...
