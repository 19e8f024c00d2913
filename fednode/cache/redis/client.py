"""Commands to a Redis or Valkey server, and the messages that its tracking sends. Only this module knows redis-py.

Nothing waits for ever, and errors are one sentence without a password. A connection whose command failed is closed, so
that no answer is ever taken for that of another command.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from fednode.cache.backend import Closed, StoreFull, is_number
from fednode.cache.fork_safety import UsedAfterFork, refuse_after_fork
from fednode.cache.redis.address import RedisAddress
from fednode.cache.redis.connections import Command, Exchanges
from fednode.clock import Clock
from fednode.errors import ConfigError, StoreError

if TYPE_CHECKING:
    import redis

_T = TypeVar("_T")


class WrongType(Enum):
    """The type of `WRONG_TYPE`."""

    WRONG_TYPE = "wrong type"


WRONG_TYPE: Final = WrongType.WRONG_TYPE
"""The answer if a key holds a list, a set or a hash."""


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


class Link:
    """Connections to one server or cluster, made when they are needed. Thread-safe."""

    def __init__(self, address: RedisAddress, options: LinkOptions, clock: Clock) -> None:
        self._address = address
        self._options = options
        self._clock = clock
        self._lock = Lock()
        self._made: _Server | None = None
        self._closed = False
        refuse_after_fork(self, "_lock")

    def __repr__(self) -> str:
        return f"Link({self._address})"

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
        """The answers, in order. `atomic`: all commands are executed at once (in a cluster: on the keys of one slot).

        If the connection breaks or cannot be made, all are sent again after each of the pauses, so they must be safe to
        execute twice. Raises `StoreFull` if the server has no memory for one of them, else `StoreError`.
        """
        return self._attempted(lambda: self._once(commands, atomic=atomic))

    def scan(self, pattern: bytes) -> Iterator[list[bytes]]:
        """The names that match, some at a time; a name may come twice."""
        for node in self._attempted(self._nodes):
            cursor, names = self._attempted(partial(self._scanned, node, 0, pattern))
            yield names
            while cursor:
                cursor, names = self._attempted(partial(self._scanned, node, cursor, pattern))
                yield names

    def memory(self) -> list[dict[str, object]]:
        """The memory settings of each primary: from INFO, or from CONFIG GET if the user may not run INFO."""
        return [self._attempted(partial(self._memory_of, node)) for node in self._attempted(self._nodes)]

    def track(self, prefix: bytes) -> "Tracking":
        """A connection of its own, on which the server reports each change under `prefix`. Raises `StoreError`."""
        if self._address.cluster:
            raise StoreError("a near cache cannot follow a cluster; its copies expire after unfollowed_ttl")
        self.require_open()
        with self._translated():
            client = _client(self._address, self._options)
            arguments = {**client.connection_pool.connection_kwargs, "protocol": 3}
            connection = client.connection_pool.connection_class(**arguments)
            try:
                connection.connect()
                connection._parser.set_invalidation_push_handler(lambda message: message)
                connection.send_command("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", prefix)
                connection.read_response()
            except BaseException:
                connection.disconnect()
                raise
        return Tracking(connection, self._translated())

    def _attempted(self, action: Callable[[], _T]) -> _T:
        for pause in self._options.pauses:
            try:
                return action()
            except _Unreachable:
                self._clock.sleep(pause)
        return action()

    def _scanned(self, node: Exchanges, cursor: int, pattern: bytes) -> tuple[int, list[bytes]]:
        with self._translated():
            (reply,) = node.exchange([("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)])
            following, names = self._checked(reply)
        return int(following), names

    def _memory_of(self, node: Exchanges) -> dict[str, object]:
        import redis

        with self._translated():
            for command, read in ((("INFO", "memory"), _info), (("CONFIG", "GET", "maxmemory*"), _pairs)):
                (reply,) = node.exchange([command])
                if not isinstance(reply, redis.exceptions.NoPermissionError):
                    return read(self._checked(reply))
        return {}

    def _once(self, commands: Sequence[Command], *, atomic: bool) -> list[Any]:
        with self._translated():
            made = self._server()
            replies = made.run(commands, atomic=atomic)
            return [self._checked(reply) for reply in replies]

    def _checked(self, reply: Any) -> Any:
        if isinstance(reply, Exception):
            if str(reply).startswith("WRONGTYPE"):
                return WRONG_TYPE
            raise reply
        return reply

    def _nodes(self) -> list[Exchanges]:
        with self._translated():
            return self._server().nodes()

    def _server(self) -> "_Server":
        with self._lock:
            self.require_open()
            if self._made is None:
                client = _client(self._address, self._options)
                self._made = _Cluster(client) if self._address.cluster else _exchanges(client)
            return self._made

    def _translated(self) -> "_Translated":
        return _Translated(str(self._address), self._options)


class _Server(Protocol):
    """One server, or a cluster."""

    def run(self, commands: Sequence[Command], *, atomic: bool) -> list[Any]:
        """The replies, in order; an error that the server answered is a reply too."""
        ...

    def nodes(self) -> list[Exchanges]:
        """Each primary."""
        ...

    def close(self) -> None:
        """Let the connections go."""
        ...


class _Cluster:
    """A cluster: redis-py finds the node of a key."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, commands: Sequence[Command], *, atomic: bool) -> list[Any]:
        pipeline = self._client.pipeline(transaction=atomic)
        try:
            for command in commands:
                pipeline.execute_command(*command)
            return list(pipeline.execute(raise_on_error=False))
        finally:
            # closes a connection that an error left in the pipeline
            with suppress(Exception):
                pipeline.reset()

    def nodes(self) -> list[Exchanges]:
        return [_exchanges(self._client.get_redis_connection(node)) for node in self._client.get_primaries()]

    def close(self) -> None:
        self._client.close()


