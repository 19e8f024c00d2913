"""Commands and their answers over connections that each serve one exchange at a time.

A connection is used again only once all its answers were read. After any error or interrupt it is closed: an answer
that was not read would be taken for that of the next command, and redis-py may not have authenticated yet. redis-py's
own pool would use such a connection again.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from fednode.cache.backend import is_number
from fednode.errors import ConfigError, StoreError

Command: TypeAlias = tuple[Any, ...]


class Unreachable(StoreError):
    """There is no connection, or it broke: another attempt may help."""


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """Seconds to wait for one answer, between attempts to reach the server, and before trying a full one again.

    Raises `ConfigError` for a value that is not a number of seconds.
    """

    timeout: float = 5.0
    pauses: tuple[float, ...] = (0.05, 0.2, 0.8)
    retry_after: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.pauses, (tuple, list)):
            raise ConfigError(f"the pauses between attempts are {self.pauses!r}; give a tuple of seconds")
        for seconds in (self.timeout, self.retry_after, *self.pauses):
            if not is_number(seconds) or not 0 < seconds < 3600:
                raise ConfigError(
                    f"a wait of {seconds!r} s for the cache server; give more than 0 and less than 3600 seconds"
                )


class Exchanges:
    """Connections to one server, made by `make` when they are needed. Thread-safe.

    `answer` is the exception that a connection raises for an error that the server answered: that is a reply.
    """

    def __init__(self, make: Callable[[], Any], answer: type[Exception]) -> None:
        self._make = make
        self._answer = answer
        self._idle: deque[Any] = deque()
        self._closed = False

    def run(self, commands: Sequence[Command], *, atomic: bool) -> list[Any]:
        """The replies, in order, errors among them; `atomic`: all commands at once. Raises the errors of redis-py."""
        if not commands:
            return []
        if not atomic:
            return self.exchange(commands)
        replies = self.exchange([("MULTI",), *commands, ("EXEC",)])
        if isinstance(replies[-1], Exception):
            # the error of EXEC only says that a command before it was refused
            raise next(reply for reply in replies if isinstance(reply, Exception))
        return list(replies[-1])

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """The replies, in order, errors among them."""
        connection = self._taken()
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
        """Close the idle connections now, and each of the others after its exchange."""
        self._closed = True
        with suppress(IndexError):
            while True:
                self._idle.pop().disconnect()

    def _taken(self) -> Any:
        """An idle connection that is still open, or a new one."""
        with suppress(IndexError):
            connection = self._idle.pop()
            # no answer is due: there is something to read only if the server closed the connection
            with suppress(Exception):
                if not connection.can_read():
                    return connection
            connection.disconnect()
        return self._make()

    def _reply(self, connection: Any) -> Any:
        try:
            return connection.read_response()
        except self._answer as error:
            return error
