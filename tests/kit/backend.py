"""The conformance kit of a cache backend: subclass `BackendKit` in a test module and say how to make one.

    class TestMyBackend(BackendKit):
        def make(self, clock, limits): return MyBackend(clock, limits)

What depends on eviction or refusal is tested where the backend is; here stands what all of them promise.
"""

import threading

import pytest
from kit.clocks import FakeClock

from fednode.cache import MISSING, CacheBackend, Limits, TooLarge

ROOMY = Limits(entries=1_000, total_bytes=1 << 20, value_bytes=1 << 16)


class BackendKit:
    def make(self, clock: FakeClock, limits: Limits) -> CacheBackend:
        raise AssertionError("a conformance class says how its backend is made")

    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def backend(self, clock: FakeClock) -> CacheBackend:
        return self.make(clock, ROOMY)

    def test_a_miss_and_an_empty_value_differ(self, backend: CacheBackend) -> None:
        backend.set("empty", b"", None)
        assert backend.get("empty") == b""
        assert backend.get("absent") is MISSING

    def test_the_last_value_wins(self, backend: CacheBackend) -> None:
        backend.set("key", b"old", None)
        backend.set("key", b"new", None)
        assert backend.get("key") == b"new"

    @pytest.mark.parametrize("key", ["", "a/b", "a%2Fb", "ü \n", "x" * 300])
    def test_any_text_is_a_key_of_its_own(self, backend: CacheBackend, key: str) -> None:
        backend.set(key, b"1", None)
        backend.set(key + ".", b"2", None)
        assert (backend.get(key), backend.get(key + ".")) == (b"1", b"2")

    def test_expiry_is_absolute_and_reading_does_not_extend_it(self, backend: CacheBackend, clock: FakeClock) -> None:
        backend.set("key", b"v", 10.0)
        for _ in range(9):
            clock.sleep(1.0)
            assert backend.get("key") == b"v"
        clock.sleep(1.0)
        assert backend.get("key") is MISSING

    def test_overwriting_replaces_the_expiry(self, backend: CacheBackend, clock: FakeClock) -> None:
        backend.set("longer", b"v", 1.0)
        backend.set("longer", b"v", 10.0)
        backend.set("for ever", b"v", 1.0)
        backend.set("for ever", b"v", None)
        backend.set("shorter", b"v", None)
        backend.set("shorter", b"v", 1.0)
        clock.sleep(5.0)
        backend.sweep()
        assert [backend.get(key) for key in ("longer", "for ever", "shorter")] == [b"v", b"v", MISSING]

    def test_delete_tells_whether_it_was_there(self, backend: CacheBackend, clock: FakeClock) -> None:
        backend.set("key", b"v", None)
        backend.set("expired", b"v", 1.0)
        clock.sleep(2.0)
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
        clock.sleep(2.0)
        assert (backend.sweep(), backend.sweep()) == (2, 0)
        assert backend.get("ttl 3.0") == b"v"

    @pytest.mark.parametrize("ttl", [0.0, -1.0, float("nan"), float("inf")])
    def test_a_ttl_that_means_nothing_is_refused(self, backend: CacheBackend, ttl: float) -> None:
        backend.set("key", b"old", None)
        with pytest.raises(ValueError, match="time to live"):
            backend.set("key", b"new", ttl)
        assert backend.get("key") == b"old"

    def test_a_value_over_the_single_limit_is_refused_with_its_size(self, clock: FakeClock) -> None:
        backend = self.make(clock, Limits(entries=10, total_bytes=100, value_bytes=8))
        backend.set("key", b"12345678", None)
        with pytest.raises(TooLarge, match="9 bytes") as refusal:
            backend.set("key", b"123456789", None)
        assert (refusal.value.size, refusal.value.limit) == (9, 8)
        assert backend.get("key") == b"12345678"

    def test_a_caller_cannot_reach_what_is_stored(self, backend: CacheBackend) -> None:
        buffer = bytearray(b"before")
        backend.set("key", buffer, None)  # type: ignore[arg-type]
        buffer[:] = b"after!"
        assert backend.get("key") == b"before"
        assert isinstance(backend.get("key"), bytes)

    def test_what_is_not_bytes_is_refused(self, backend: CacheBackend) -> None:
        with pytest.raises(TypeError):
            backend.set("key", 3, None)  # type: ignore[arg-type]
        assert backend.get("key") is MISSING

    def test_threads_read_only_what_was_written(self, backend: CacheBackend) -> None:
        strange: list[object] = []
        names = [f"key {number}" for number in range(8)]

        def hammer(thread: int) -> None:
            for turn in range(200):
                name = names[(turn + thread) % len(names)]
                backend.set(name, f"{name}|{thread}|{turn}".encode() * 20, 1.0 if turn % 3 else None)
                seen = backend.get(name)
                if seen is not MISSING and not seen.startswith(f"{name}|".encode()):
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
