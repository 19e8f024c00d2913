"""Where the cache is: an address is taken apart strictly, and what is refused is never repeated."""

import pytest

from fednode.errors import ConfigError
from fednode.settings import resolve

SECRET = "hunter2"


@pytest.mark.parametrize(
    "place",
    [
        "file",
        "memory",
        "redis://localhost",
        "redis://ann@cache.example.org:6380/3",
        "rediss://10.0.0.1:6379/",
        "rediss+cluster://node-1",
        "redis+cluster://[::1]:7000",
        "unix:///run/redis/redis.sock",
        "unix://ann@/run/redis.sock?db=2",
    ],
)
def test_places(place):
    assert resolve(None, {}, {"cache": place}).cache == place


@pytest.mark.parametrize(
    "place",
    [
        f"redis://me:{SECRET}@host",
        f"redis://:{SECRET}@host",
        f"redis://me:{SECRET}/x@host:1",
        f"redis://me:{SECRET}#x@host:1",
        f"redis://me:{SECRET}?x@host:1",
        f"redis://me:{SECRET}@x@host:1",
        f"redis://me%3A{SECRET}:@host",
        f"redis//me:{SECRET}@host",
        f"redis:me:{SECRET}@host",
        f"unix://me:{SECRET}@/run/redis.sock",
        f"unix:///run/{SECRET}@x.sock",
        f"redis://host:{SECRET}",
        f"redis://host/{SECRET}",
        f"redis://host?password={SECRET}",
        f"REDIS://me:{SECRET}@host",
        f"\u0130redis://me:{SECRET}@host",
        f"redis://host\n{SECRET}",
        f" {SECRET}",
        SECRET,
    ],
)
def test_what_is_refused_is_never_repeated(place):
    for flags, environ in (({"cache": place}, {}), ({}, {"FEDNODE_CACHE": place})):
        with pytest.raises(ConfigError) as caught:
            resolve(None, environ, flags)
        told = str(caught.value)
        assert SECRET not in told and "\n" not in told
        causes, error = [], caught.value
        while error is not None:
            causes.append(error)
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        assert SECRET not in "".join(map(str, causes))
