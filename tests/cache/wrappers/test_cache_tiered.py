"""`Tiered`: the kit over a real server; fresh by its messages; the race of a read with a change; falling back."""

import itertools
import math
import queue
import threading
from collections.abc import Callable, Iterable, Iterator

import pytest
from kit.cache.backend import BackendKit
from kit.cache.redis_server import RedisServer
from kit.clocks import FakeClock

from fednode.cache import MISSING, Closed, Limits, MemoryBackend, Missing
from fednode.cache.backend import Value
from fednode.cache.redis.backend import RedisBackend
from fednode.cache.redis.connections import LinkOptions
from fednode.cache.redis.records import Lasting, RedisOptions
from fednode.cache.redis.tracking import Changes
from fednode.cache.wrappers.tiered import Tiered, TierOptions
from fednode.clock import SystemClock
from fednode.errors import ConfigError, StoreError

LIMITS = Limits(1_000, 1 << 20, 1 << 16)
NAMES = itertools.count()
PATIENT = TierOptions(heartbeat=5.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("t")) as running:
        yield running


def remote_on(server: RedisServer, namespace: str, clock: FakeClock, limits: Limits = LIMITS) -> RedisBackend:
    options = RedisOptions(namespace, limits, link=LinkOptions(timeout=5.0, pauses=(0.01,)))
    return RedisBackend(server.address, options, clock)


def becomes(condition: Callable[[], bool]) -> bool:
    """Whether it turns true before long: what a server's message brings about comes when it comes."""
    clock = SystemClock()
    deadline = clock.now() + 20.0
    while not condition():
        if clock.now() > deadline:
            return False
        clock.sleep(0.002)
    return True


class TestTiered(BackendKit):
    @pytest.fixture(autouse=True)
    def place(self, server: RedisServer) -> Iterator[None]:
        self.server, self.made = server, list[tuple[Tiered, RedisBackend]]()
        yield
        for tiered, remote in self.made:
            tiered.close()
            remote.close()

    def make(self, clock: FakeClock, limits: Limits) -> Tiered:
        remote = remote_on(self.server, f"kit{next(NAMES)}", clock, limits)
        tiered = Tiered(MemoryBackend(clock, limits), remote, PATIENT)
        assert tiered.near.followed
        self.made.append((tiered, remote))
        return tiered


def test_another_node_s_changes_are_seen_and_reads_cost_no_round_trip(server: RedisServer) -> None:
    clock = FakeClock()
    with (
        remote_on(server, "two", clock) as remote,
        remote_on(server, "two", clock) as other,
        Tiered(MemoryBackend(clock, LIMITS), remote, PATIENT) as tiered,
    ):
        other.set_many({f"key {number}": number for number in range(20)}, None)
        assert becomes(lambda: tiered.near.invalidations >= 20)
        assert len(tiered.get_many([f"key {number}" for number in range(20)])) == 20
        calls = int(server.client().info("stats")["total_commands_processed"])
        assert [tiered.get(f"key {number}") for number in range(20)] == list(range(20))
        assert tiered.get_many(["key 3", "key 1"]) == {"key 3": 3, "key 1": 1}
        assert int(server.client().info("stats")["total_commands_processed"]) - calls < 10
        assert (tiered.near.hits, tiered.near.local.entries) == (22, 20)
        other.set("key 1", b"new", None)
        other.delete("key 2")
        assert becomes(lambda: (tiered.get("key 1"), tiered.get("key 2")) == (b"new", MISSING))
        assert tiered.near.local.entries >= 18
        other.clear()
        assert becomes(lambda: tiered.near.local.entries == 0)
        assert (tiered.get("key 3"), tiered.near.followed, tiered.near.falls) == (MISSING, True, 0)


def test_what_the_server_expires_or_flushes_goes_here_too(server: RedisServer) -> None:
    clock = FakeClock()
    with (
        remote_on(server, "gone", clock) as remote,
        Tiered(MemoryBackend(clock, LIMITS), remote, PATIENT) as tiered,
    ):
        tiered.set("key", b"v", 0.02)
        tiered.set("stays", b"v", None)
        assert tiered.get("stays") == b"v"
        # the clock here stands still: what expires is expired by the server
        assert becomes(lambda: tiered.get("key") is MISSING)
        server.client().flushall()
        assert becomes(lambda: tiered.near.local.entries == 0)
        assert tiered.get("stays") is MISSING


