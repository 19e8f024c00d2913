"""Where random bits come from: a seam (`Rng`) and the one generator that real runs use (`SystemRng`)."""

import builtins
import os
import threading
from typing import NoReturn, Protocol, final, runtime_checkable

import numpy as np
from cryptography.hazmat.primitives.ciphers import CipherContext
from numpy.typing import NDArray

from fednode_crypto.hazmat.stream import ZEROS, aes_ctr

_BYTES_A_KEY = 1 << 32
_forks = [0]


def _count_fork() -> None:
    _forks[0] += 1


os.register_at_fork(after_in_child=_count_fork)


def _process() -> tuple[int, int]:
    """What tells this process from the one that it was forked from.

    A child in a new pid namespace may have its parent's number; a fork that Python does not see is not counted. Either
    alone would let a child go on with its parent's stream.
    """
    return os.getpid(), _forks[0]


@runtime_checkable
class Rng(Protocol):
    """A source of uniform, independent bits; every function that draws takes one as an argument."""

    def bytes(self, count: int) -> builtins.bytes:
        """Return `count` uniform bytes."""
        ...

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return `count` uniform 64-bit words in a fresh, writable array."""
        ...


def _drawable(count: int) -> int:
    if count < 0:
        raise ValueError("cannot draw a negative number of random values: ask for 0 or more")
    return count


class _KeyStream:
    """The stream of one process; it takes a new key whenever the old one has yielded all it may."""

    __slots__ = ("_cipher", "_left", "_lock", "owner")

    _cipher: CipherContext

    def __init__(self) -> None:
        self.owner = _process()
        self._lock = threading.Lock()
        self._left = 0

    def fill(self, out: NDArray[np.uint8]) -> None:
        view, done = out.data, 0
        with self._lock:
            while done < len(view):
                if self._left == 0:
                    self._cipher, self._left = aes_ctr(os.urandom(32), os.urandom(16)), _BYTES_A_KEY
                take = min(len(view) - done, len(ZEROS), self._left)
                self._cipher.update_into(ZEROS[:take], view[done : done + take])
                self._left -= take
                done += take


@final
class SystemRng:
    """Bits that nobody can predict: AES-256-CTR, keyed by the operating system once for each instance.

    Guarantees: the key never leaves the object (no seed, no pickle, no copy, nothing in the repr); a forked child
    re-keys before its first bit, so parent and child never share a stream, not even where both have one process number
    (pid namespaces); threads may share an instance. A key yields at most 2^32 bytes, which keeps the distance of its
    distinct blocks from uniform ones below 2^-73.
    """

    __slots__ = ("_stream",)

    def __init__(self) -> None:
        self._stream = _KeyStream()

    def bytes(self, count: int) -> builtins.bytes:
        """Return `count` uniform bytes. ValueError when `count` is negative."""
        out = np.empty(_drawable(count), dtype=np.uint8)
        self._own_stream().fill(out)
        return out.tobytes()

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return `count` uniform 64-bit words in a fresh, writable array. ValueError when `count` is negative."""
        out = np.empty(_drawable(count), dtype="<u8")
        self._own_stream().fill(out.view(np.uint8))
        return out.astype(np.uint64, copy=False)

    def _own_stream(self) -> _KeyStream:
        # a fork copies the key, and the lock as it was: both are replaced, never reused; if two threads of the
        # child get here at once, each goes on with a stream of its own
        stream = self._stream
        if stream.owner != _process():
            stream = self._stream = _KeyStream()
        return stream

    def __repr__(self) -> str:
        return "SystemRng()"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a SystemRng cannot be pickled or copied: make a new one where it is needed")
