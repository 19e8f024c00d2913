"""Commands to a Redis or Valkey server, and the messages that its tracking sends.

Nothing waits for ever, and errors are one sentence without a password. A connection whose command failed is closed, so
that no answer is ever taken for that of another command.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from fednode.cache.backend import Closed
from fednode.cache.fork_safety import UsedAfterFork, refuse_after_fork
from fednode.cache.redis.address import RedisAddress
from fednode.cache.redis.connections import Command, Exchanges, LinkOptions, Unreachable
from fednode.clock import Clock
from fednode.errors import StoreError

if TYPE_CHECKING:
    from fednode.cache.redis.redis_py import Cluster, Tracking

_T = TypeVar("_T")


class Link:
    """Connections to one server or cluster, made when they are needed. Thread-safe."""

    def __init__(self, address: RedisAddress, options: LinkOptions, clock: Clock) -> None:
        self._address = address
        self._options = options
        self._clock = clock
        self._lock = Lock()
        self._made: Exchanges | Cluster | None = None
        self._closed = False
        self._translated = _Translated(str(address), options)
        refuse_after_fork(self, "_lock")

    @property
    def batches(self) -> bool:
        """Whether commands on several keys may be atomic: not in a cluster."""
        return not self._address.cluster

    def close(self) -> None:
        """Close all connections; a later command raises `Closed`. In a forked child it does nothing."""
        with suppress(UsedAfterFork):
            with self._lock:
                made, self._made, self._closed = self._made, None, True
            if made is not None:
                made.close()

    def require_open(self) -> None:
        """Raise `Closed` after `close`."""
        if self._closed:
            raise Closed(f"the connection to the cache server {self._address}")

    def run(self, commands: Sequence[Command], *, atomic: bool = False) -> list[Any]:
        """The answers, in order; None from a key that holds a list, a set or a hash.

        `atomic`: all commands are executed at once (in a cluster: on the keys of one slot).
        If the connection breaks or cannot be made, all are sent again after each of the pauses, so they must be safe to
        execute twice. Raises `StoreFull` if the server has no memory for one of them, else `StoreError`.
        """
        return self._attempted(partial(self._once, commands, atomic=atomic))

    def scan(self, pattern: bytes) -> Iterator[list[bytes]]:
        """The names that match, some at a time; a name may come twice."""
        for node in self._attempted(self._nodes):
            cursor, names = self._attempted(partial(self._scanned, node, 0, pattern))
            yield names
            while cursor:
                cursor, names = self._attempted(partial(self._scanned, node, cursor, pattern))
                yield names

    def remove(self, patterns: Sequence[bytes]) -> None:
        """Remove every name that matches one of these."""
        for pattern in patterns:
            for names in self.scan(pattern):
                if names:
                    self.run([("UNLINK", name) for name in names])

    def memory(self) -> list[dict[str, str]]:
        """The memory settings of each primary: from INFO, or from CONFIG GET if the user may not run INFO."""
        return [self._attempted(partial(self._memory_of, node)) for node in self._attempted(self._nodes)]

    def track(self, prefix: bytes) -> "Tracking":
        """A connection of its own, on which the server reports each change under `prefix`. Raises `StoreError`."""
        from fednode.cache.redis.redis_py import Tracking

        if self._address.cluster:
            raise StoreError("a near cache cannot follow a cluster; its copies expire after unfollowed_ttl")
        self.require_open()
        return Tracking(self._address, self._options, prefix, self._translated)

    def _attempted(self, action: Callable[[], _T]) -> _T:
        for pause in self._options.pauses:
            try:
                return action()
            except Unreachable:
                self._clock.sleep(pause)
        return action()

    def _scanned(self, node: Exchanges, cursor: int, pattern: bytes) -> tuple[int, list[bytes]]:
        with self._translated:
            (reply,) = node.exchange([("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)])
            following, names = _checked(reply)
        return int(following), names

    def _memory_of(self, node: Exchanges) -> dict[str, str]:
        from fednode.cache.redis.redis_py import may_not_run

        with self._translated:
            for command, read in ((("INFO", "memory"), _info), (("CONFIG", "GET", "maxmemory*"), _pairs)):
                (reply,) = node.exchange([command])
                if not may_not_run(reply):
                    return read(_checked(reply))
        return {}

    def _once(self, commands: Sequence[Command], *, atomic: bool) -> list[Any]:
        with self._translated:
            return [_checked(reply) for reply in self._server().run(commands, atomic=atomic)]

    def _nodes(self) -> list[Exchanges]:
        with self._translated:
            return self._server().nodes()

    def _server(self) -> "Exchanges | Cluster":
        with self._lock:
            self.require_open()
            if self._made is None:
                from fednode.cache.redis.redis_py import connect

                self._made = connect(self._address, self._options)
            return self._made


class _Translated:
    """Translates the errors of redis-py into ours, any number of times."""

    def __init__(self, server: str, options: LinkOptions) -> None:
        self._server, self._options = server, options

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            from fednode.cache.redis.redis_py import KNOWN, translation

            if isinstance(error, KNOWN):
                raise translation(error, self._server, self._options) from None


def _checked(reply: Any) -> Any:
    if isinstance(reply, Exception):
        if str(reply).startswith("WRONGTYPE"):
            return None
        raise reply
    return reply


def _info(reply: bytes) -> dict[str, str]:
    """The fields of INFO, by name."""
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _pairs(reply: list[bytes]) -> dict[str, str]:
    """The settings of CONFIG GET, by the names that INFO has for them."""
    words = [word.decode(errors="replace") for word in reply]
    return {name.replace("-", "_"): value for name, value in zip(words[::2], words[1::2], strict=True)}
