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


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cache_password_file": "p"}, "cache_password_file is for a Redis server, and cache is file"),
        ({"cache": "memory", "cache_ca": "c"}, "cache_ca is for a Redis server, and cache is memory"),
        (
            {"cache": "file", "cache_certificate": "c", "cache_key": "k"},
            "cache_certificate and cache_key are for a Redis server",
        ),
        ({"cache": "redis://host", "cache_ca": "c"}, "without TLS"),
        ({"cache": "unix:///s", "cache_ca": "c", "cache_password_file": "p"}, "cache_ca would do nothing without TLS"),
        ({"cache": "rediss://host", "cache_key": "k"}, "cache_key needs cache_certificate beside it"),
        ({"cache": "rediss://host", "cache_certificate": "k"}, "cache_certificate needs cache_key beside it"),
    ],
)
def test_files_that_the_cache_would_not_use_are_refused_by_their_flag(given, words):
    with pytest.raises(ConfigError, match=words) as refused:
        resolve(None, {}, given)
    flags = ["--" + name.replace("_", "-") for name in given if name in words]
    assert [flag for flag in flags if flag not in str(refused.value)] == []


def test_files_that_it_uses_are_taken():
    given = {"cache_password_file": "p", "cache_ca": "a", "cache_certificate": "c", "cache_key": "k"}
    assert resolve(None, {}, {"cache": "rediss+cluster://host", **given}).cache_key
    assert resolve(None, {}, {"cache": "redis://host", "cache_password_file": "p"}).cache_password_file
