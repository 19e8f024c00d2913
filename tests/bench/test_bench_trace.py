"""Replay of a trace: what is one, what cannot be beaten, what the policies make of it."""

import json
import re
from collections import OrderedDict
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.cache.stores import ManualClock
from benchmarks.harness.suite import Session
from benchmarks.trace import bounds, replay, report
from benchmarks.trace.reading import BadTrace, Trace, TraceRequest, read_trace
from benchmarks.trace.suite import Ratios, Replayed, TraceOptions, run_trace
from fednode.cache import MISSING
from fednode.cache.memory.policies import POLICIES
from fednode.errors import ConfigError

few_blocks = st.lists(st.integers(0, 5), max_size=12)
many_blocks = st.lists(st.integers(0, 30), min_size=1, max_size=200)


def line(stamp, *blocks):
    return json.dumps({"timestamp": stamp, "hash_ids": list(blocks), "input_length": 7})


def written(path, *lines):
    path.write_text("".join(text + "\n" for text in lines))
    return path


def trace_of(blocks):
    return Trace(tuple(TraceRequest(float(place), (block,)) for place, block in enumerate(blocks)))


def test_a_trace_is_times_in_seconds_and_blocks_in_order(tmp_path):
    path = written(tmp_path / "t", line(0, 1, 2), "", line(0, 2), "  ", line(1_500.5, 3))
    trace = read_trace(path)
    assert trace.requests == (TraceRequest(0.0, (1, 2)), TraceRequest(0.0, (2,)), TraceRequest(1.5005, (3,)))
    assert trace.accesses() == [1, 2, 2, 3]


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ("{", "JSON"),
        ("[" * 100_000, "JSON"),
        ("[1]", "object"),
        ("3", "object"),
        *(
            (f'{{"timestamp": {stamp}, "hash_ids": [1]}}', "timestamp")
            for stamp in ('"7"', "true", "NaN", "-1", "1" + "0" * 400, "null", "4")
        ),
        ('{"hash_ids": [1]}', "timestamp"),
        *((f'{{"timestamp": 7, "hash_ids": {ids}}}', "hash_ids") for ids in ('{"1": 2}', "[1, 2.5]", "[true]", "null")),
        ('{"timestamp": 7}', "hash_ids"),
    ],
)
def test_a_bad_line_is_named_in_one_sentence(tmp_path, bad, field):
    path = written(tmp_path / "t", line(5, 1), "", bad)
    with pytest.raises(BadTrace, match=f"line 3: .*{field}") as caught:
        read_trace(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_trace_is_named(tmp_path):
    path = tmp_path / "t"
    path.write_bytes(line(5, 1).encode() + b'\n{"timestamp": 7, "hash_ids": [1], "x": "\xff"}\n')
    with pytest.raises(BadTrace, match="line 2"):
        read_trace(path)
    for place in (tmp_path / "absent", tmp_path, written(tmp_path / "e"), written(tmp_path / "f", line(5))):
        with pytest.raises(BadTrace, match=str(place)):
            read_trace(place)


def best_possible(blocks, size):
    """Every choice of victim tried."""

    @cache
    def most(place, kept):
        if place == len(blocks):
            return 0
        block = blocks[place]
        if block in kept:
            return 1 + most(place + 1, kept)
        if len(kept) < size:
            return most(place + 1, kept | {block})
        return max(most(place + 1, kept - {victim} | {block}) for victim in kept)

    return most(0, frozenset())


@settings(max_examples=150, deadline=None)
@given(few_blocks, st.integers(1, 4))
def test_belady_is_what_the_best_of_all_choices_gives(blocks, size):
    assert bounds.belady_hits(blocks, size) == best_possible(tuple(blocks), size)


def test_an_infinite_cache_misses_each_block_once():
    assert bounds.infinite_hits([1, 1, 2, 1, 3]) == 2
    assert bounds.next_uses([1, 1, 2, 1])[:2] == [1, 3]


def lru_hits(blocks, size):
    kept, hits = OrderedDict(), 0
    for block in blocks:
        hits += block in kept
        kept[block] = None
        kept.move_to_end(block)
        if len(kept) > size:
            kept.popitem(last=False)
    return hits


@settings(max_examples=60, deadline=None)
@given(many_blocks, st.integers(1, 12))
def test_lru_through_the_real_cache_is_lru_and_nothing_beats_belady(blocks, size):
    trace, names = trace_of(blocks), {block: str(block) for block in blocks}
    found = {policy: replay.hits(trace, names, size, (policy, 0)) for policy in POLICIES}
    assert found["lru"] == lru_hits(blocks, size)
    ceiling = bounds.belady_hits(blocks, size)
    assert max(found.values()) <= ceiling <= bounds.infinite_hits(blocks)


class Recording:
    """A cache that remembers everything, and when it was asked."""

    def __init__(self, clock):
        self.clock, self.held, self.asked = clock, {}, []

    def get(self, key):
        self.asked.append((self.clock.now(), key))
        return self.held.get(key, MISSING)

    def set(self, key, value, ttl):
        assert ttl is None
        self.held[key] = value


def test_the_time_is_the_traces_own():
    clock = ManualClock()
    backend = Recording(clock)
    trace = Trace((TraceRequest(1.0, (1, 2)), TraceRequest(7.5, (1,))))
    assert replay.replay(trace, {1: "1", 2: "2"}, backend, clock) == 1
    assert backend.asked == [(1.0, "1"), (1.0, "2"), (7.5, "1")]


def test_each_seed_of_a_policy_that_draws_is_a_run_and_lru_is_always_there():
    assert TraceOptions(policies=("adaptive", "s3fifo"), seeds=3).runs() == [
        ("lru", 0), ("adaptive", 0), ("adaptive", 1), ("adaptive", 2), ("s3fifo", 0),
    ]  # fmt: skip


@pytest.mark.parametrize("wrong", [{"sizes": ()}, {"sizes": (0,)}, {"policies": ("magic",)}, {"seeds": 0}])
def test_options_that_cannot_work_are_refused(wrong):
    with pytest.raises(ConfigError):
        TraceOptions(**wrong)


@pytest.fixture
def replayed(tmp_path, session):
    """Replay 10 accesses to 5 blocks with jobs that are answered at once: 1 + seed hits at every size."""

    def answer(job):
        sizes = job.asked["sizes"]
        if job.name == "the bounds":
            return {"infinite": 5, "belady": [4 for _ in sizes]}
        return {"hits": [1 + job.asked["seed"] for _ in sizes]}

    def run(**options):
        made, said = session(answer)
        path = written(tmp_path / "trace.jsonl", line(0, 1, 2, 3, 4, 5), line(9, 1, 2, 3, 4, 5))
        return run_trace(path, TraceOptions(**options), made), made.processes.batches, said

    return run


def test_a_replay_has_the_median_and_the_range_of_the_seeds(replayed):
    found, batches, said = replayed(sizes=(2, 3), policies=("adaptive",), seeds=3)
    assert (found.requests, found.accesses, found.blocks, found.infinite) == (2, 10, 5, 0.5)
    assert found.belady == {2: 0.4, 3: 0.4}
    assert found.policies["adaptive"] == {size: Ratios(0.2, 0.1, 0.3) for size in (2, 3)}
    over = found.over_reference("adaptive", 2)
    assert (over.middle, over.low, over.high) == pytest.approx((1.0, 0.0, 2.0))
    assert found.over_reference("adaptive", 7) is None and found.over_reference("lfu", 2) is None
    assert sum(len(jobs) for jobs in batches) == 1 + 1 + 3
    assert "10 accesses" in said[0] and len(said) == 1 + len(batches)


def test_the_words_hold_each_policy_each_size_and_what_cannot_be_beaten(replayed):
    found, _, _ = replayed(sizes=(2, 3_000), policies=("adaptive", "lfu"), seeds=3)
    words = report.words(found)
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in words if row.startswith("| ")]
    assert rows == [
        ["policy", "2", "3,000"],
        ["lru", "10.00", "10.00"],
        ["adaptive", "20.00", "20.00"],
        ["adaptive, range", "10.00-30.00", "10.00-30.00"],
        ["lfu", "10.00", "10.00"],
        ["Belady", "40.00", "40.00"],
        ["policy", "2", "3,000"],
        ["adaptive", "+100.0", "+100.0"],
        ["lfu", "+0.0", "+0.0"],
    ]
    assert words[-1] == "an infinite cache: 50.00 %"


