"""The node's end of the control socket, with bounds on everything that comes to it.

A request is at most `MOST_ASKED` bytes, an answer `MOST_ANSWERED`. There are `_MOST` connections at once, and each has
`_PATIENCE` seconds for a request to arrive and for an answer to leave. A client that breaks a bound is disconnected.
Nothing that happens here ends the run.
"""

import contextlib
import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from fednode.clock import Clock
from fednode.errors import ConfigError, StoreError
from fednode.live import unix_socket
from fednode.live.handlers import RequestHandler
from fednode.live.messages import MOST_ASKED, line, refusal
from fednode.live.stats import Inspectable, Tuned

log = logging.getLogger("fednode.live")

SOCKET_NAME: Final = "control.sock"
_MOST: Final = 8
_PATIENCE: Final = 10.0
_LOOK: Final = 0.05
"""Seconds that the end of the view may take."""
_PAUSE: Final = threading.Event()
_PAUSE_SECONDS: Final = 0.002
"""Seconds between two answers to one client, so that an eager client leaves the processor to the run."""


class LiveView:
    """Serves `stores` at `path` inside its block: `with LiveView(folder / SOCKET_NAME, stores, SystemClock()):`.

    Where no socket can be made, that is logged, `error` says why, and the run goes on without one. `stores` is looked
    at anew for each request, so it may be filled later. `clock` dates the changes that are made; `tuned` is called with
    each of them, in one of the view's threads.
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
        self._handler = RequestHandler(stores, clock, path.parent.resolve().name, tuned)
        self._mark: tuple[int, int] | None = None
        self._server: _SocketServer | None = None

    @property
    def callers(self) -> int:
        """Connections that are open."""
        return 0 if self._server is None else len(self._server.connections)

    def __enter__(self) -> Self:
        try:
            listener = unix_socket.listen(self.path)
            self._mark = unix_socket.mark_of(self.path)
            self._server = _SocketServer(listener, self._handler)
        except StoreError as error:
            self.error = error
            log.warning("there is no live view of this run: %s", error)
            return self
        threading.Thread(target=self._server.serve_forever, args=(_LOOK,), name="fednode-live", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        unix_socket.remove(self.path, self._mark)
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            # a thread that waits for a store that hangs is not waited for: it is a daemon
            for connection in tuple(self._server.connections):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class _SocketServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A thread for each connection; all of them end with the process."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, handler: RequestHandler) -> None:
        super().__init__("", _Connection, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.handler = handler
        self.connections: set[socket.socket] = set()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for this connection, and the same user is at its other end."""
        del client_address
        return len(self.connections) < _MOST and unix_socket.is_ours(request)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Count the connection from the moment that it is let in."""
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close the connection; with the last one, let go of what it was fetching."""
        self.connections.discard(request)
        super().shutdown_request(request)
        if not self.connections:
            self.handler.forget()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log it: one client's error is nothing to the others, or to the run."""
        del request, client_address
        log.exception("a connection to the live view ended with an error")


class _Connection(socketserver.StreamRequestHandler):
    server: _SocketServer
    timeout = _PATIENCE

    def handle(self) -> None:
        """Answer line by line until the client has gone, or takes too long."""
        with contextlib.suppress(OSError):
            while request := self.rfile.readline(MOST_ASKED):
                if not request.endswith(b"\n"):
                    if len(request) == MOST_ASKED:
                        self.wfile.write(line(refusal(ConfigError(f"a request has at most {MOST_ASKED} bytes"))))
                    return
                self.wfile.write(self.server.handler.answer(request))
                _PAUSE.wait(_PAUSE_SECONDS)
