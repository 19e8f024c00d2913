"""What `fednode run --dry-run` says of the cache: where things are kept, what is weak, which file is missing."""

import pytest

from fednode.assemble.cache_location import cache_warnings, kept_where
from fednode.cli import main
from fednode.settings import resolve

SMALL = ("run", "--dry-run", "--clients", "6", "--rounds", "1")


@pytest.fixture
def planned(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        capsys.readouterr()
        code = main([*SMALL, *map(str, arguments)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def test_the_plan_says_where_updates_and_model_are_kept_and_what_comes_down_at_most(planned, tmp_path):
    code, out, _ = planned("--staleness", "2")
    rows = {line[:12].strip(): line[12:] for line in out.splitlines()}
    assert code == 0 and rows["cache"].startswith("file: ")
    assert rows["bytes down"].startswith("at most ") and "2 versions old" in rows["bytes down"]
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_not_asked_and_a_way_without_tls(planned):
    code, out, _ = planned("--cache", "redis://cache.invalid:1")
    assert code == 0
    assert "cache       redis://cache.invalid:1: " in out and "--dry-run does not ask" in out
    assert any(line.startswith("warning ") and "no TLS" in line for line in out.splitlines())


def test_a_missing_file_is_found_by_the_plan(planned, tmp_path):
    missing = tmp_path / "nosuch"
    code, out, err = planned("--cache", "redis://localhost", "--cache-password-file", missing)
    assert (code, out, err.count("\n")) == (2, "", 1) and "--cache-password-file" in err
    assert planned("--cache", "rediss://localhost", "--cache-ca", missing)[0] == 2


@pytest.mark.parametrize(
    ("place", "warned"),
    [
        ("file", False),
        ("memory", False),
        ("unix:///run/redis.sock", False),
        ("redis://localhost:6379/2", False),
        ("redis://127.3.2.1", False),
        ("redis://[::1]:7000", False),
        ("rediss://cache.example.org", False),
        ("rediss+cluster://cache.example.org", False),
        ("redis://cache.example.org", True),
        ("redis+cluster://10.0.0.1:7000", True),
        ("redis://localhost.example.org", True),
    ],
)
def test_a_way_to_another_host_without_tls_is_a_warning(place, warned):
    found = cache_warnings(resolve(None, {}, {"cache": place}))
    assert bool(found) == warned and all("rediss://" in one for one in found)


@pytest.mark.parametrize("place", ["redis://ann@host:1/2", "unix://ann@/run/s?db=1"])
def test_the_place_is_shown_without_its_user(place):
    shown = kept_where(resolve(None, {}, {"cache": place}))
    assert "ann" not in shown and shown.startswith(place.replace("ann@", ""))
