"""What the node answers, without a socket: the facts of a value, keys within bounds, changes that are checked."""

import base64
import json
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.clocks import FakeClock

from fednode.cache import Limits, MemoryBackend
from fednode.cache.wrappers.stack import Nested, nested
from fednode.errors import ConfigError, DataError, PeerFault, StoreError
from fednode.live import Knob, StoreStats, StoreView, Tuned, guard_knobs, limit_knobs, memory_knobs
from fednode.live.export import file_of
from fednode.live.handlers import RequestHandler
from fednode.live.messages import MOST_ANSWERED, PIECE, line, parsed, raise_refusal
from fednode.live.schema import StatsAnswer, read_answer
from fednode.live.stats import Extras
from fednode.reasons import Reason

ROOMY = Limits(entries=5_000, total_bytes=8 << 20, value_bytes=4 << 20)


class Node:
    """Two stores as a node has them, and what was answered about them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.parameters = self.nest()
        self.updates = self.nest()
        self.staleness = 0
        self.tuned: list[Tuned] = []
        memory = self.parameters.backend
        assert isinstance(memory, MemoryBackend)
        self.memory = memory
        extras = Extras(
            counts=self.parameters.cache.counts,
            limits=lambda: memory.limits,
            invalidations=lambda: 7,
            staleness=lambda: self.staleness,
            ttl_left=lambda key: 12.5 if key == "p/1" else None,
            version=lambda key: 3 if key == "p/1" else None,
        )
        knobs = (
            *guard_knobs(self.parameters.guard),
            *memory_knobs(memory, 16),
            Knob("staleness", lambda: self.staleness, self.set_staleness, whole=True),
        )
        self.stores = {
            "parameters": StoreView(memory, extras, knobs),
            "updates": StoreView(self.updates.backend, sealed=True),
        }
        self.answers = RequestHandler(self.stores, self.clock, "run-1", self.tuned.append)

    def nest(self) -> Nested:
        return nested(MemoryBackend(self.clock, ROOMY), self.clock, lambda: 0.5)

    def set_staleness(self, value: float) -> None:
        if value < 0:
            raise ConfigError("staleness is 0 or more")
        self.staleness = int(value)

    def ask(self, do: str, **given: object) -> dict[str, Any]:
        answer = parsed(self.answers.answer(line({"do": do, **given})))
        raise_refusal(answer)
        return answer


@pytest.fixture
def node() -> Node:
    return Node()


def test_numbers_come_back_as_they_were(node: Node) -> None:
    node.parameters.cache.set("p/1", b"12345", None)
    node.parameters.cache.get("p/1")
    node.parameters.cache.get("absent")
    node.updates.cache.pin("u/1", b"sealed")
    answer = node.ask("stats")
    assert answer["run"] == "run-1"
    stats = {name: StoreStats(**found) for name, found in answer["stores"].items()}
    known = (stats["parameters"].hits, stats["parameters"].misses, stats["parameters"].invalidations)
    assert known == (1, 1, 7)
    assert (stats["parameters"].hit_ratio, stats["parameters"].limit_entries) == (0.5, 5_000)
    assert (stats["updates"].pinned_bytes, stats["updates"].hit_ratio) == (6, None)


@pytest.mark.parametrize("broken", [None, {}, {"entries": 1}, "all"])
def test_malformed_numbers_are_refused(broken: object) -> None:
    good: dict[str, Any] = asdict(StoreStats(1, 2))
    for found in (broken, {**good, "hits": -1}, {**good, "hits": True}, {**good, "bytes": None}, {**good, "more": 1}):
        with pytest.raises(PeerFault) as fault:
            read_answer(StatsAnswer, {"run": "r", "stores": {"a": found}})
        assert fault.value.reason == Reason.MALFORMED
    assert read_answer(StatsAnswer, {"run": "r", "stores": {"a": good}}).stores == {"a": StoreStats(1, 2)}


@pytest.mark.parametrize(
    ("value", "kind", "dtype", "shape", "file"),
    [
        (b"abc", "bytes", None, None, b"abc"),
        ("ü", "str", None, None, "ü".encode()),
        (None, "none", None, None, None),
        (3, "int", None, None, None),
        ({"a": [1.5, None]}, "dict", None, None, None),
        (np.arange(6, dtype="<f4").reshape(2, 3), "array", "float32", [2, 3], None),
    ],
)
def test_what_a_value_is(
    node: Node, value: object, kind: str, dtype: str | None, shape: list[int] | None, file: bytes | None
) -> None:
    node.parameters.cache.set("p/1", value, None)
    (found,) = node.ask("get", key="p/1")["found"]
    assert (found["store"], found["sealed"], found["kind"]) == ("parameters", False, kind)
    assert (found["dtype"], found["shape"], found["ttl_left"], found["version"]) == (dtype, shape, 12.5, 3)
    assert found["digest"] == sha256(file_of(value) if file is None else file).hexdigest()
    assert node.parameters.cache.counts().hits == 0


def test_a_tensor_is_told_from_an_array(node: Node) -> None:
    torch = pytest.importorskip("torch")
    node.parameters.cache.set("t", torch.ones(2, 2), None)
    node.parameters.cache.set("b", torch.ones(2, dtype=torch.bfloat16), None)
    found = [node.ask("get", key=key)["found"][0] for key in "tb"]
    assert [(one["kind"], one["dtype"], one["shape"]) for one in found] == [
        ("tensor", "torch.float32", [2, 2]),
        ("tensor", "torch.bfloat16", [2]),
    ]


def test_what_is_not_there_is_said_so(node: Node) -> None:
    with pytest.raises(DataError, match="nothing under this key"):
        node.ask("get", key="absent")
    with pytest.raises(ConfigError, match="it has parameters, updates"):
        node.ask("get", key="absent", store="else")


def fetched(node: Node, key: str) -> bytes:
    (found,) = node.ask("get", key=key)["found"]
    data = b""
    while True:
        answer = node.ask("fetch", store=found["store"], key=key, digest=found["digest"], offset=len(data))
        data += base64.b64decode(answer["data"])
        if len(data) == answer["bytes"]:
            return data


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
def test_a_value_is_fetched_in_pieces(node: Node, size: int) -> None:
    value = (bytes(range(256)) * (size // 256 + 1))[:size]
    node.parameters.cache.set("p", value, None)
    assert fetched(node, "p") == value
    assert node.answers._file is None


def test_what_is_sealed_is_described_and_stays(node: Node) -> None:
    node.updates.cache.pin("u/1", b"sealed bytes")
    (found,) = node.ask("get", key="u/1")["found"]
    assert (found["sealed"], found["size"]) == (True, 12)
    assert "sealed bytes" not in json.dumps(found)
    with pytest.raises(ConfigError, match="stays in the node"):
        node.ask("fetch", store="updates", key="u/1", digest=found["digest"])


def test_a_value_that_changed_is_not_mixed(node: Node) -> None:
    node.parameters.cache.set("p", bytes(2 * PIECE), None)
    (found,) = node.ask("get", key="p")["found"]
    node.ask("fetch", store="parameters", key="p", digest=found["digest"])
    node.parameters.cache.set("p", b"new", None)
    again = node.ask("fetch", store="parameters", key="p", digest=found["digest"], offset=PIECE)
    assert base64.b64decode(again["data"]) == bytes(PIECE)
    with pytest.raises(DataError, match="changed"):
        node.ask("fetch", store="parameters", key="p", digest=found["digest"])


def test_keys_are_bounded_and_sorted(node: Node) -> None:
    for number in range(20):
        node.parameters.cache.set(f"p/{number:02}", b"", None)
    node.updates.cache.set("u", b"", None)
    everything = node.ask("keys")
    assert (len(everything["keys"]), everything["more"]) == (21, False)
    assert everything["keys"] == sorted(everything["keys"])
    some = node.ask("keys", prefix="p/", limit=5)
    assert (len(some["keys"]), some["more"]) == (5, True)
    assert node.ask("keys", limit=20, store="parameters")["more"] is False
    assert node.ask("keys", store="updates")["keys"] == [["updates", "u"]]


def test_long_keys_do_not_make_a_long_answer(node: Node) -> None:
    for number in range(300):
        node.parameters.cache.set("\0" * 2_000 + str(number), b"", None)
    raw = node.answers.answer(line({"do": "keys", "limit": 10_000}))
    assert len(raw) <= MOST_ANSWERED
    assert (parsed(raw)["more"], len(parsed(raw)["keys"]) > 10) == (True, True)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("jitter", 0.1, 0.2), ("negative_ttl", 5.0, 0), ("wait", 60, 5.5), ("negative_entries", 10_000, 10)],
)
def test_the_guard_is_tuned(node: Node, name: str, old: float, new: float) -> None:
    answer = node.ask("tune", changes=[["parameters", name, new]])
    assert answer["made"] == [["parameters", name, old, new]]
    assert getattr(node.parameters.guard.settings, name) == new
    assert node.tuned == [Tuned(node.clock.time(), "parameters", name, old, new)]


def test_limits_batch_and_staleness_are_tuned(node: Node) -> None:
    for number in range(10):
        node.parameters.cache.set(f"p/{number}", b"", None)
    assert node.ask("tune", changes=[["parameters", "entries", 4]])["made"][0][2] == 5_000
    assert (node.memory.limits.entries, node.memory.usage().entries) == (4, 4)
    assert node.ask("tune", changes=[["parameters", "eviction_batch", 64]])["made"][0][2] == 16
    assert node.ask("tune", changes=[["parameters", "eviction_batch", 32]])["made"][0][2] == 64
    assert node.ask("tune", changes=[["parameters", "staleness", 2]])["made"][0][3] == 2
    assert ["parameters", "entries", 4, "entries at most", "1 or more"] in node.ask("knobs")["knobs"]
    assert node.staleness == 2


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("jitter", 0.9, r"^parameters\.jitter .* from 0 to 0\.5"),
        ("wait", 0, "above 0"),
        ("entries", 0, r"^parameters\.entries .* 1 or more"),
        ("entries", 1.5, "whole"),
        ("value_bytes", 1 << 30, "lower it"),
        ("eviction_batch", 0, "1 or more"),
        ("staleness", -1, "0 or more"),
        ("colour", 1, "no knob colour"),
        ("jitter", "0.1", "changes.0.2"),
        ("jitter", True, "changes.0.2"),
        ("jitter", 10**400, "changes.0.2"),
    ],
)
def test_what_cannot_work_is_refused_and_changes_nothing(node: Node, name: str, value: object, words: str) -> None:
    before = node.ask("knobs")
    with pytest.raises(ConfigError, match=words):
        node.ask("tune", changes=[["parameters", name, value]])
    assert node.ask("knobs") == before
    assert node.tuned == []


@pytest.mark.parametrize(
    "last",
    [
        ["parameters", "jitter", 0.9],
        ["parameters", "colour", 1],
        ["elsewhere", "jitter", 0.1],
        ["parameters", "jitter"],
        ["parameters", "value_bytes", 1 << 30],
    ],
)
def test_several_changes_are_all_made_or_none(node: Node, last: list[object]) -> None:
    before = node.ask("knobs")
    first = [["parameters", "negative_entries", 7], ["parameters", "entries", 4], ["parameters", "wait", 9.5]]
    with pytest.raises(ConfigError):
        node.ask("tune", changes=[*first, last])
    assert (node.ask("knobs"), node.tuned) == (before, [])
    assert isinstance(node.parameters.guard.settings.negative_entries, int)
    assert [row[3] for row in node.ask("tune", changes=first)["made"]] == [7, 4, 9.5]
    assert [one.name for one in node.tuned] == ["negative_entries", "entries", "wait"]


@pytest.mark.parametrize("turned", [1, -1])
def test_limits_are_held_against_each_other_as_they_come_out(node: Node, turned: int) -> None:
    grown = [["parameters", "value_bytes", 20 << 20], ["parameters", "total_bytes", 40 << 20]]
    shrunk = [["parameters", "total_bytes", 2_000], ["parameters", "entries", 50], ["parameters", "value_bytes", 1_000]]
    before = node.memory.limits
    made = node.ask("tune", changes=grown[::turned])["made"]
    assert {(name, old, new) for _, name, old, new in made} == {
        ("value_bytes", before.value_bytes, 20 << 20),
        ("total_bytes", before.total_bytes, 40 << 20),
    }
    assert node.memory.limits == Limits(before.entries, 40 << 20, 20 << 20)
    node.ask("tune", changes=shrunk[::turned])
    assert node.memory.limits == Limits(50, 2_000, 1_000) and len(node.tuned) == 5
    # one that does not fit in the end takes the others with it, and what is no limit too
    wrong = [["parameters", "jitter", 0.3], ["parameters", "entries", 60], ["parameters", "value_bytes", 2_001]]
    with pytest.raises(ConfigError, match="lower it"):
        node.ask("tune", changes=wrong[::turned])
    assert node.memory.limits == Limits(50, 2_000, 1_000) and node.parameters.guard.settings.jitter == 0.1
    with pytest.raises(ConfigError, match="changed twice"):
        node.ask("tune", changes=[["parameters", "entries", 60], ["parameters", "entries", 70]])
    assert len(node.tuned) == 5


def test_what_a_store_refuses_when_it_is_asked_takes_all_back(node: Node) -> None:
    before = node.ask("knobs")

    def refuse(value: float) -> None:
        raise StoreError("it is closed")

    knobs = (*node.stores["parameters"].turnable[:-1], Knob("staleness", lambda: 0, refuse, whole=True))
    node.stores["parameters"] = replace(node.stores["parameters"], turnable=knobs)
    changes = [["parameters", "entries", 60], ["parameters", "jitter", 0.3], ["parameters", "staleness", 1]]
    with pytest.raises(StoreError, match="closed"):
        node.ask("tune", changes=changes)
    after = node.ask("knobs")
    assert [row[:3] for row in after["knobs"]] == [row[:3] for row in before["knobs"]] and node.tuned == []


def test_a_limit_goes_no_lower_than_what_is_needed() -> None:
    memory = MemoryBackend(FakeClock(), Limits(4, 1_000, 100))
    knobs = {knob.name: knob for knob in memory_knobs(memory, 16, memory.limits)}
    for name in ("entries", "total_bytes", "value_bytes"):
        least = int(knobs[name].read())
        with pytest.raises(ConfigError, match=f"{least} or more"):
            knobs[name].turn(least - 1)
        assert knobs[name].turn(least + 1) == (least, least + 1)
        assert knobs[name].turn(least) == (least + 1, least)
        assert knobs[name].span == f"{least} or more"


def test_a_store_without_knobs_is_named(node: Node) -> None:
    assert node.ask("knobs")["fixed"] == [name for name in node.stores if name != "parameters"]
    assert all(means and span for _, name, _, means, span in node.ask("knobs")["knobs"] if name != "staleness")


def test_a_change_that_cannot_be_recorded_was_made_all_the_same(node: Node) -> None:
    def broken(_: Tuned) -> None:
        raise OSError("full")

    answers = RequestHandler(node.stores, node.clock, "run-1", broken)
    answer = parsed(answers.answer(line({"do": "tune", "changes": [["parameters", "jitter", 0.2]]})))
    assert (answer["ok"], node.parameters.guard.settings.jitter) == (True, 0.2)


class Broken:
    """A store on which everything fails."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError("secret words")


