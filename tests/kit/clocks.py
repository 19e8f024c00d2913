"""Clocks for tests."""


class FakeClock:
    """Stands still until it is told to move; `sleep` moves it."""

    def __init__(self, start: float = 1_000.0, wall: float = 1_700_000_000.0) -> None:
        self._now, self._wall = start, wall

    def now(self) -> float:
        return self._now

    def time(self) -> float:
        return self._wall

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        self._wall += seconds