class Tracking:
    """Names that changed on the server, as they change. For one thread; `close` may come from another."""

    def __init__(self, connection: Any, translated: "_Translated") -> None:
        self._connection = connection
        self._translated = translated

    def wait(self, seconds: float) -> tuple[bytes, ...] | None:
        """The names in the next message; () if none comes in `seconds`; None if everything may have changed.

        Raises `StoreError` if the connection is gone.
        """
        import redis

        with self._translated:
            try:
                message = self._connection.read_response(push_request=True, timeout=seconds, disconnect_on_error=False)
            except redis.exceptions.TimeoutError:
                return ()
            except (AttributeError, ValueError):
                # redis-py raises these if another thread closed the connection meanwhile
                raise redis.exceptions.ConnectionError("closed") from None
        if not isinstance(message, list) or len(message) != 2 or message[0] != b"invalidate" or message[1] is None:
            return None
        return tuple(message[1])

    def close(self) -> None:
        """Close the connection; a `wait` in another thread raises `StoreError`."""
        with suppress(Exception):
            self._connection.disconnect()


class _Unreachable(StoreError):
    """There is no connection, or it broke: another attempt may help."""


class _Translated:
    """Translates the errors of redis-py into ours: one sentence, without the command."""

    def __init__(self, server: str, options: LinkOptions) -> None:
        self._server = server
        self._options = options

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        import redis

        # cluster errors are not RedisErrors; a host name that cannot be encoded is a UnicodeError
        known = (redis.exceptions.RedisError, redis.exceptions.RedisClusterException, OSError, UnicodeError)
        if isinstance(error, known):
            raise self._translate(error) from None

    def _translate(self, error: Exception) -> StoreError:
        from redis import exceptions as known

        if isinstance(error, known.RedisClusterException):
            return self._translate_cluster(error)
        reason = _reason(error)
        if isinstance(error, known.OutOfMemoryError):
            return StoreFull(
                f"the cache server {self._server} is at its maxmemory; raise it, or remove keys there",
                self._options.retry_after,
            )
        if isinstance(error, (known.AuthenticationError, known.AuthorizationError, known.NoPermissionError)):
            return StoreError(
                f"the cache server {self._server} refuses this user ({reason}); check user, password and its ACL"
            )
        if isinstance(error, known.TimeoutError):
            return StoreError(
                f"the cache server {self._server} did not answer within {self._options.timeout:g} s; check its load "
                "and whether its port uses TLS as the address says, or raise the timeout"
            )
        if isinstance(error, known.ResponseError) and not isinstance(error, _redirections()):
            return StoreError(f"the cache server {self._server} refused a command ({reason}); see its log")
        return _Unreachable(
            f"could not reach the cache server {self._server} ({reason}); check that it runs, its address and its TLS"
        )

    def _translate_cluster(self, error: Exception) -> StoreError:
        from redis import exceptions as known

        cause = error.__cause__
        if isinstance(cause, (known.RedisError, known.RedisClusterException, OSError, UnicodeError)):
            return self._translate(cause)
        if isinstance(error.__context__, (known.NoPermissionError, known.AuthenticationError)):
            return self._translate(error.__context__)
        if "not enabled" in str(error):
            return StoreError(
                f"the cache server {self._server} is in no cluster; give the address of a cluster node, or do not "
                "ask for a cluster"
            )
        return _Unreachable(
            f"the cluster of the cache server {self._server} is not whole ({_reason(error)}); see its CLUSTER INFO"
        )