def test_a_broken_store_is_an_answer_without_its_words(node: Node) -> None:
    answers = RequestHandler({"broken": Broken()}, node.clock, "run-1")  # type: ignore[dict-item]
    for do in ("stats", "keys", "knobs"):
        raw = answers.answer(line({"do": do}))
        assert parsed(raw)["ok"] is False
        assert b"secret" not in raw


@given(
    st.binary(max_size=80)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("tune") | st.just("fetch"),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["do", "key", "store", "name", "value", "offset", "limit"]), inner, max_size=5
            )
        ),
        max_leaves=8,
    ).map(lambda found: json.dumps(found).encode())
)
@settings(max_examples=300, deadline=None)
def test_any_line_has_an_answer(request: bytes) -> None:
    node = Node()
    raw = node.answers.answer(request)
    assert raw.endswith(b"\n")
    assert raw.count(b"\n") == 1
    assert isinstance(parsed(raw)["ok"], bool)


def test_a_deeply_nested_line_has_an_answer(node: Node) -> None:
    raw = node.answers.answer(b'{"do":' + b"[" * 10_000)
    assert parsed(raw)["ok"] is False


class Room:
    """A cache with limits and no victims to choose."""

    def __init__(self) -> None:
        self.limits = Limits(4, 1_000, 100)

    def tune(self, limits: Limits) -> None:
        self.limits = limits


def test_a_cache_that_chooses_no_victims_has_its_limits_to_turn() -> None:
    room = Room()
    knobs = {knob.name: knob for knob in limit_knobs(room, Limits(2, 1_000, 100))}
    assert set(knobs) == {"entries", "total_bytes", "value_bytes"}
    assert knobs["entries"].turn(2) == (4, 2) and room.limits == Limits(2, 1_000, 100)
    for name, value in (("entries", 1), ("total_bytes", 999), ("value_bytes", 1_001)):
        with pytest.raises(ConfigError):
            knobs[name].turn(value)
    assert room.limits == Limits(2, 1_000, 100)
