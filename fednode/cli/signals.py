"""Ctrl-C: the first asks the run to end its round, the second aborts. SIGTERM and SIGHUP ask, too."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from fednode.observer import StopFlag

NOTICE = "ending the round, press Ctrl-C again to abort"


@contextlib.contextmanager
def stop_on_interrupt(stop: StopFlag, say: Callable[[str], None]) -> Iterator[None]:
    """Within the block SIGINT raises the flag once and KeyboardInterrupt from then on; afterwards all is as before.

    Python delivers signals to the main thread alone: in another thread the block changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        if stop.raised:
            raise KeyboardInterrupt
        stop.stop()
        # the handler may cut into a print of the run's own, and a second one into the same buffer is refused
        with contextlib.suppress(RuntimeError):
            say(NOTICE)

    def on_ending(_number: int, _frame: FrameType | None) -> None:
        # whoever ends the process wants it to end once: the round is ended, reports are written, keys are removed
        stop.stop()

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, on_interrupt),
        signal.SIGTERM: signal.signal(signal.SIGTERM, on_ending),
        signal.SIGHUP: signal.signal(signal.SIGHUP, on_ending),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
