"""Who loads which key right now: one load a key, writes that overtake it, and no thread that waits for itself.

A flight is one call of one loader. It is in the air from `join` to `land`. A write of the same key either comes before
its answer is stored, and then the answer is not stored, or waits the moment that storing takes.

An interrupt may end a call anywhere but right after a store to an attribute, and where `with` enters or leaves a lock
of the library. So what ends a flight, a wait or a write is one such store, first in a `finally`; nothing is counted up
and down.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from threading import Lock, RLock, get_ident

from fednode.cache.backend import MISSING, Missing, Value
from fednode.cache.fork_safety import refuse_after_fork
from fednode.cache.values.freeze import Frozen, thaw


class Writing:
    """One write under way. Whoever ends it sets `over`, and then has it forgotten."""

    over = False


class Flight:
    """One call that asks for one key: a load, or a wait for the load of another.

    Who leads it holds `door` (`with`) from before `join` on, and sets `landed` before it lets go; others wait at the
    door. `ahead` is the flight it waits for; who waits sets it to None in the end.
    """

    __slots__ = ("_answer", "_error", "ahead", "door", "landed", "leader", "overtaken", "settled", "storing")

    def __init__(self) -> None:
        self.leader = get_ident()
        self.door = RLock()
        self.landed = False
        self.ahead: Flight | None = None
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
        self._writers: dict[str, list[Writing]] = {}
        self._clearing: list[Writing] = []
        refuse_after_fork(self, "_lock")

    def join(self, key: str, mine: Flight) -> tuple[Flight, bool]:
        """The flight of `key`, which is `mine` if there was none; and whether its answer may be taken.

        It may not where a write came since it took off: wait for it to land, then look again. Raises `RuntimeError`
        where waiting would never end, since the flight waits for this thread.
        """
        with self._lock:
            flight = self._flights.get(key)
            # a landed one is still there where its leader was interrupted
            if flight is None or flight.landed:
                # a write on its way may end before this load or after it: what is loaded is then not stored
                mine.overtaken = bool(_live(self._clearing) or _live(self._writers.get(key, ())))
                self._flights[key] = mine
                return mine, True
            self._refuse_circle(key, flight)
            mine.ahead = flight
            self._waiting[get_ident()] = mine
            return flight, not flight.overtaken

    def wait(self, flight: Flight, seconds: float) -> bool:
        """Wait until a joined `flight` landed, at most `seconds`; whether it did."""
        try:
            return flight.door.acquire(timeout=seconds)
        finally:
            # nothing may come before the release, such as `suppress`
            try:  # noqa: SIM105 - see above
                flight.door.release()
            except RuntimeError:
                # it has not landed in time
                pass
            with self._lock:
                self._waiting.pop(get_ident(), None)

    def may_store(self, flight: Flight) -> bool:
        """Whether no write overtook `flight`. If so, writes of its key wait from now on until it lands."""
        with self._lock:
            flight.storing = not flight.overtaken
            return flight.storing

    def land(self, key: str, flight: Flight) -> None:
        """Forget a flight that has `landed`, whatever came of it; harmless for one that never took off, and twice."""
        with self._lock:
            if self._flights.get(key) is flight:
                del self._flights[key]

    def begin_write(self, key: str, writing: Writing) -> None:
        """A write of `key` begins: a load in the air is overtaken, and none that takes off meanwhile is stored."""
        busy = None
        with self._lock:
            writers = self._writers
            writers[key] = [*_live(writers[key]), writing] if key in writers else [writing]
            if self._flights:
                busy = self._overtaken(self._flights.get(key))
        if busy is not None:
            with busy.door:
                pass

    def end_write(self, key: str, writing: Writing) -> None:
        """Forget a write that is `over`: done, refused or interrupted. Whether or not this comes, it holds nobody."""
        with self._lock:
            self._end(key, writing)

    def begin_writes(self, keys: Sequence[str], writing: Writing) -> None:
        """As `begin_write`, for many different keys in one go."""
        with self._lock:
            writers = self._writers
            for key in keys:
                writers[key] = [*_live(writers[key]), writing] if key in writers else [writing]
            busy = [self._overtaken(self._flights.get(key)) for key in keys] if self._flights else []
        _wait_for(busy)

    def end_writes(self, keys: Sequence[str], writing: Writing) -> None:
        """As `end_write`."""
        with self._lock:
            for key in keys:
                self._end(key, writing)

    def begin_clear(self, writing: Writing) -> None:
        """As `begin_write`, for every key there is."""
        with self._lock:
            self._clearing = [*_live(self._clearing), writing]
            # those that were interrupted are forgotten here at the latest
            self._writers = {key: live for key, found in self._writers.items() if (live := _live(found))}
            busy = [self._overtaken(flight) for flight in self._flights.values()]
        _wait_for(busy)

    def end_clear(self) -> None:
        """As `end_write`."""
        with self._lock:
            self._clearing = _live(self._clearing)

    def _end(self, key: str, writing: Writing) -> None:
        found = self._writers.get(key)
        if found is None:
            # a clear has forgotten it already
            return
        # in one step: the others' writes are not to be lost to an interrupt
        left = None if found[0] is writing and len(found) == 1 else _live(found)
        if left:
            self._writers[key] = left
        else:
            del self._writers[key]

    def _overtaken(self, flight: Flight | None) -> Flight | None:
        """`flight` overtaken by a write; returned if the write has to wait for it to land."""
        if flight is None:
            return None
        flight.overtaken = True
        return flight if flight.storing else None

    def _refuse_circle(self, key: str, flight: Flight) -> None:
        me, ahead = get_ident(), flight
        while ahead.leader != me:
            waiter = self._waiting.get(ahead.leader)
            further = None if waiter is None else waiter.ahead
            if further is None or further.landed:
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
            with flight.door:
                pass


def _live(writings: Iterable[Writing]) -> list[Writing]:
    return [one for one in writings if not one.over]