def _redirections() -> tuple[type[Exception], ...]:
    from redis import exceptions as known

    return (known.ClusterDownError, known.TryAgainError, known.MovedError, known.AskError, known.ReadOnlyError)


def _reason(error: Exception) -> str:
    # redis-py puts the command, with a part of the value, before it
    return str(error).rpartition("caused error: ")[2][:200] or type(error).__name__


def _info(reply: bytes) -> dict[str, object]:
    """The fields of INFO, by name."""
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _pairs(reply: list[bytes]) -> dict[str, object]:
    """The settings of CONFIG GET, by name."""
    return {name.decode(errors="replace"): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def _exchanges(client: Any) -> Exchanges:
    """Connections of our own to the server of a redis-py client, which only says how to make them."""
    import redis

    pool = client.connection_pool
    return Exchanges(lambda: pool.connection_class(**pool.connection_kwargs), redis.exceptions.ResponseError)


def _client(address: RedisAddress, options: LinkOptions) -> Any:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    shared: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": options.timeout,
        "socket_connect_timeout": options.timeout,
        # attempts are made in `Link`, by a clock that tests can move
        "retry": Retry(NoBackoff(), 3 if address.cluster else 0),
        "credential_provider": _credentials(address),
        # without CLIENT SETINFO, which needs a right of its own; redis-py before 7 has other names for it
        **({"driver_info": None} if hasattr(redis, "DriverInfo") else {"lib_name": None, "lib_version": None}),
    }
    if address.socket is None:
        shared |= {"host": address.host, "port": address.port, **_tls(address)}
    if address.cluster:
        # redis-py resolves the name localhost, and certificates name no address; it does not know it in capitals
        named = {"localhost": "LOCALHOST"}
        shared["host"] = named.get(address.host, address.host)
        return redis.RedisCluster(address_remap=lambda place: (named.get(place[0], place[0]), place[1]), **shared)
    where: dict[str, Any] = {"unix_socket_path": str(address.socket)} if address.socket else {}
    return redis.Redis(db=address.db, **where, **shared)


def _tls(address: RedisAddress) -> dict[str, Any]:
    if address.tls is None:
        return {}
    files = address.tls
    return {
        "ssl": True,
        "ssl_ca_certs": str(files.ca) if files.ca else None,
        "ssl_certfile": str(files.certificate) if files.certificate else None,
        "ssl_keyfile": str(files.key) if files.key else None,
        "ssl_check_hostname": True,
    }


def _credentials(address: RedisAddress) -> "redis.CredentialProvider | None":
    import redis

    if address.password is None:
        return None
    given = (address.user, address.password) if address.user else (address.password,)

    class _Credentials(redis.CredentialProvider):
        """Keeps the password out of the reprs of redis-py."""

        def get_credentials(self) -> Any:
            return given

        def __repr__(self) -> str:
            return "credentials"

    return _Credentials()