def test_no_copy_outlives_its_original(server: RedisServer) -> None:
    clock = FakeClock()
    with (
        remote_on(server, "life", clock) as remote,
        Tiered(MemoryBackend(clock, LIMITS), remote, TierOptions(followed_ttl=50.0, heartbeat=5.0)) as tiered,
    ):
        tiered.set("short", b"v", 100.0)
        clock.sleep(90.0)
        assert becomes(lambda: tiered.get("short") == b"v" and tiered.near.local.entries == 1)
        clock.sleep(10.0)
        assert tiered.get("short") is MISSING


def test_a_lost_connection_drops_all_copies_and_the_next_one_is_followed(server: RedisServer) -> None:
    clock = FakeClock()
    with (
        remote_on(server, "cut", clock) as remote,
        Tiered(MemoryBackend(clock, LIMITS), remote, TierOptions(heartbeat=0.2)) as tiered,
    ):
        remote.set("key", b"v", None)
        assert becomes(lambda: tiered.get("key") == b"v" and tiered.near.local.entries == 1)
        server.client().execute_command("CLIENT", "KILL", "TYPE", "normal")
        assert becomes(lambda: tiered.near.falls == 1)
        assert becomes(lambda: tiered.near.followed)
        remote.set("key", b"new", None)
        assert becomes(lambda: tiered.get("key") == b"new")


def test_a_silent_server_is_noticed_by_the_heartbeat_and_found_again(server: RedisServer) -> None:
    clock = FakeClock()
    options = RedisOptions("silent", LIMITS, link=LinkOptions(timeout=1.0, pauses=(0.01,)))
    with (
        RedisBackend(server.address, options, clock) as remote,
        Tiered(MemoryBackend(clock, LIMITS), remote, TierOptions(heartbeat=0.1)) as tiered,
    ):
        assert becomes(lambda: tiered.near.followed)
        with server.paused():
            assert becomes(lambda: not tiered.near.followed)
            with pytest.raises(StoreError):
                tiered.get("key")
        assert becomes(lambda: tiered.near.followed)


