"""Commands and their answers over connections that each serve one exchange at a time.

A connection goes back to the others only once all its answers were read. One whose exchange ended in any other way, by
an error, an interrupt (Ctrl-C) or the end of the stack, is closed: what it was asked and not read would be the answer
to another's question, and what it was not told yet (who we are, which database) would be missing. redis-py's own pool
gives such a connection back.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

Command: TypeAlias = tuple[Any, ...]


class Exchanges:
    """Connections to one server, made by `make` when they are needed. Thread-safe.

    `answer` is what a connection raises for an answer that is an error: such a one is a reply.
    """

    def __init__(self, make: Callable[[], Any], answer: type[Exception]) -> None:
        self._make = make
        self._answer = answer
        self._idle: deque[Any] = deque()
        self._closed = False

    def run(self, commands: Sequence[Command], *, atomic: bool) -> list[Any]:
        """The replies, in order, errors as such; `atomic`: all at once or none of them. Raises what redis-py raises."""
        if not commands:
            return []
        if not atomic:
            return self.exchange(commands)
        replies = self.exchange([("MULTI",), *commands, ("EXEC",)])
        if isinstance(replies[-1], Exception):
            # EXEC only says that something before was refused
            raise next(reply for reply in replies if isinstance(reply, Exception))
        return list(replies[-1])

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """The replies, in order, errors as such."""
        connection = self._idle_one()
        if connection is None:
            connection = self._make()
        try:
            connection.send_packed_command(connection.pack_commands(commands))
            replies = [self._reply(connection) for _ in commands]
        except BaseException:
            connection.disconnect()
            raise
        self._idle.append(connection)
        if self._closed:
            self.close()
        return replies

    def nodes(self) -> "list[Exchanges]":
        """This server alone."""
        return [self]

    def close(self) -> None:
        """Close those that are not in use now, and the others once they are not."""
        self._closed = True
        with suppress(IndexError):
            while True:
                self._idle.pop().disconnect()

    def _idle_one(self) -> Any:
        try:
            connection = self._idle.pop()
        except IndexError:
            return None
        # nothing was asked: there is something to read where the server hung up
        with suppress(Exception):
            if not connection.can_read():
                return connection
        connection.disconnect()
        return None

    def _reply(self, connection: Any) -> Any:
        try:
            return connection.read_response()
        except self._answer as error:
            return error
