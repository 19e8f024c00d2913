"""`fednode cache`: the commands, on a socket of a real live view."""

import io
import logging
import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from kit.clocks import FakeClock

from fednode.cache import Limits, MemoryBackend
from fednode.cache.wrappers.stack import Nested, nested
from fednode.cli import main
from fednode.live import SOCKET_NAME, LiveView, StoreView, Tuned, guard_knobs, memory_knobs
from fednode.live.stats import Extras

LIMITS = Limits(entries=200, total_bytes=4 << 20, value_bytes=1 << 20)
Told = tuple[int, str, str]


@pytest.fixture
def tuned() -> list[Tuned]:
    return []


@pytest.fixture
def nest() -> Nested:
    clock = FakeClock()
    return nested(MemoryBackend(clock, LIMITS), clock, lambda: 0.5)


@pytest.fixture
def run(tmp_path: Path, nest: Nested, tuned: list[Tuned], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "runs" / "run-1"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    memory, clock = nest.backend, FakeClock()
    assert isinstance(memory, MemoryBackend)
    updates = MemoryBackend(clock, LIMITS)
    updates.pin("update/1", b"sealed bytes")
    stores = {
        "parameters": StoreView(
            memory,
            Extras(counts=nest.cache.counts, limits=lambda: memory.limits, staleness=lambda: 1),
            (*guard_knobs(nest.guard), *memory_knobs(memory, 16)),
        ),
        "updates": StoreView(updates, sealed=True),
    }
    with LiveView(folder / SOCKET_NAME, stores, clock, tuned.append):
        yield folder


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    def call(*arguments: object) -> Told:
        capsys.readouterr()
        code = main(["cache", *map(str, arguments)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def test_stats_say_what_each_store_does(run: Path, nest: Nested, told: Callable[..., Told]) -> None:
    nest.cache.set("a", b"123", None)
    for key in ("a", "a", "a", "b"):
        nest.cache.get(key)
    code, out, err = told("stats")
    assert (code, err) == (0, "")
    for words in (
        "run run-1",
        "entries       1 of 200",
        "hit ratio     75.0 % of 4",
        "staleness     1 version at most",
    ):
        assert words in out
    assert "pinned        12 bytes in 1" in out.split("updates")[1]
    assert "hit ratio" not in out.split("updates")[1]
    assert told("stats", run)[1] == out


def test_stats_for_prometheus(run: Path, nest: Nested, told: Callable[..., Told]) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    nest.cache.get("absent")
    code, out, _ = told("stats", "--prometheus")
    samples = {
        (sample.name, sample.labels.get("store")): sample.value
        for family in parser.text_string_to_metric_families(out)
        for sample in family.samples
    }
    assert code == 0
    assert samples["fednode_cache_misses_total", "parameters"] == 1
    assert samples["fednode_cache_pinned_bytes", "updates"] == 12


@pytest.mark.parametrize("command", [("stats",), ("keys",), ("get", "k"), ("tune",)])
def test_without_a_running_node_there_is_a_sentence(
    tmp_path: Path, told: Callable[..., Told], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = told(*command)
    assert (code, out) == (3, "")
    assert err == "fednode: no run under runs is running; name the folder of a run that has not ended\n"
    code, _, err = told(*command, "elsewhere")
    assert (code, err.count("\n")) == (3, 1)
    assert "no node is running in elsewhere" in err


def test_get_says_what_is_there_and_saves_it(run: Path, nest: Nested, told: Callable[..., Told]) -> None:
    array = np.arange(200_000, dtype=np.float32).reshape(2, -1)
    nest.cache.set("layer", array, None)
    code, out, _ = told("get", "layer", "--out", "layer.npy")
    saved = Path("layer.npy").read_bytes()
    assert code == 0
    assert "kind     array of float32, shape (2, 100000)" in out
    assert f"sha256   {sha256(saved).hexdigest()}" in out
    assert np.array_equal(np.load(io.BytesIO(saved)), array)
    assert Path("layer.npy").stat().st_mode & 0o777 == 0o600
    code, _, err = told("get", "layer", "--out", "layer.npy")
    assert (code, "layer.npy exists" in err) == (2, True)


def test_get_keeps_what_is_sealed(run: Path, told: Callable[..., Told]) -> None:
    code, out, err = told("get", "update/1", run, "--out", "stolen")
    assert (code, Path("stolen").exists()) == (2, False)
    assert "sealed: its bytes stay in the node" in out
    assert "sealed and stays in the node" in err
    assert "sealed bytes" not in out + err


def test_get_of_nothing_is_a_sentence(run: Path, told: Callable[..., Told]) -> None:
    code, out, err = told("get", "absent")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "nothing under this key" in err


def test_a_key_in_two_stores_is_saved_from_the_one_that_is_named(
    run: Path, nest: Nested, told: Callable[..., Told]
) -> None:
    nest.cache.set("update/1", b"other", None)
    code, out, err = told("get", "update/1", "--out", "other")
    assert (code, out.count("store "), "--store" in err) == (2, 2, True)
    assert told("get", "update/1", "--out", "other", "--store", "parameters")[0] == 0
    assert Path("other").read_bytes() == b"other"


def test_keys_are_listed_and_harmless(run: Path, nest: Nested, told: Callable[..., Told]) -> None:
    nest.cache.set("evil\x1b[2J\x1b]0;title\x07\n\u202e\x9b", b"", None)
    for number in range(5):
        nest.cache.set(f"layer/{number}", b"", None)
    code, out, err = told("keys")
    assert (code, err, len(out.splitlines())) == (0, "", 7)
    assert out.isascii() or "\N{REPLACEMENT CHARACTER}" in out
    assert not set("\x1b\x07\u202e\x9b") & set(out)
    code, out, err = told("keys", "--prefix", "layer/", "--limit", "3")
    assert (code, len(out.splitlines()), "more than these 3" in err) == (0, 3, True)
    assert told("keys", "--store", "updates")[1] == "updates  update/1\n"
    assert told("keys", "--store", "else")[0] == 2


def test_tune_changes_and_records(
    run: Path, nest: Nested, tuned: list[Tuned], told: Callable[..., Told], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fednode.live")
    code, out, _ = told("tune", "--set", "parameters.jitter=0.25", "--set", "parameters.entries=100")
    assert (code, out) == (0, "parameters.jitter: 0.1 -> 0.25\nparameters.entries: 200 -> 100\n")
    assert nest.guard.settings.jitter == 0.25
    assert [(one.name, one.old, one.new) for one in tuned] == [("jitter", 0.1, 0.25), ("entries", 200, 100)]
    assert "parameters.jitter was changed from 0.1 to 0.25 while the node runs" in caplog.text
    shown = told("tune")[1].splitlines()
    assert any(line.startswith("parameters.entries = 100 ") and "entries at most: 1 or more" in line for line in shown)
    assert shown[-1] == "updates: nothing to change while the node runs"


def test_of_several_changes_none_is_made_where_one_cannot_work(
    run: Path, nest: Nested, tuned: list[Tuned], told: Callable[..., Told]
) -> None:
    before = nest.guard.settings
    code, out, err = told("tune", "--set", "parameters.jitter=0.25", "--set", "parameters.wait=-1")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert (nest.guard.settings, tuned) == (before, [])


def test_another_run_that_is_running_is_named(run: Path, told: Callable[..., Told]) -> None:
    assert told("stats")[2] == ""
    other = run.parent / "run-2"
    other.mkdir()
    with LiveView(other / SOCKET_NAME, {}, FakeClock()):
        os.utime(run / SOCKET_NAME, (1, 1))
        code, out, err = told("stats")
        assert (code, out.splitlines()[0]) == (0, "run run-2")
        assert "others are running too: runs/run-1" in err
        assert told("stats", run)[2] == ""


def test_a_file_in_no_folder_is_refused_with_what_to_do(run: Path, tmp_path: Path, told: Callable[..., Told]) -> None:
    code, out, err = told("get", "k", "--out", tmp_path / "nowhere" / "x")
    assert (code, out) == (2, "") and "there is no folder" in err and "--out" in err


@pytest.mark.parametrize(
    "change",
    ["parameters.jitter", "jitter=1", "parameters.jitter=much", "parameters.jitter=nan", "parameters.jitter=3"],
)
def test_tune_refuses_what_cannot_work(
    run: Path, nest: Nested, tuned: list[Tuned], told: Callable[..., Told], change: str
) -> None:
    before = nest.guard.settings
    code, out, err = told("tune", "--set", change)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert (nest.guard.settings, tuned) == (before, [])


def test_alone_it_shows_its_help(told: Callable[..., Told]) -> None:
    _, out, err = told()
    assert all(command in out + err for command in ("stats", "get", "keys", "tune"))
