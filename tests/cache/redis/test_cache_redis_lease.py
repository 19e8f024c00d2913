"""What a killed run left on a server goes when a later one starts; what a living one has there never does."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kit.cache.redis_server import RedisServer
from kit.smallrun import small_settings

from fednode.assemble.planning import Plan, plan_run
from fednode.assemble.stores import Stores, open_stores
from fednode.cache.redis.backend import RedisBackend
from fednode.cache.redis.client import Link
from fednode.cache.redis.connections import LinkOptions
from fednode.cache.redis.lease import LEASE_SECONDS, Lease, sweep_dead
from fednode.clock import SystemClock
from fednode.errors import ConfigError, StoreError

PARTS = ("updates", "model")


@pytest.fixture
def plan(server: RedisServer, tmp_path: Path) -> Plan:
    return plan_run(small_settings(tmp_path, cache=f"unix://{server.socket}"))


@pytest.fixture
def link(server: RedisServer) -> Iterator[Link]:
    found = Link(server.address, LinkOptions(), SystemClock())
    yield found
    found.close()


def started(stack: ExitStack, plan: Plan, run: str) -> Stores:
    return stack.enter_context(open_stores(plan, run, Path("unused"), SystemClock()))


def filled(stores: Stores) -> None:
    stores.updates.cache.pin("update/1", b"sealed")
    stores.parameters.cache.pin("chunk", b"floats")


def names(server: RedisServer, run: str) -> set[bytes]:
    """All but the probes of a near cache, which live for a second."""
    return {name for name in server.client().keys(f"fednode.{run}.*") if b":v:?" not in name}


def test_a_living_run_loses_nothing_to_another_that_starts_and_ends(server: RedisServer, plan: Plan) -> None:
    with ExitStack() as first, ExitStack() as second:
        one = started(first, plan, "run-1")
        filled(one)
        before = names(server, "run-1")
        two = started(second, plan, "run-2")
        filled(two)
        assert names(server, "run-1") == before and len(names(server, "run-2")) == len(before) == 4
        second.close()
        assert names(server, "run-1") == before and not names(server, "run-2")
        assert one.updates.cache.get("update/1") == b"sealed" and one.parameters.cache.get("chunk") == b"floats"
    assert server.client().dbsize() == 0


KILLED = """
import sys
from contextlib import ExitStack
from pathlib import Path
from test_cache_redis_lease import filled, started
from fednode.assemble.planning import plan_run
from kit.smallrun import small_settings
with ExitStack() as stack:
    stores = started(stack, plan_run(small_settings(Path(sys.argv[1]), cache=sys.argv[2])), "killed")
    filled(stores)
    print("there", flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_run_left_goes_once_its_lease_has_expired(
    server: RedisServer, plan: Plan, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = server.client()
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2]), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), f"unix://{server.socket}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"there\n"
        process.send_signal(signal.SIGKILL)
    left = names(server, "killed")
    assert len(left) == 4 and client.pttl("fednode.killed.lease") > 0.9 * 1000 * LEASE_SECONDS
    # not known to be dead yet: it might only be slow
    with ExitStack() as stack:
        started(stack, plan, "early")
        assert names(server, "killed") == left
    client.delete("fednode.killed.lease")
    for stranger in ("fednode.killed.other", "fednode.killed2.updates:v:{kx}", "mine:v:{kx}"):
        client.set(stranger, b"stays")
    caplog.set_level(logging.INFO, "fednode")
    with ExitStack() as stack:
        started(stack, plan, "later")
        assert names(server, "killed") == {b"fednode.killed.other"}
    assert set(client.keys()) == {b"fednode.killed.other", b"fednode.killed2.updates:v:{kx}", b"mine:v:{kx}"}
    assert "what run killed left there" in caplog.text


def test_pieces_of_a_dead_run_go_too_and_runs_without_a_mark_stay(server: RedisServer, link: Link) -> None:
    client = server.client()
    for run in ("dead", "unmarked", "dead.er"):
        client.set(f"fednode.{run}.model:v:{{kx}}", b"record")
        client.set(f"fednode.{run}.model:p:{{kx}}00:0", b"piece")
    client.set("fednode.dead.leased", b"")
    client.set("fednode.*.leased", b"")
    client.set("fednode..leased", b"")
    assert sweep_dead(link, PARTS) == ("dead",)
    assert not names(server, "dead.updates") and len(names(server, "dead.er")) == 2
    assert len(names(server, "unmarked")) == 2 and sweep_dead(link, PARTS) == ()


def test_a_lease_is_extended_by_its_own_thread_whatever_the_run_does(server: RedisServer, link: Link) -> None:
    client = server.client()
    with Lease(link, "slow", life=60.0, every=0.01):
        for name in ("lease", "leased"):
            client.delete(f"fednode.slow.{name}")
        for name in ("lease", "leased"):
            while not client.exists(f"fednode.slow.{name}"):
                pass
        assert 0 < client.pttl("fednode.slow.lease") <= 60_000 and client.ttl("fednode.slow.leased") == -1
        assert sweep_dead(link, PARTS) == ()
    assert client.dbsize() == 0


def test_a_server_that_comes_back_has_the_lease_again(server: RedisServer, link: Link) -> None:
    with Lease(link, "run", every=1_000.0) as lease:
        server.kill()
        with pytest.raises(StoreError):
            lease.renew()
        server.restart()
        lease.renew()
        assert server.client().pttl("fednode.run.lease") > 0


def test_a_run_whose_keys_could_not_be_removed_leaves_them_to_the_next(
    server: RedisServer, plan: Plan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise StoreError("no answer")

    with ExitStack() as stack:
        filled(started(stack, plan, "stuck"))
        monkeypatch.setattr(RedisBackend, "clear", fail)
    monkeypatch.undo()
    assert "until a later run removes them: no answer" in caplog.text
    assert b"fednode.stuck.lease" not in names(server, "stuck") and len(names(server, "stuck")) == 3
    with ExitStack() as stack:
        started(stack, plan, "next")
        assert not names(server, "stuck")


def test_a_sweep_that_fails_does_not_keep_a_run_from_starting(
    server: RedisServer, plan: Plan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("not allowed")

    monkeypatch.setattr("fednode.cache.redis.lease.sweep_dead", fail)
    with ExitStack() as stack:
        filled(started(stack, plan, "run"))
    assert "may stay on the cache server: not allowed" in caplog.text


def test_a_run_whose_name_is_no_part_of_a_namespace(link: Link) -> None:
    with pytest.raises(ConfigError, match="namespace"):
        Lease(link, "a:b")
