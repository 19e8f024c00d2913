"""A cache belongs to the process that made it: a forked child is refused at once, whatever locks the parent held."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from kit.cache.backend import ROOMY
from kit.cache.redis_server import RedisServer
from kit.children import held_elsewhere, in_a_child
from kit.clocks import FakeClock

from fednode.cache import CacheBackend, FileBackend, MemoryBackend, RedisBackend, RedisOptions, WhenFull
from fednode.cache import fork_safety as forks
from fednode.cache.fork_safety import UsedAfterFork
from fednode.cache.wrappers.chunked import Chunked
from fednode.cache.wrappers.counted import Counted
from fednode.cache.wrappers.loading import Guarded, GuardSettings
from fednode.cache.wrappers.tiered import Tiered
from fednode.errors import StoreError

pytestmark = pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")


def memory(_: Path) -> MemoryBackend:
    return MemoryBackend(FakeClock(), ROOMY, shards=4)


def files(folder: Path) -> FileBackend:
    return FileBackend(folder, FakeClock(), ROOMY, WhenFull.EVICT)


def stack(_: Path) -> Counted:
    whole = Chunked(MemoryBackend(FakeClock(), ROOMY, shards=1), piece_bytes=64, value_bytes=4_096)
    return Counted(Guarded(whole, FakeClock(), lambda: 0.5, GuardSettings(jitter=0.0)))


VERBS: dict[str, Callable[[CacheBackend], object]] = {
    "get": lambda cache: cache.get("old"),
    "get_many": lambda cache: cache.get_many(["old"]),
    "set": lambda cache: cache.set("new", b"n" * 300, None),
    "set_many": lambda cache: cache.set_many({"new": b"n"}, None),
    "pin": lambda cache: cache.pin("new", b"n"),
    "delete": lambda cache: cache.delete("old"),
    "clear": lambda cache: cache.clear(),
    "sweep": lambda cache: cache.sweep(),
    "keys": lambda cache: list(cache.keys()),
    "usage": lambda cache: cache.usage(),
}


def check_child(cache: CacheBackend) -> None:
    """Fork while another thread holds every lock of the parent's caches: the child is refused, the parent goes on."""
    cache.set("old", b"o", None)

    def refused() -> list[str]:
        found = []
        for name, verb in VERBS.items():
            with pytest.raises(UsedAfterFork):
                verb(cache)
            found.append(name)
        with ExitStack() as closing:
            closing.push(getattr(cache, "__exit__", lambda *_: None))
        return found

    with held_elsewhere(*locks()):
        assert in_a_child(refused) == list(VERBS)
    assert cache.get("old") == b"o"
    cache.set("new", b"n", None)
    assert cache.get("new") == b"n"


def locks() -> list[object]:
    found = [getattr(owner, name) for owner, (names, _) in forks._owners.items() for name in names]
    return [lock for one in found for lock in (one if isinstance(one, tuple) else (one,))]


@pytest.mark.parametrize("make", [memory, files, stack])
def test_a_child_is_refused_by_every_verb(make: Callable[[Path], CacheBackend], tmp_path: Path) -> None:
    check_child(make(tmp_path))


@pytest.mark.parametrize("tiered", [False, True])
def test_a_child_is_refused_by_a_server_s_cache(shared_server: RedisServer, *, tiered: bool) -> None:
    with RedisBackend(shared_server.address, RedisOptions("fork"), FakeClock()) as far:
        if not tiered:
            check_child(far)
            return
        with Tiered(MemoryBackend(FakeClock(), ROOMY), far) as near:
            check_child(near)


def test_a_child_may_make_caches_of_its_own(tmp_path: Path, shared_server: RedisServer) -> None:
    def own() -> list[object]:
        with (
            RedisBackend(shared_server.address, RedisOptions("child"), FakeClock()) as far,
            files(tmp_path / "own") as near,
        ):
            for cache in (memory(tmp_path), far, near):
                cache.set("key", 1, None)
                assert cache.get("key") == 1
        with pytest.raises(StoreError, match="in use"):
            files(tmp_path / "parent")
        return [True]

    with files(tmp_path / "parent"):
        assert in_a_child(own) == [True]
