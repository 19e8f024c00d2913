"""The only module that knows redis-py; imported with the first connection. Its errors become one sentence."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

import redis
from redis import exceptions as known
from redis.backoff import NoBackoff
from redis.retry import Retry

from fednode.cache.backend import StoreFull
from fednode.cache.redis.address import RedisAddress
from fednode.cache.redis.connections import Command, Exchanges, LinkOptions, Unreachable
from fednode.errors import StoreError

KNOWN = (known.RedisError, known.RedisClusterException, OSError, UnicodeError)
"""Errors of a connection: clusters have their own; a host name that cannot be encoded is a UnicodeError."""
_REFUSED_USER = (known.AuthenticationError, known.AuthorizationError, known.NoPermissionError)
_REDIRECTIONS = (known.ClusterDownError, known.TryAgainError, known.MovedError, known.AskError, known.ReadOnlyError)


class Cluster:
    """A cluster: redis-py finds the node of a key. As `Exchanges`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, commands: Sequence[Command], *, atomic: bool) -> list[Any]:
        """As `Exchanges.run`; commands that are atomic are on the keys of one slot."""
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
        """Each primary."""
        return [_exchanges(self._client.get_redis_connection(node)) for node in self._client.get_primaries()]

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


class Tracking:
    """Names that changed on the server, as they change. For one thread; `close` may come from another."""

    def __init__(
        self, address: RedisAddress, options: LinkOptions, prefix: bytes, translated: AbstractContextManager[None]
    ) -> None:
        self._translated = translated
        with translated:
            pool = client_of(address, options).connection_pool
            self._connection = pool.connection_class(**{**pool.connection_kwargs, "protocol": 3})
            try:
                self._connection.connect()
                self._connection._parser.set_invalidation_push_handler(lambda message: message)
                self._connection.send_command("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", prefix)
                self._connection.read_response()
            except BaseException:
                self._connection.disconnect()
                raise

    def wait(self, seconds: float) -> tuple[bytes, ...] | None:
        """The names in the next message; () if none comes in `seconds`; None if everything may have changed.

        Raises `StoreError` if the connection is gone.
        """
        with self._translated:
            try:
                message = self._connection.read_response(push_request=True, timeout=seconds, disconnect_on_error=False)
            except known.TimeoutError:
                return ()
            except (AttributeError, ValueError):
                # redis-py raises these if another thread closed the connection meanwhile
                raise known.ConnectionError("closed") from None
        if not isinstance(message, list) or len(message) != 2 or message[0] != b"invalidate" or message[1] is None:
            return None
        return tuple(message[1])

    def close(self) -> None:
        """Close the connection; a `wait` in another thread raises `StoreError`."""
        with suppress(Exception):
            self._connection.disconnect()


def connect(address: RedisAddress, options: LinkOptions) -> Exchanges | Cluster:
    """A server or a cluster, whose connections are made when they are needed."""
    client = client_of(address, options)
    return Cluster(client) if address.cluster else _exchanges(client)


def may_not_run(reply: Any) -> bool:
    """Whether the server answered that this user may not run the command."""
    return isinstance(reply, known.NoPermissionError)


def translation(error: BaseException, server: str, options: LinkOptions) -> StoreError:
    """One of `KNOWN` as ours: one sentence, without the command."""
    if isinstance(error, known.RedisClusterException):
        for cause, kinds in ((error.__cause__, KNOWN), (error.__context__, _REFUSED_USER)):
            if isinstance(cause, kinds):
                return translation(cause, server, options)
        if "not enabled" in str(error):
            return StoreError(
                f"the cache server {server} is in no cluster; give the address of a cluster node, or do not ask for a "
                "cluster"
            )
        return Unreachable(
            f"the cluster of the cache server {server} is not whole ({_reason(error)}); see its CLUSTER INFO"
        )
    if isinstance(error, known.OutOfMemoryError):
        return StoreFull(
            f"the cache server {server} is at its maxmemory; raise it, or remove keys there", options.retry_after
        )
    if isinstance(error, _REFUSED_USER):
        return StoreError(
            f"the cache server {server} refuses this user ({_reason(error)}); check user, password and its ACL"
        )
    if isinstance(error, known.TimeoutError):
        return StoreError(
            f"the cache server {server} did not answer within {options.timeout:g} s; check its load and whether its "
            "port uses TLS as the address says, or raise the timeout"
        )
    if isinstance(error, known.ResponseError) and not isinstance(error, _REDIRECTIONS):
        return StoreError(f"the cache server {server} refused a command ({_reason(error)}); see its log")
    return Unreachable(
        f"could not reach the cache server {server} ({_reason(error)}); check that it runs, its address and its TLS"
    )


def _reason(error: BaseException) -> str:
    # redis-py puts the command, with a part of the value, before it
    return str(error).rpartition("caused error: ")[2][:200] or type(error).__name__


def _exchanges(client: Any) -> Exchanges:
    """Connections of our own to the server of a redis-py client, which only says how to make them."""
    pool = client.connection_pool
    return Exchanges(lambda: pool.connection_class(**pool.connection_kwargs), known.ResponseError)


def client_of(address: RedisAddress, options: LinkOptions) -> Any:
    """A client of redis-py."""
    shared: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": options.timeout,
        "socket_connect_timeout": options.timeout,
        # attempts are made in `Link`, by a clock that tests can move
        "retry": Retry(NoBackoff(), 3 if address.cluster else 0),
        "credential_provider": None if address.password is None else _Credentials(address.user, address.password),
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
    files = {"ssl_ca_certs": address.tls.ca, "ssl_certfile": address.tls.certificate, "ssl_keyfile": address.tls.key}
    named = {name: None if path is None else str(path) for name, path in files.items()}
    return {"ssl": True, "ssl_check_hostname": True, **named}


class _Credentials(redis.CredentialProvider):
    """Keeps the password out of the reprs of redis-py."""

    def __init__(self, user: str | None, password: str) -> None:
        self._given = (user, password) if user else (password,)

    def get_credentials(self) -> Any:
        return self._given

    def __repr__(self) -> str:
        return "credentials"
