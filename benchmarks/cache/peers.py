"""Other caches as Python sees them, each opened, filled and closed the same way.

A peer that is not installed is left out. Times to live are an hour where a peer has them. Of all only FedNode bounds
bytes and entries together, keeps what it stores out of its callers' reach, and always stores what it was given.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from fednode.clock import Clock
from fednode.errors import ConfigError

TTL: Final = 3_600.0
_START: Final = 10.0
_AGAIN: Final = 0.02


@dataclass(frozen=True, slots=True)
class Peer:
    """Values by key: the plainest calls that the package offers; `filled` stores many in the way it is best at."""

    get: Callable[[str], object]
    set: Callable[[str, Any], object]
    filled: Callable[[Mapping[str, Any]], object] | None = None

    def fill(self, items: Mapping[str, Any]) -> None:
        """Store all items; untimed."""
        if self.filled is not None:
            self.filled(items)
            return
        for key, value in items.items():
            self.set(key, value)


class NotInstalled(ConfigError):
    """A peer is not on this machine; the sentence names the package."""


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise NotInstalled(f"{name.replace('_', '-')} is not installed") from error


def _by_item(found: Any) -> AbstractContextManager[Peer]:
    return nullcontext(Peer(found.__getitem__, found.__setitem__))


def _moka(size: int, _clock: Clock) -> AbstractContextManager[Peer]:
    found = _module("moka_py").Moka(size, ttl=TTL)
    return nullcontext(Peer(found.get, found.set))


@contextmanager
def _theine(size: int, _clock: Clock) -> Iterator[Peer]:
    found = _module("theine").Cache(size)
    life = timedelta(seconds=TTL)
    try:
        yield Peer(found.get, lambda key, value: found.set(key, value, life))
    finally:
        found.close()


@contextmanager
def _diskcache(_size: int, _clock: Clock) -> Iterator[Peer]:
    module = _module("diskcache")
    with TemporaryDirectory(prefix="fednode-bench-") as folder, module.Cache(folder, size_limit=1 << 34) as found:

        def fill(items: Mapping[str, Any]) -> None:
            with found.transact():
                for key, value in items.items():
                    found.set(key, value, expire=TTL)

        yield Peer(found.get, lambda key, value: found.set(key, value, expire=TTL), fill)


@contextmanager
def redis(_size: int, clock: Clock) -> Iterator[Peer]:
    """Open a client of a redis-server of its own: a unix socket, no persistence, one GET or SET a call."""
    module, server = _module("redis"), shutil.which("redis-server")
    if server is None:
        raise NotInstalled("redis-server is not installed")
    with TemporaryDirectory(prefix="fn-", ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        path = Path(folder) / "s"
        stack.enter_context(_redis_server(server, path))
        client = stack.enter_context(module.Redis(unix_socket_path=str(path)))
        _wait(client, module.ConnectionError, clock)
        life = int(TTL)
        yield Peer(client.get, lambda key, value: client.set(key, value, ex=life), client.mset)


@contextmanager
def _redis_server(program: str, path: Path) -> Iterator[None]:
    asked = {"--port": "0", "--unixsocket": str(path), "--save": "", "--appendonly": "no", "--dir": str(path.parent)}
    command = [program, *(word for pair in asked.items() for word in pair)]
    # found on PATH
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 # nosec B603
    try:
        if hasattr(os, "sched_setaffinity"):
            # on the one core of its row it would wait for its own client
            os.sched_setaffinity(server.pid, range(os.cpu_count() or 1))
        yield
    finally:
        server.terminate()
        server.wait()


def _wait(client: Any, refused: type[Exception], clock: Clock) -> None:
    deadline = clock.now() + _START
    while True:
        try:
            client.ping()
        except refused as error:
            if clock.now() > deadline:
                raise NotInstalled(f"redis-server did not answer in {_START:g} s") from error
            clock.sleep(_AGAIN)
        else:
            return


PEERS: Final[Mapping[str, Callable[[int, Clock], AbstractContextManager[Peer]]]] = {
    "dict": lambda _size, _clock: _by_item({}),
    # without the lock that threads would need
    "cachetools LRU": lambda size, _clock: _by_item(_module("cachetools").LRUCache(size)),
    "cachetools TTL": lambda size, _clock: _by_item(_module("cachetools").TTLCache(size, TTL)),
    "theine": _theine,
    "moka-py": _moka,
    "diskcache": _diskcache,
    "Redis": redis,
}
"""What opens each: by name, with its size in entries and a clock."""
