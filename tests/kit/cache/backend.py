"""The conformance kit of a cache backend: subclass `BackendKit` in a test module and say how to make one.

    class TestMyBackend(BackendKit):
        def make(self, clock, limits): return MyBackend(clock, limits)

`pass_time` is for a backend whose server has a clock. `kit.cache.backend_machine` has the random walk against a
dict. What depends on eviction or refusal is tested where the backend is; here stands what all of them promise.
"""

import contextlib
import struct
import sys
import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from kit.clocks import FakeClock

from fednode.cache import MISSING, CacheBackend, Limits, StoreFull, TooLarge

ROOMY = Limits(entries=1_000, total_bytes=1 << 20, value_bytes=1 << 16)


class BackendKit:
    def make(self, clock: FakeClock, limits: Limits) -> CacheBackend:
        raise AssertionError("a conformance class says how its backend is made")

    def pass_time(self, clock: FakeClock, seconds: float) -> None:
        clock.sleep(seconds)

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def backend(self, clock: FakeClock) -> CacheBackend:
        return self.make(clock, ROOMY)

    def test_a_miss_and_an_empty_value_differ(self, backend: CacheBackend) -> None:
        backend.set("empty", b"full", None)
        backend.set("empty", b"", None)
        assert backend.get("empty") == b""
        assert backend.get("absent") is MISSING and not backend.get("absent")

    @pytest.mark.parametrize("key", ["", "a/b", "a%2Fb", "ü \n", "x" * 300])
    def test_any_text_is_a_key_of_its_own(self, backend: CacheBackend, key: str) -> None:
        backend.set(key, b"1", None)
        backend.set(key + ".", b"2", None)
        assert (backend.get(key), backend.get(key + ".")) == (b"1", b"2")

    @pytest.mark.parametrize("key", [5, b"key", None, 1.5, ("key",), True, np.str_("key")], ids=repr)
    def test_what_is_no_text_is_no_key(self, backend: CacheBackend, key: Any) -> None:
        backend.set("key", b"v", None)
        calls: list[Callable[[], object]] = [
            lambda: backend.get(key),
            lambda: backend.get_many(["key", key]),
            lambda: backend.set(key, b"1", None),
            lambda: backend.set_many({key: 1}, None),
            lambda: backend.pin(key, b"1"),
            lambda: backend.delete(key),
            lambda: list(backend.keys(key)),
        ]
        for call in calls:
            with pytest.raises(TypeError, match="cache keys must be str"):
                call()
        assert list(backend.keys()) == ["key"] and backend.get("key") == b"v"
        assert (backend.usage().entries, backend.usage().pinned_entries) == (1, 0)

    def test_expiry_is_absolute_and_reading_does_not_extend_it(self, backend: CacheBackend, clock: FakeClock) -> None:
        backend.set("key", b"v", 10.0)
        for _ in range(9):
            self.pass_time(clock, 1.0)
            assert backend.get("key") == b"v"
        self.pass_time(clock, 1.0)
        assert backend.get("key") is MISSING

    def test_overwriting_replaces_the_expiry(self, backend: CacheBackend, clock: FakeClock) -> None:
        backend.set("longer", b"v", 1.0)
        backend.set("longer", b"v", 10.0)
        backend.set("for ever", b"v", 1.0)
        backend.set("for ever", b"v", None)
        backend.set("shorter", b"v", None)
        backend.set("shorter", b"v", 1.0)
        self.pass_time(clock, 5.0)
        backend.sweep()
        assert [backend.get(key) for key in ("longer", "for ever", "shorter")] == [b"v", b"v", MISSING]

    def test_delete_tells_whether_it_was_there(self, backend: CacheBackend, clock: FakeClock) -> None:
        backend.set("key", b"v", None)
        backend.set("expired", b"v", 1.0)
        self.pass_time(clock, 2.0)
        assert [backend.delete(key) for key in ("key", "key", "absent", "expired")] == [True, False, False, False]
        assert backend.get("key") is MISSING

    def test_clear_forgets_everything(self, backend: CacheBackend) -> None:
        backend.set("a", b"1", None)
        backend.set("b", b"2", 5.0)
        backend.clear()
        assert (backend.get("a"), backend.get("b"), backend.sweep()) == (MISSING, MISSING, 0)

    def test_sweep_frees_exactly_what_expired(self, backend: CacheBackend, clock: FakeClock) -> None:
        for ttl in (1.0, 2.0, 3.0, None):
            backend.set(f"ttl {ttl}", b"v", ttl)
        self.pass_time(clock, 2.0)
        assert (backend.sweep(), backend.sweep()) == (2, 0)
        assert backend.get("ttl 3.0") == b"v"

    @pytest.mark.parametrize("ttl", [0.0, -1.0, float("nan"), float("inf"), 10**400, True, "5"], ids=range(7))
    def test_a_ttl_that_means_nothing_is_refused(self, backend: CacheBackend, ttl: float) -> None:
        backend.set("key", b"old", None)
        with pytest.raises(ValueError, match="time to live"):
            backend.set("key", b"new", ttl)
        assert backend.get("key") == b"old"

    @pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int8, Fraction])
    def test_a_ttl_of_any_kind_of_number_is_as_long(self, backend: CacheBackend, clock: FakeClock, kind: Any) -> None:
        # where a narrow number plus the time is far off
        clock.sleep(123_456.75)
        backend.set("set", b"v", kind(3))
        backend.set_many({"many": b"v"}, kind(3))
        self.pass_time(clock, 2.0)
        assert list(backend.get_many(["set", "many"])) == ["set", "many"]
        self.pass_time(clock, 1.5)
        assert backend.get_many(["set", "many"]) == {}

    @pytest.mark.parametrize("items", [None, 5, "ab", [("a", 1)], {"a"}], ids=repr)
    @pytest.mark.parametrize("ttl", [None, 5.0])
    def test_many_are_set_from_a_mapping_alone(self, backend: CacheBackend, items: Any, ttl: float | None) -> None:
        with pytest.raises(TypeError, match="dict"):
            backend.set_many(items, ttl)
        assert list(backend.keys()) == []

    @pytest.mark.parametrize("dtype", [">i4", "M8[s]"])
    def test_the_dtype_of_what_comes_out_is_its_own(self, backend: CacheBackend, dtype: str) -> None:
        array = np.arange(3).astype(dtype)
        backend.set("key", array, None)
        out: Any = backend.get("key")
        out.dtype.__setstate__(
            (3, "<", None, None, None, -1, -1, 0) + ((({}, ("h", 1, 1, 1)),) if dtype[0] == "M" else ())
        )
        assert same(backend.get("key"), array)

    def test_a_value_over_the_single_limit_is_refused_with_its_size(self, clock: FakeClock) -> None:
        backend = self.make(clock, Limits(entries=10, total_bytes=100, value_bytes=8))
        backend.set("key", b"12345678", None)
        with pytest.raises(TooLarge, match="9 bytes") as refusal:
            backend.set("key", b"123456789", None)
        assert (refusal.value.size, refusal.value.limit) == (9, 8)
        assert backend.get("key") == b"12345678"

    def test_a_refused_value_leaves_the_old_one(self, clock: FakeClock) -> None:
        backend = self.make(clock, Limits(entries=10, total_bytes=100, value_bytes=8))
        backend.set("key", b"old", None)
        with pytest.raises(TooLarge):
            backend.pin("key", bytes(9))
        with pytest.raises(TooLarge):
            backend.set("key", np.zeros(2), None)
        with pytest.raises(TypeError, match="cannot be cached"):
            backend.set("key", {"key": object()}, None)
        with pytest.raises(ValueError, match="surrogate"):
            backend.set("key", "\ud800", None)
        assert backend.get("key") == b"old"

    @pytest.mark.parametrize(
        "value",
        [None, False, -0.0, 1 << 70, "text ü", b"\0", (), [], {}, np.arange(6, dtype=">i2").reshape(2, 3)[:, ::2]],
        ids=str,
    )
    def test_every_kind_of_value_comes_back_as_it_was(self, backend: CacheBackend, value: object) -> None:
        nested = {"in a": [value, (value,)]}
        backend.set("alone", value, None)
        backend.set("nested", nested, None)
        assert same(backend.get("alone"), value)
        assert same(backend.get("nested"), nested)

    @pytest.mark.parametrize("kind", ["bytearray", "memoryview", "array", "tensor", "nested"])
    @pytest.mark.parametrize("way", ["set", "pin", "set_many"])
    def test_a_caller_cannot_reach_what_is_stored(self, backend: CacheBackend, kind: str, way: str) -> None:
        value, change = changeable(kind)
        expected, _ = changeable(kind)
        if isinstance(value, (bytearray, memoryview)):
            expected = bytes(value)
        if way == "set_many":
            backend.set_many({"key": value}, None)
        else:
            backend.pin("key", value) if way == "pin" else backend.set("key", value, None)
        change(value)
        assert same(backend.get("key"), expected)
        for out in (backend.get("key"), backend.get_many(["key"])["key"]):
            with contextlib.suppress(TypeError, ValueError):
                change(out)
        assert same(backend.get("key"), expected)

    def test_many_are_found_in_the_order_asked(self, backend: CacheBackend, clock: FakeClock) -> None:
        backend.set_many({f"key {number}": number for number in range(50)}, None)
        backend.set("expired", b"v", 1.0)
        self.pass_time(clock, 2.0)
        asked = [f"key {number}" for number in range(60, -1, -3)]
        found = backend.get_many(iter(["expired", *asked, "absent", asked[-1]]))
        assert list(found.items()) == [(key, int(key[4:])) for key in asked if int(key[4:]) < 50]
        assert backend.get_many([]) == {}

    def test_setting_many_ends_at_the_first_refusal(self, clock: FakeClock) -> None:
        backend = self.make(clock, Limits(entries=10, total_bytes=100, value_bytes=8))
        with pytest.raises(TooLarge):
            backend.set_many({"before": b"1", "refused": bytes(9), "after": b"2"}, 5.0)
        assert [backend.get(key) for key in ("before", "refused", "after")] == [b"1", MISSING, MISSING]
        self.pass_time(clock, 5.0)
        assert backend.get("before") is MISSING

    def test_a_pin_has_no_expiry_and_ends_with_a_set_or_a_delete(self, backend: CacheBackend, clock: FakeClock) -> None:
        backend.set("pinned", b"old", 1.0)
        for key in ("pinned", "set", "deleted"):
            backend.pin(key, b"pin")
        usage = backend.usage()
        assert (usage.pinned_entries, usage.pinned_bytes) == (3, 9)
        backend.set("set", b"value", 5.0)
        assert backend.delete("deleted")
        self.pass_time(clock, 6.0)
        backend.sweep()
        assert [backend.get(key) for key in ("pinned", "set", "deleted")] == [b"pin", MISSING, MISSING]
        usage = backend.usage()
        assert (usage.entries, usage.pinned_entries, usage.pinned_bytes) == (1, 1, 3)
        backend.clear()
        assert backend.usage().pinned_entries == 0

    def test_pins_are_refused_where_pins_leave_no_room(self, clock: FakeClock) -> None:
        backend = self.make(clock, Limits(entries=10, total_bytes=20, value_bytes=8))
        backend.pin("a", bytes(8))
        backend.pin("b", bytes(8))
        backend.set("c", b"1", None)
        for store in (backend.pin, lambda key, value: backend.set(key, value, None)):
            with pytest.raises(StoreFull, match="no room"):
                store("c", bytes(8))
        assert (backend.get("a"), backend.get("b"), backend.get("c")) == (bytes(8), bytes(8), b"1")
        backend.delete("a")
        backend.pin("d", bytes(8))
        assert (backend.get("b"), backend.get("d")) == (bytes(8), bytes(8))

    def test_keys_are_those_alive_under_a_prefix(self, backend: CacheBackend, clock: FakeClock) -> None:
        backend.set_many({"a/1": b"", "a/2": b"", "b/1": b""}, None)
        backend.set("a/expired", b"", 1.0)
        backend.pin("a/pinned", b"")
        self.pass_time(clock, 2.0)
        assert sorted(backend.keys("a/")) == ["a/1", "a/2", "a/pinned"]
        assert sorted(backend.keys()) == ["a/1", "a/2", "a/pinned", "b/1"]
        for key in list(backend.keys()):
            backend.delete(key)
        assert list(backend.keys()) == []

    def test_usage_counts_what_is_there(self, backend: CacheBackend, clock: FakeClock) -> None:
        backend.set("a", b"1234", 1.0)
        backend.set("b", b"12", None)
        assert (backend.usage().entries, backend.usage().bytes) == (2, 6)
        self.pass_time(clock, 2.0)
        backend.sweep()
        usage = backend.usage()
        assert (usage.entries, usage.bytes, usage.expiries, usage.evictions, usage.damaged) == (1, 2, 1, 0, 0)

    def test_threads_read_only_what_was_written(self, backend: CacheBackend) -> None:
        strange: list[object] = []
        names = [f"key {number}" for number in range(8)]

        def hammer(thread: int) -> None:
            for turn in range(200):
                name = names[(turn + thread) % len(names)]
                backend.set(name, f"{name}|{thread}|{turn}".encode() * 20, 1.0 if turn % 3 else None)
                seen = backend.get(name)
                if seen is not MISSING and not (isinstance(seen, bytes) and seen.startswith(f"{name}|".encode())):
                    strange.append(seen)
                if turn % 17 == 0:
                    backend.delete(name)
                    backend.sweep()

        threads = [threading.Thread(target=hammer, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert strange == []

    @pytest.mark.parametrize("wrap", [lambda array: array, lambda array: {"deep": [array]}], ids=["alone", "nested"])
    def test_what_lies_under_an_array_is_out_of_reach_too(self, backend: CacheBackend, wrap: Any) -> None:
        backend.set("key", wrap(np.arange(8, dtype=np.dtype("i8", metadata={"any": [1]}))), None)
        out: Any = backend.get("key")
        under = out["deep"][0] if isinstance(out, dict) else out
        while isinstance(under, np.ndarray):
            assert under.dtype.metadata is None
            with contextlib.suppress(ValueError):
                under.shape = (2, 4)
            under = under.base
        assert same(backend.get("key"), wrap(np.arange(8)))


def changeable(kind: str) -> tuple[Any, Callable[[Any], None]]:
    """A value of a kind that can be changed in place, and what changes it."""
    if kind == "tensor":
        import torch

        return torch.arange(4.0), lambda tensor: tensor.fill_(9.0)
    if kind == "array":
        return np.arange(4.0), lambda array: array.fill(9.0)
    if kind == "nested":
        return {"list": [{"array": np.arange(3)}, [1, 2]]}, _change_nested
    buffer = bytearray(b"before")
    return (buffer if kind == "bytearray" else memoryview(buffer)), _change_buffer


def _change_buffer(buffer: Any) -> None:
    buffer[:] = b"after!"


def _change_nested(value: Any) -> None:
    value["list"][1].append(3)
    value["more"] = 1
    value["list"][0]["array"][0] = 9


def _octets(tensor: Any) -> Any:
    import torch

    plain = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8)


def same(one: Any, other: Any) -> bool:
    """Whether two cached values are alike to the bit: types, dtypes, shapes, order of keys, signs, NaN bits."""
    torch: Any = sys.modules.get("torch")
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if torch is not None and isinstance(one, torch.Tensor):
        octets = [_octets(each) for each in (one, other)]
        return bool(one.dtype == other.dtype and one.shape == other.shape and torch.equal(*octets))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack("<d", one) == struct.pack("<d", other)
    return bool(one == other)
