"""Ctrl-C ends the run after its round; a second Ctrl-C aborts it. SIGTERM and SIGHUP end it after its round, too."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from fednode.observer import StopFlag

NOTICE = "ending the round, press Ctrl-C again to abort"


@contextlib.contextmanager
def stop_on_interrupt(stop: StopFlag, say: Callable[[str], None]) -> Iterator[None]:
    """Within the block the first SIGINT sets the flag and later ones raise KeyboardInterrupt; then all is as before.

    Python delivers signals to the main thread alone: in another thread the block changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        if stop.raised:
            raise KeyboardInterrupt
        stop.stop()
        # the signal may arrive while the run prints; Python refuses a second write into the same buffer
        with contextlib.suppress(RuntimeError):
            say(NOTICE)

    def on_ending(_number: int, _frame: FrameType | None) -> None:
        stop.stop()

    handlers = {signal.SIGINT: on_interrupt, signal.SIGTERM: on_ending, signal.SIGHUP: on_ending}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
