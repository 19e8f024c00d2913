"""Keys in the memory of a process stay there: no core dump holds them, no other process of this user reads them."""

import ctypes
import resource
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4


def keep_keys_in_memory() -> None:
    """Forbid core dumps for this process and those that it starts; on Linux also debuggers, for this process alone.

    Call it before a key is made or read. Root can still read the memory. On Linux, files of /proc that name this
    process belong to root afterwards.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
