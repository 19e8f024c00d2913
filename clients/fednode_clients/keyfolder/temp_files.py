"""What a crash leaves of a file that was being written aside: it may hold a secret, and nothing ever reads it.

Whoever writes holds a shared lock on the folder meanwhile, which the system takes back when a process dies. So who gets
the folder to itself knows that every file aside in it is nobody's.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_ASIDE: Final = re.compile(r"\.[0-9a-f]{40}\.[0-9a-f]{8}")
"""Names that `fednode.disk.atomic.write_whole` gives to files on their way to a hashed name."""


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Keep `sweep` out of `folder` for the block; others may write there too. Raises `OSError`."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Remove what dead processes left aside in `folder`; nothing where somebody writes just now, or none can be told.

    At best: what cannot be removed stays, for it is in nobody's way.
    """
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for file in folder.iterdir():
                if _ASIDE.fullmatch(file.name):
                    file.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
