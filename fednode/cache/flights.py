"""Who loads which key right now: one load a key, writes that overtake it, and no thread that waits for itself.

A flight is one call of one loader. It is in the air from `join` to `land`. A write of the same key either comes before
its answer is stored, and then the answer is not stored, or waits the moment that storing takes.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from threading import Event, Lock, get_ident

from fednode.cache.backend import MISSING, Missing, Value
from fednode.cache.forked import mend_after_fork
from fednode.cache.owned import Frozen, thaw


class Flight:
    """One load of one key. Whoever finds it in the air waits for `landed` and takes `outcome`."""

    __slots__ = ("_answer", "_error", "landed", "leader", "overtaken", "settled", "storing")

    def __init__(self) -> None:
        self.leader = get_ident()
        self.landed = Event()
        self.overtaken = False
        self.storing = False
        self.settled = False
        self._error: Exception | None = None
        self._answer: Frozen | Missing = MISSING

    def answer(self, found: Frozen | Missing) -> None:
        """The load ended with `found`."""
        self._answer = found
        self.settled = True

    def fail(self, error: Exception) -> None:
        """The load ended with `error`, of which everybody who waits gets a copy."""
        self._error = error
        self.settled = True

    def outcome(self) -> Value | Missing:
        """What the load ended with, for one caller alone. Raises its error. Only once it is settled."""
        if self._error is not None:
            raise _own_copy(self._error)
        return MISSING if isinstance(self._answer, Missing) else thaw(self._answer)


class Flights:
    """The flights in the air, by key. Thread-safe; no call of the cache below is made under its lock."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._flights: dict[str, Flight] = {}
        self._waiting: dict[int, Flight] = {}
        self._writers: dict[str, int] = {}
        self._clearing = 0
        mend_after_fork(self)

    def after_fork(self) -> None:
        """In a forked child: what other threads load or write goes on in the parent alone, and nobody waits for it."""
        me = get_ident()
        self._lock = Lock()
        self._flights = {key: flight for key, flight in self._flights.items() if flight.leader == me}
        self._waiting, self._writers, self._clearing = {}, {}, 0

    def join(self, key: str, mine: Flight) -> tuple[Flight, bool]:
        """The flight of `key`, which is `mine` if there was none; and whether its answer may be taken.

        It may not where a write came since it took off: wait for it to land, then look again. Raises `RuntimeError`
        where waiting would never end, since the flight waits for this thread.
        """
        with self._lock:
            flight = self._flights.get(key)
            if flight is None:
                # a write on its way may end before this load or after it: what is loaded is then not stored
                mine.overtaken = self._clearing > 0 or key in self._writers
                self._flights[key] = mine
                return mine, True
            self._refuse_circle(key, flight)
            self._waiting[get_ident()] = flight
            return flight, not flight.overtaken

    def wait(self, flight: Flight, seconds: float) -> bool:
        """Wait until a joined `flight` landed, at most `seconds`; whether it did."""
        try:
            return flight.landed.wait(seconds)
        finally:
            with self._lock:
                self._waiting.pop(get_ident(), None)

    def may_store(self, flight: Flight) -> bool:
        """Whether no write overtook `flight`. If so, writes of its key wait from now on until it lands."""
        with self._lock:
            flight.storing = not flight.overtaken
            return flight.storing

    def land(self, key: str, flight: Flight) -> None:
        """End a flight, whatever came of it; harmless for one that never took off, and twice."""
        with self._lock:
            if self._flights.get(key) is flight:
                del self._flights[key]
        flight.landed.set()

    def begin_write(self, key: str) -> None:
        """A write of `key` begins: a load in the air is overtaken, and none that takes off meanwhile is stored."""
        busy = None
        with self._lock:
            writers = self._writers
            writers[key] = writers[key] + 1 if key in writers else 1
            if self._flights:
                busy = self._overtaken(self._flights.get(key))
        if busy is not None:
            try:
                busy.landed.wait()
            except BaseException:
                # interrupted: nobody will write, and a count left behind would keep every load from being stored
                self.end_write(key)
                raise

    def end_write(self, key: str) -> None:
        """The write of `key` is done, or was refused."""
        with self._lock:
            # none where a fork came in between
            left = self._writers.pop(key, 1) - 1
            if left:
                self._writers[key] = left

    def begin_writes(self, keys: Sequence[str]) -> None:
        """As `begin_write`, for many different keys in one go."""
        with self._lock:
            for key in keys:
                self._writers[key] = self._writers.get(key, 0) + 1
            busy = [self._overtaken(self._flights.get(key)) for key in keys] if self._flights else []
        try:
            _wait_for(busy)
        except BaseException:
            self.end_writes(keys)
            raise

    def end_writes(self, keys: Sequence[str]) -> None:
        """The write of `keys` is done, or was refused."""
        for key in keys:
            self.end_write(key)

    def begin_clear(self) -> None:
        """As `begin_write`, for every key there is."""
        with self._lock:
            self._clearing += 1
            busy = [self._overtaken(flight) for flight in self._flights.values()]
        try:
            _wait_for(busy)
        except BaseException:
            self.end_clear()
            raise

    def end_clear(self) -> None:
        """Everything is forgotten."""
        with self._lock:
            self._clearing = max(0, self._clearing - 1)

    def _overtaken(self, flight: Flight | None) -> Flight | None:
        """`flight` overtaken by a write; returned if the write has to wait for it to land."""
        if flight is None:
            return None
        flight.overtaken = True
        return flight if flight.storing else None

    def _refuse_circle(self, key: str, flight: Flight) -> None:
        me, ahead = get_ident(), flight
        while ahead.leader != me:
            further = self._waiting.get(ahead.leader)
            if further is None or further.landed.is_set():
                return
            ahead = further
        raise RuntimeError(
            f"the loader of {key!r} asks for {key!r} again, itself or through another key's loader, and would wait for "
            "itself; load what it needs under another key"
        )


def _own_copy(error: Exception) -> Exception:
    """`error` for one thread alone: its traceback grows with each raise. Itself where its type cannot be copied."""
    try:
        mine = copy(error)
    except Exception:  # noqa: BLE001 - the constructor is anybody's
        return error
    if type(mine) is not type(error) or mine is error:
        return error
    mine.__cause__ = error
    return mine


def _wait_for(flights: Iterable[Flight | None]) -> None:
    for flight in flights:
        if flight is not None:
            flight.landed.wait()
