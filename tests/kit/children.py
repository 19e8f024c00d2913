"""Forked children that tell what they found, and threads that hold locks while a process forks."""

import json
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

_SECONDS = 30.0


def in_a_child(work: Callable[[], object]) -> object:
    """What `work` returns in a forked child, as JSON; fails with the child's traceback, or where it hangs."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            said = json.dumps({"found": work()})
        except BaseException:  # noqa: BLE001 - nothing of the child may go on
            said = json.dumps({"failed": traceback.format_exc()})
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    watchdog = threading.Timer(_SECONDS, os.kill, (child, signal.SIGKILL))
    watchdog.start()
    try:
        with os.fdopen(reader, "rb") as pipe:
            told = pipe.read()
        os.waitpid(child, 0)
    finally:
        watchdog.cancel()
    assert told, "the child hangs"
    answer = json.loads(told)
    assert "failed" not in answer, answer["failed"]
    return answer["found"]


@contextmanager
def another_thread(work: Callable[[threading.Event, threading.Event], None]) -> Iterator[None]:
    """A thread that does `work` (which sets the first event, then waits for the second) for as long as the block."""
    there, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=work, args=(there, over), daemon=True)
    thread.start()
    try:
        assert there.wait(_SECONDS)
        yield
    finally:
        over.set()
        thread.join(_SECONDS)


@contextmanager
def held_elsewhere(*locks: object) -> Iterator[None]:
    """Another thread holds all of these locks."""

    def hold(there: threading.Event, over: threading.Event) -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)  # type: ignore[arg-type]
            there.set()
            over.wait(2 * _SECONDS)

    with another_thread(hold):
        yield
