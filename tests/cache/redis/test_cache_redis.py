"""`RedisBackend` passes the kit and the walk: small values in records, larger ones in pieces."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from kit.cache.backend import BackendKit
from kit.cache.backend_machine import TIGHT, BackendMachine
from kit.cache.redis_server import RedisServer
from kit.clocks import FakeClock

from fednode.cache import Limits
from fednode.cache.redis.backend import RedisBackend
from fednode.cache.redis.records import RedisOptions

NAMES = itertools.count()


class TestRedisBackend(BackendKit):
    @pytest.fixture(autouse=True, params=[16, 1 << 20])
    def place(self, shared_server: RedisServer, request: pytest.FixtureRequest) -> Iterator[None]:
        self.server, self.piece_bytes, self.made = shared_server, request.param, list[RedisBackend]()
        yield
        for backend in self.made:
            backend.close()

    def make(self, clock: FakeClock, limits: Limits) -> RedisBackend:
        options = RedisOptions(f"ns{next(NAMES)}", limits, self.piece_bytes)
        self.made.append(RedisBackend(self.server.address, options, clock))
        return self.made[-1]


def test_a_walk_against_a_dict(shared_server: RedisServer) -> None:
    class RedisMachine(BackendMachine):
        """A server that has room never evicts; which of the walk's values come in pieces, their sizes say."""

        limits = TIGHT
        evicts = False
        # the server counts by its own clock: on a busy machine a second of the walk may pass there
        second = 1_000.0

        def make(self, clock: FakeClock, limits: Limits) -> RedisBackend:
            return RedisBackend(shared_server.address, RedisOptions(f"walk{next(NAMES)}", limits, 50), clock)

        def discard(self, backend: object) -> None:
            assert isinstance(backend, RedisBackend)
            assert (backend.losses, backend.usage().damaged, backend.usage().evictions) == (0, 0, 0)
            backend.close()

    run_state_machine_as_test(
        RedisMachine, settings=settings(max_examples=25, stateful_step_count=30, deadline=None, database=None)
    )
    client = shared_server.client()
    left = {name.split(b":", 2)[2].split(b"}")[0] for name in client.scan_iter("walk*:p:*") if client.pttl(name) < 0}
    assert left <= {name.split(b":", 2)[2].split(b"}")[0] for name in client.scan_iter("walk*:v:*")}