def test_the_reference_alone_is_compared_with_nothing(replayed):
    found, _, _ = replayed(sizes=(2,), policies=("lru",), seeds=1)
    words = report.words(found)
    assert not any("over lru" in line for line in words) and words[-2] == ""


def test_the_document_is_json_and_names_no_folder_and_the_plot_has_every_line(replayed, tmp_path):
    found, _, _ = replayed(sizes=(2,), policies=("adaptive",), seeds=3)
    results = report.results(found)
    text = json.dumps(results.document)
    rows = json.loads(text)["rows"]
    assert [row["policy"] for row in rows] == ["belady", "lru", "adaptive"]
    assert rows[2]["lowest"] == 0.1 and rows[2]["highest"] == 0.3 and rows[2]["over_lru"] == pytest.approx(1.0)
    assert str(tmp_path) not in text
    assert results.plot.count("<svg") == 1 and report.results(found).plot == results.plot
    assert {"lru", "adaptive", "Belady", "infinite"} <= set(re.findall(r">([^<>\n]+)</text>", results.plot))


def test_a_trace_that_lru_never_hits_has_no_ratio_to_it():
    nothing = {5: Ratios(0.0, 0.0, 0.0)}
    found = Replayed("t", 1, 5, 5, 0.0, {5: 0.0}, {"lru": nothing, "lfu": nothing})
    assert found.over_reference("lfu", 5) is None
    assert any(row.split("|")[1:3] == ["    lfu ", " - "] for row in report.words(found))


def test_a_real_run_in_processes_agrees_with_lru_by_hand(tmp_path):
    blocks = [number * number % 11 for number in range(60)]
    path = written(tmp_path / "t", *(line(stamp, block) for stamp, block in enumerate(blocks)))
    found = run_trace(path, TraceOptions(sizes=(2, 4), policies=("lru",)), Session(lambda line: None))
    assert found.policies["lru"][4].middle == lru_hits(blocks, 4) / 60
    assert found.belady[4] == bounds.belady_hits(blocks, 4) / 60
