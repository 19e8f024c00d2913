"""Replay of a trace: what is one, what cannot be beaten, what the policies make of it."""

import json
from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.trace import bounds, replay, report
from benchmarks.trace.reading import BadTrace, Trace, TraceRequest, read_trace
from benchmarks.trace.suite import Ratios, TraceOptions, run_trace
from fednode.cache.memory.policies import POLICIES

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
        ("[1]", "object"),
        *((f'{{"timestamp": {stamp}, "hash_ids": [1]}}', "timestamp") for stamp in ('"7"', "NaN", "-1", "4")),
        *((f'{{"timestamp": 7, "hash_ids": {ids}}}', "hash_ids") for ids in ('{"1": 2}', "[1, 2.5]")),
    ],
)
def test_a_bad_line_is_named(tmp_path, bad, field):
    with pytest.raises(BadTrace, match=f"line 3: .*{field}"):
        read_trace(written(tmp_path / "t", line(5, 1), "", bad))


def test_a_file_that_is_no_trace_is_named(tmp_path):
    for place in (tmp_path / "absent", tmp_path, written(tmp_path / "e"), written(tmp_path / "f", line(5))):
        with pytest.raises(BadTrace, match=str(place)):
            read_trace(place)


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


def test_a_replay_has_the_median_and_the_range_of_the_seeds(tmp_path, session):
    """10 accesses to 5 blocks, with jobs that are answered at once: 1 + seed hits at every size."""

    def answer(job):
        sizes = job.asked["sizes"]
        if job.name == "the bounds":
            return {"infinite": 5, "belady": [4 for _ in sizes]}
        return {"hits": [1 + job.asked["seed"] for _ in sizes]}

    made, _ = session(answer)
    path = written(tmp_path / "trace.jsonl", line(0, 1, 2, 3, 4, 5), line(9, 1, 2, 3, 4, 5))
    found = run_trace(path, TraceOptions(sizes=(2, 3_000), policies=("adaptive", "lfu"), seeds=3), made)
    assert (found.requests, found.accesses, found.blocks, found.infinite) == (2, 10, 5, 0.5)
    assert found.policies["adaptive"] == {size: Ratios(0.2, 0.1, 0.3) for size in (2, 3_000)}
    assert found.over_reference("adaptive", 7) is None and found.over_reference("s3fifo", 2) is None
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
