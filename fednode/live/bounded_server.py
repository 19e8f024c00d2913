"""What the node's two servers have in common: bounds on connections, and nothing that ends the run."""

import contextlib
import logging
import math
import socket
import socketserver
import sys
import threading
from typing import Any, Final

from fednode.clock import SystemClock

log = logging.getLogger("fednode.live")

_LOOK: Final = 0.05
"""Seconds between two looks at the deadlines, and the most that the end of a server takes."""
_CLOCK: Final = SystemClock()


class BoundedServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """At most `most` connections at once, a daemon thread each. One whose deadline has passed is disconnected.

    That ends every wait that its thread is in. `deadlines` holds each open connection.
    """

    daemon_threads = True
    block_on_close = False
    most = 8
    patience = 10.0
    """Seconds from the start of a connection, or from the last `renew`, to its deadline."""

    def start(self, name: str) -> None:
        """Serve in a thread. Raises `RuntimeError`, with the socket closed, if the system starts no further thread."""
        self.deadlines: dict[socket.socket, float] = {}
        self._thread = threading.Thread(target=self.serve_forever, args=(_LOOK,), name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self.server_close()
            raise

    def end(self) -> None:
        """Stop serving and disconnect. A thread that waits for a store that hangs is not waited for: it is a daemon."""
        self.shutdown()
        self.server_close()
        self._thread.join()
        self._disconnect(math.inf)

    def service_actions(self) -> None:
        """Disconnect whoever is late. The server's thread calls this after each `_LOOK` and each new connection."""
        self._disconnect(_CLOCK.now())

    def _disconnect(self, now: float) -> None:
        for connection, deadline in tuple(self.deadlines.items()):
            if deadline <= now:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection. Where no descriptor is left it stays in the queue: pause, or the loop would spin."""
        try:
            return super().get_request()
        except OSError:
            _CLOCK.sleep(_LOOK)
            raise

    def verify_request(self, *_: Any) -> bool:
        """Whether there is room for one more connection."""
        return len(self.deadlines) < self.most

    def renew(self, connection: socket.socket) -> None:
        """Give the connection `patience` seconds from now."""
        self.deadlines[connection] = _CLOCK.now() + self.patience

    def process_request(self, request: Any, client_address: Any) -> None:
        """Count the connection from the moment that it is let in."""
        self.renew(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close the connection."""
        self.deadlines.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, *_: Any) -> None:
        """Log it: one client's error is nothing to the others, or to the run."""
        if not isinstance(sys.exc_info()[1], OSError):
            log.exception("a connection ended with an error")
