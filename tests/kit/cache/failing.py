"""A backend that fails, or lets something else happen, in the middle of a call."""

from collections.abc import Callable

from kit.clocks import FakeClock

from fednode.cache import Limits, MemoryBackend, Missing
from fednode.cache.backend import Value
from fednode.errors import StoreError

ROOMY = Limits(10_000, 1 << 24, 1 << 16)


class FailingBackend(MemoryBackend):
    """Fails before a call for which `fails` is true of verb and key, and counts that; after each call it does `then`.

    The verbs are get, pin, delete, and expire (a `set` with a time to live).
    """

    def __init__(self, limits: Limits = ROOMY) -> None:
        super().__init__(FakeClock(), limits, shards=1)
        self.fails: Callable[[str, str], bool] = lambda *_: False
        self.then: Callable[[str], object] = lambda _: None
        self.error = StoreError("could not reach the server")
        self.failed = 0

    def _ask(self, verb: str, key: str) -> None:
        if self.fails(verb, key):
            self.failed += 1
            raise self.error

    def get(self, key: str) -> Value | Missing:
        self._ask("get", key)
        value = super().get(key)
        self.then("get")
        return value

    def pin(self, key: str, value: Value) -> None:
        self._ask("pin", key)
        super().pin(key, value)
        self.then("pin")

    def set(self, key: str, value: Value, ttl: float | None) -> None:
        if ttl is not None:
            self._ask("expire", key)
        super().set(key, value, ttl)

    def delete(self, key: str) -> bool:
        self._ask("delete", key)
        return super().delete(key)

    def once(self, verb: str, then: Callable[[], object]) -> None:
        """Do `then` in the middle of the next call of `verb`, when its value has been read or stored."""

        def after(done: str) -> None:
            if done == verb:
                self.then = lambda _: None
                then()

        self.then = after
