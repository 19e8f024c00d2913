"""The node's end of the control socket: one daemon thread, and bounds on everything that comes to it.

A request is at most `MOST_ASKED` bytes, an answer `MOST_ANSWERED`; `_MOST` connections at once, each with `_PATIENCE`
seconds for one request and its answer. Whoever breaks a bound is hung up on. Whatever happens here, the run goes on.
"""

import contextlib
import logging
import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

from fednode.clock import Clock
from fednode.errors import ConfigError, StoreError
from fednode.live import unix_socket as place
from fednode.live.handlers import Answers
from fednode.live.messages import MOST_ASKED, line, refusal
from fednode.live.stats import Inspectable, Tuned

log = logging.getLogger("fednode.live")

SOCKET_NAME: Final = "control.sock"
_MOST: Final = 8
_PATIENCE: Final = 10.0
_LOOK: Final = 0.25
"""Seconds after which the thread looks for late connections though nothing happens."""
_PAUSE: Final = 0.002
"""Seconds between two turns: an eager asker takes that much less from the run."""


class LiveView:
    """Serves `stores` at `path` while it is entered: `with LiveView(folder / SOCKET_NAME, stores, SystemClock()):`.

    Where no socket can be made, that is logged, `error` says why, and the run goes on without one. `stores` is looked
    at anew for each request, so it may be filled later. `clock` is the machine's: on one that skips, callers would be
    late at once. `tuned` is told, in the view's thread, of every change that was made.
    """

    def __init__(
        self,
        path: Path,
        stores: Mapping[str, Inspectable],
        clock: Clock,
        tuned: Callable[[Tuned], None] | None = None,
    ) -> None:
        self.path = path
        self.error: StoreError | None = None
        self._answers = Answers(stores, clock, path.parent.resolve().name, tuned)
        self._clock = clock
        self._listener: socket.socket | None = None
        self._mark: tuple[int, int] | None = None
        self._desk: _Desk | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    @property
    def callers(self) -> int:
        """Connections that are open."""
        return 0 if self._desk is None else self._desk.callers

    def __enter__(self) -> Self:
        try:
            self._listener = place.listen(self.path)
        except StoreError as error:
            self.error = error
            log.warning("there is no live view of this run: %s", error)
            return self
        self._mark = place.mark_of(self.path)
        self._listener.setblocking(False)
        self._desk = _Desk(self._listener, self._answers, self._clock, self._closing)
        thread = threading.Thread(target=self._desk.serve, name="fednode-live", daemon=True)
        try:
            thread.start()
            self._thread = thread
        except RuntimeError as error:
            self.error = StoreError(f"the system gives no further thread ({error})")
            log.warning("there is no live view of this run: %s", self.error)
            self.__exit__()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        place.remove(self.path, self._mark)
        if self._listener is not None:
            # wakes the thread where the system lets it; it looks by itself soon after
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            # a store that hangs must not hold the run up; the thread is a daemon
            self._thread.join(2.0)
        if self._listener is not None:
            self._listener.close()


class _Caller:
    """One connection: what it sent and was not yet answered, what it is sent and did not yet take."""

    __slots__ = ("asked", "deadline", "leaves", "reply", "socket")

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self.socket = connection
        self.deadline = deadline
        self.asked = bytearray()
        self.reply = memoryview(b"")
        self.leaves = False


class _Desk:
    """The thread's work: takes connections, reads a line, answers it, one after the other."""

    def __init__(self, listener: socket.socket, answers: Answers, clock: Clock, closing: threading.Event) -> None:
        self._listener = listener
        self._answers = answers
        self._clock = clock
        self._closing = closing
        self._callers: set[_Caller] = set()

    @property
    def callers(self) -> int:
        """Connections that are open."""
        return len(self._callers)

    def serve(self) -> None:
        """Until `closing`; raises nothing."""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._listener, selectors.EVENT_READ)
                while not self._closing.wait(_PAUSE):
                    for key, _ in selector.select(_LOOK):
                        self._attend(selector, key.data)
                    self._hang_up_late(selector)
        except Exception:
            if not self._closing.is_set():
                log.exception("the live view ended; the run goes on")
        finally:
            for caller in self._callers:
                caller.socket.close()

    def _attend(self, selector: selectors.BaseSelector, caller: _Caller | None) -> None:
        if caller is None:
            self._accept(selector)
            return
        try:
            alive = self._write(caller) if caller.reply else self._read(caller)
        except BlockingIOError:
            return
        except OSError:
            alive = False
        if not alive:
            self._hang_up(selector, caller)
            return
        wanted = selectors.EVENT_WRITE if caller.reply else selectors.EVENT_READ
        selector.modify(caller.socket, wanted, caller)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            # gone again, or no descriptor is left: the next turn sees
            return
        if len(self._callers) >= _MOST or not place.is_ours(connection):
            connection.close()
            return
        connection.setblocking(False)
        caller = _Caller(connection, self._clock.now() + _PATIENCE)
        self._callers.add(caller)
        selector.register(connection, selectors.EVENT_READ, caller)

    def _read(self, caller: _Caller) -> bool:
        """Take what came; False if the caller has gone. Each line is answered when the one before was taken."""
        received = caller.socket.recv(MOST_ASKED)
        caller.asked += received
        self._take_line(caller)
        return bool(received) or bool(caller.reply)

    def _take_line(self, caller: _Caller) -> None:
        request, newline, rest = caller.asked.partition(b"\n")
        if len(request) >= MOST_ASKED:
            words = f"a request has at most {MOST_ASKED} bytes"
            caller.reply, caller.leaves = memoryview(line(refusal(ConfigError(words)))), True
        elif newline:
            caller.asked = rest
            caller.reply = memoryview(self._answers.answer(bytes(request)))

    def _write(self, caller: _Caller) -> bool:
        """Send what it takes; False if it was the last."""
        caller.reply = caller.reply[caller.socket.send(caller.reply) :]
        if caller.reply:
            return True
        caller.deadline = self._clock.now() + _PATIENCE
        if not caller.leaves:
            self._take_line(caller)
        return not caller.leaves

    def _hang_up_late(self, selector: selectors.BaseSelector) -> None:
        now = self._clock.now()
        for caller in [caller for caller in self._callers if caller.deadline <= now]:
            self._hang_up(selector, caller)

    def _hang_up(self, selector: selectors.BaseSelector, caller: _Caller) -> None:
        with contextlib.suppress(KeyError, ValueError):
            selector.unregister(caller.socket)
        caller.socket.close()
        self._callers.discard(caller)
        if not self._callers:
            self._answers.forget()
