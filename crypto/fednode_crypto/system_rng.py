"""`SystemRng`: the generator of real runs."""

import builtins
import os
import threading
from typing import final

import numpy as np
from cryptography.hazmat.primitives.ciphers import CipherContext
from numpy.typing import NDArray

from fednode_crypto.hazmat.stream import ZEROS, aes_ctr
from fednode_crypto.secret import Secret

_BYTES_A_KEY = 1 << 32
_forks = [0]


def _count_fork() -> None:
    _forks[0] += 1


os.register_at_fork(after_in_child=_count_fork)


def _process() -> tuple[int, int]:
    """Return what differs between this process and the one it was forked from.

    Neither part is enough alone: a child in a new pid namespace may have its parent's process id, and a fork made
    outside Python is not counted.
    """
    return os.getpid(), _forks[0]


def _drawable(count: int) -> int:
    if count < 0:
        raise ValueError("cannot draw a negative number of random values: ask for 0 or more")
    return count


class _KeyStream:
    """The key stream of one process. It takes a new key after `_BYTES_A_KEY` bytes."""

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
class SystemRng(Secret):
    """Unpredictable bits: AES-256-CTR, keyed from the operating system once for each instance.

    Guarantees: the key never leaves the object (no seed, pickle, copy or repr). A forked child takes a new key before
    its first bit, so parent and child never share a stream, even if both have the same process id (pid namespaces).
    Threads may share an instance. A key yields at most 2^32 bytes, which keeps its blocks, all distinct, within a
    distance of 2^-73 from uniform ones.
    """

    __slots__ = ("_stream",)

    def __init__(self) -> None:
        self._stream = _KeyStream()

    def bytes(self, count: int) -> builtins.bytes:
        """Return `count` uniform bytes. ValueError if `count` is negative."""
        out = np.empty(_drawable(count), dtype=np.uint8)
        self._own_stream().fill(out)
        return out.tobytes()

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return `count` uniform 64-bit words in a fresh, writable array. ValueError if `count` is negative."""
        out = np.empty(_drawable(count), dtype="<u8")
        self._own_stream().fill(out.view(np.uint8))
        return out.astype(np.uint64, copy=False)

    def _own_stream(self) -> _KeyStream:
        # A fork copies the key, and the lock in whatever state it was: replace both. If two threads of the child get
        # here at once, each makes a stream, one is kept in `_stream`, and both draw from fresh keys.
        stream = self._stream
        if stream.owner != _process():
            stream = self._stream = _KeyStream()
        return stream
