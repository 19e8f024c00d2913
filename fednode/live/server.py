"""The node's end of the control socket, with bounds on everything that comes to it.

A request is at most `MOST_ASKED` bytes, an answer `MOST_ANSWERED`. There are `most` connections at once, and each has
`patience` seconds for one request and its answer. A client that breaks a bound is disconnected. Nothing that happens
here ends the run.
"""

import logging
import socketserver
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from fednode.clock import Clock
from fednode.errors import ConfigError, StoreError
from fednode.live import unix_socket
from fednode.live.bounded_server import BoundedServer
from fednode.live.handlers import RequestHandler
from fednode.live.messages import MOST_ASKED, line, refusal
from fednode.live.stats import Inspectable, Tuned

log = logging.getLogger("fednode.live")

SOCKET_NAME: Final = "control.sock"
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
        self, path: Path, stores: Mapping[str, Inspectable], clock: Clock, tuned: Callable[[Tuned], None] | None = None
    ) -> None:
        self.path = path
        self.error: StoreError | None = None
        self._handler = RequestHandler(stores, clock, path.parent.resolve().name, tuned)
        self._mark: tuple[int, int] | None = None
        self._server: _SocketServer | None = None

    @property
    def callers(self) -> int:
        """Connections that are open."""
        return 0 if self._server is None else len(self._server.deadlines)

    def __enter__(self) -> Self:
        try:
            server = _SocketServer(self.path, self._handler)
            self._mark = unix_socket.mark_of(self.path)
            server.start("fednode-live")
            self._server = server
        except (StoreError, OSError, RuntimeError) as error:
            self.error = StoreError(str(error))
            log.warning("there is no live view of this run: %s", error)
            unix_socket.remove(self.path, self._mark)
        return self

    def __exit__(self, *_: object) -> None:
        unix_socket.remove(self.path, self._mark)
        if self._server is not None:
            self._server.end()


class _SocketServer(BoundedServer, socketserver.UnixStreamServer):
    def __init__(self, path: Path, handler: RequestHandler) -> None:
        super().__init__("", _Connection, bind_and_activate=False)
        self.socket.close()
        self.socket = unix_socket.listen(path)
        self.handler = handler

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for this connection, and the same user is at its other end."""
        return super().verify_request(request, client_address) and unix_socket.is_ours(request)

    def shutdown_request(self, request: Any) -> None:
        """Close the connection; with the last one, let go of what it was fetching."""
        super().shutdown_request(request)
        if not self.deadlines:
            self.handler.forget()


class _Connection(socketserver.StreamRequestHandler):
    server: _SocketServer

    def handle(self) -> None:
        """Answer line by line until the client has gone, or is disconnected."""
        while request := self.rfile.readline(MOST_ASKED):
            if not request.endswith(b"\n"):
                if len(request) == MOST_ASKED:
                    self.wfile.write(line(refusal(ConfigError(f"a request has at most {MOST_ASKED} bytes"))))
                return
            self.wfile.write(self.server.handler.answer(request))
            self.server.renew(self.request)
            _PAUSE.wait(_PAUSE_SECONDS)
