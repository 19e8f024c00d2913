"""Cache servers: one for each test that kills or fills it, one for a module of tests that only use it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.cache.redis_server import RedisServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("r")) as running:
        yield running