class ScriptedRemote:
    """A remote whose reads and messages happen when the test says so."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.values: dict[str, Lasting] = {}
        self.messages: queue.Queue[Changes | StoreError] = queue.Queue()
        self.during_read: Callable[[], None] = lambda: None
        self.answers_probes = True
        self.closed = 0

    def follow(self) -> "ScriptedRemote":
        return self

    def probe(self) -> None:
        if self.answers_probes:
            self.messages.put(Changes(probed=True))

    def wait(self, seconds: float) -> Changes | None:
        try:
            message = self.messages.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(message, StoreError):
            raise message
        return message

    def close(self) -> None:
        self.closed += 1
        self.messages.put(StoreError("closed"))

    def get_lasting(self, key: str) -> Lasting | Missing:
        found = self.values.get(key, MISSING)
        self.during_read()
        return found

    def get_many_lasting(self, keys: Iterable[str]) -> dict[str, Lasting]:
        found = {key: self.values[key] for key in keys if key in self.values}
        self.during_read()
        return found

    def set(self, key: str, value: Value, ttl: float | None) -> None:
        self.values[key] = Lasting(value, math.inf if ttl is None else ttl)
        raise StoreError("the answer was lost")


def over(remote: ScriptedRemote, clock: FakeClock, **seconds: float) -> Tiered:
    options = TierOptions(**{"heartbeat": 5.0, **seconds})
    return Tiered(MemoryBackend(clock, LIMITS), remote, options)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [Changes(("key",)), Changes(everything=True)])
@pytest.mark.parametrize("many", [False, True])
def test_a_value_read_before_a_change_is_not_kept_after_it(change: Changes, many: bool) -> None:
    remote = ScriptedRemote()
    remote.values = {"key": Lasting(b"old", math.inf), "other": Lasting(b"v", math.inf)}
    with over(remote, FakeClock()) as tiered:

        def overtaken() -> None:
            before = tiered.near.invalidations
            remote.messages.put(change)
            remote.messages.put(Changes(("sentinel",)))
            assert becomes(lambda: tiered.near.invalidations == before + len(change.keys) + 1)
            remote.values["key"] = Lasting(b"new", math.inf)

        remote.during_read = overtaken
        assert (tiered.get_many(["key"]) if many else {"key": tiered.get("key")}) == {"key": b"old"}
        remote.during_read = lambda: None
        assert (tiered.get("key"), tiered.get("key")) == (b"new", b"new")
        remote.during_read = lambda: pytest.fail("it was near")
        assert tiered.get("key") == b"new"


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("took", "later", "is_near"), [(8.0, 1.0, True), (8.0, 2.0, False), (10.0, 0.0, False)])
def test_a_copy_lives_no_longer_than_its_original_however_long_the_read_took(
    took: float, later: float, is_near: bool, many: bool
) -> None:
    remote = ScriptedRemote()
    remote.values = {"key": Lasting(b"v", 10.0)}
    with over(remote, remote.clock) as tiered:
        remote.during_read = lambda: remote.clock.sleep(took)
        assert (tiered.get_many(["key"]) if many else {"key": tiered.get("key")}) == {"key": b"v"}
        remote.values, remote.during_read = {}, lambda: None
        remote.clock.sleep(later)
        assert tiered.get("key") == (b"v" if is_near else MISSING)


def test_a_value_read_while_this_node_writes_it_is_not_kept_even_where_the_write_s_answer_is_lost() -> None:
    remote = ScriptedRemote()
    remote.values = {"key": Lasting(b"old", math.inf)}
    with over(remote, FakeClock()) as tiered:

        def overtaken() -> None:
            remote.during_read = lambda: None
            with pytest.raises(StoreError):
                tiered.set("key", b"new", None)

        remote.during_read = overtaken
        assert (tiered.get("key"), tiered.get("key")) == (b"old", b"new")


def test_without_an_answer_to_its_test_it_lives_by_a_short_time_alone() -> None:
    remote, clock = ScriptedRemote(), FakeClock()
    remote.answers_probes = False
    remote.values = {"key": Lasting(1, math.inf)}
    with over(remote, clock, heartbeat=0.01, unfollowed_ttl=2.0) as tiered:
        assert not tiered.near.followed
        assert tiered.get("key") == 1
        remote.values["key"] = Lasting(2, math.inf)
        clock.sleep(1.0)
        assert tiered.get("key") == 1
        clock.sleep(1.0)
        assert tiered.get("key") == 2


def test_a_value_that_the_near_cache_does_not_take_is_served_from_afar() -> None:
    remote = ScriptedRemote()
    remote.values = {"key": Lasting(bytes(1 << 17), math.inf)}
    with over(remote, FakeClock()) as tiered:
        assert tiered.get("key") == tiered.get("key") == bytes(1 << 17)
        assert (tiered.near.local.entries, tiered.near.misses) == (0, 2)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_listener_that_dies_keeps_nothing_for_fresh() -> None:
    remote = ScriptedRemote()
    remote.values = {"key": Lasting(b"v", math.inf)}
    with over(remote, FakeClock()) as tiered:
        assert (tiered.get("key"), tiered.near.followed) == (b"v", True)
        remote.messages.put(None)  # type: ignore[arg-type]
        remote.probe = lambda: 1 // 0  # type: ignore[method-assign]
        tiered._thread.join()
        assert (tiered.near.followed, tiered.near.local.entries) == (False, 0)


def test_closing_leaves_no_thread_and_closing_twice_is_allowed() -> None:
    before = set(threading.enumerate())
    remote = ScriptedRemote()
    tiered = over(remote, FakeClock())
    assert len(set(threading.enumerate()) - before) == 1
    tiered.close()
    tiered.close()
    assert set(threading.enumerate()) - before == set()
    assert (tiered.near.followed, tiered.near.local.entries) == (False, 0)
    assert remote.closed >= 1


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_times_that_mean_nothing_are_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="near cache"):
        TierOptions(heartbeat=seconds)


def test_after_its_close_nothing_is_read_or_stored(server: RedisServer) -> None:
    clock = FakeClock()
    with remote_on(server, "closing", clock) as remote:
        tiered = Tiered(MemoryBackend(clock, LIMITS), remote)
        tiered.set("key", b"v", None)
        assert tiered.get("key") == b"v"
        tiered.close()
        calls: list[Callable[[], object]] = [
            lambda: tiered.get("key"),
            lambda: tiered.get_many(["key"]),
            lambda: tiered.set("key", b"w", None),
            lambda: tiered.pin("key", b"w"),
            lambda: tiered.delete("key"),
            tiered.keys,
            tiered.clear,
            tiered.sweep,
        ]
        for call in calls:
            with pytest.raises(Closed, match=r"the near cache over .* is closed"):
                call()
        assert remote.get("key") == b"v"
