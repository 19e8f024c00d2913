"""Single flight: one load of a key at a time, and writes that overtake it.

A flight is one call of one loader, in the air from `join` to `land`. How a load and a write of the same key interleave:

1. A joins the key: there is no flight, so A leads and calls its loader.
2. B joins: A's flight is there, so B waits for A's answer.
3. C writes the key. The flight is marked overtaken: A's answer, which may be older than C's value, goes to A and B,
   who had asked before the write, and is not stored. Whoever joins later waits for the flight to land and looks again.
4. If A had begun to store its answer before C came, C waits until that is done; C's value then replaces it.
5. If C began before A joined, A's flight is overtaken from the start: nobody knows which of the two ends first.
"""

from collections.abc import Iterable
from concurrent import futures
from threading import Lock, get_ident
from typing import NamedTuple

from fednode.cache.backend import Missing
from fednode.cache.fork_safety import refuse_after_fork
from fednode.cache.values.freeze import Frozen


class Flight:
    """One load. `answer` is what its loader ended with; cancelled where that is neither a value nor an error: those who
    wait then load for themselves."""

    __slots__ = ("answer", "leader", "overtaken", "storing")

    def __init__(self, *, overtaken: bool) -> None:
        self.leader = get_ident()
        self.answer: futures.Future[Frozen | Missing] = futures.Future()
        self.overtaken = overtaken
        self.storing = False

    def abandon(self) -> None:
        """Wake those who wait, without an answer; no effect on a flight that has one."""
        if self.answer.cancel():
            self.answer.set_running_or_notify_cancel()


class Seat(NamedTuple):
    """A caller's place in a flight: whether it leads, and whether the answer is as new as its question."""

    flight: Flight
    leads: bool
    current: bool


class Flights:
    """The flights in the air, by key. Thread-safe; the cache below is never called under its lock."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._flights: dict[str, Flight] = {}
        self._waiting: dict[int, Flight] = {}
        self._writes: dict[str, int] = {}
        self._clears = 0
        refuse_after_fork(self, "_lock")

    def join(self, key: str) -> Seat:
        """Lead the flight of `key` if there is none, else wait for it with `wait`. A leader ends with `land`.

        Raises `RuntimeError` where waiting would never end, since the flight waits for this thread.
        """
        with self._lock:
            flight = self._flights.get(key)
            if flight is None:
                flight = Flight(overtaken=key in self._writes or self._clears > 0)
                self._flights[key] = flight
                return Seat(flight, leads=True, current=True)
            self._refuse_circle(key, flight)
            self._waiting[get_ident()] = flight
            return Seat(flight, leads=False, current=not flight.overtaken)

    def wait(self, flight: Flight, seconds: float) -> bool:
        """Wait at most `seconds` for a joined flight to land; whether it did."""
        try:
            return bool(futures.wait([flight.answer], seconds).done)
        finally:
            with self._lock:
                self._waiting.pop(get_ident(), None)

    def may_store(self, flight: Flight) -> bool:
        """Whether no write overtook `flight`. If so, writes of its key wait from now on until it lands."""
        with self._lock:
            flight.storing = not flight.overtaken
            return flight.storing

    def land(self, key: str, flight: Flight) -> None:
        """Take a flight out of the air before its answer is given, so that nobody joins one that is over."""
        with self._lock:
            if self._flights.get(key) is flight:
                del self._flights[key]

    def writing(self, keys: Iterable[str]) -> "Write":
        """A write of these keys, from entering to leaving the block."""
        return Write(self, tuple(keys))

    def clearing(self) -> "Write":
        """A write of every key there is."""
        return Write(self, None)

    def begin(self, keys: tuple[str, ...] | None) -> None:
        """Overtake the loads of `keys` (None: all) that are in the air; wait for those that are being stored."""
        with self._lock:
            if keys is None:
                self._clears += 1
                found = list(self._flights.values())
            else:
                for key in keys:
                    self._writes[key] = self._writes.get(key, 0) + 1
                found = [self._flights[key] for key in keys if key in self._flights] if self._flights else []
            for flight in found:
                flight.overtaken = True
        storing = [flight.answer for flight in found if flight.storing and flight.leader != get_ident()]
        if storing:
            futures.wait(storing)

    def end(self, keys: tuple[str, ...] | None) -> None:
        """The write of `keys` is over, done or refused."""
        with self._lock:
            if keys is None:
                self._clears -= 1
                return
            for key in keys:
                left = self._writes.pop(key) - 1
                if left:
                    self._writes[key] = left

    def _refuse_circle(self, key: str, flight: Flight) -> None:
        me, ahead = get_ident(), flight
        while ahead.leader != me:
            further = self._waiting.get(ahead.leader)
            if further is None or further.answer.done():
                return
            ahead = further
        raise RuntimeError(
            f"the loader of {key!r} asks for {key!r} again, directly or through another key's loader, and would wait "
            "for itself; give what it needs another key"
        )


class Write:
    """One write under way, as a block."""

    __slots__ = ("_flights", "_keys")

    def __init__(self, flights: Flights, keys: tuple[str, ...] | None) -> None:
        self._flights, self._keys = flights, keys

    def __enter__(self) -> None:
        self._flights.begin(self._keys)

    def __exit__(self, *_: object) -> None:
        self._flights.end(self._keys)
