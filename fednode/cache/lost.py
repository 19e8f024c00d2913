"""The loss that a cache may not hide: a pinned value that is gone."""

from fednode.errors import StoreError

WHAT_KEEPS_PINS = (
    "set its maxmemory-policy to noeviction, let it persist to its disk (appendonly yes), and see who else writes there"
)


class PinLost(StoreError):
    """`key` was pinned, nobody deleted it, and the server does not have it; `damaged`: or has it, and not whole."""

    def __init__(self, key: str, place: str = "the server", *, damaged: bool = False) -> None:
        state = "is damaged on" if damaged else "is gone from"
        super().__init__(f"the pinned value {key} {state} {place}; {WHAT_KEEPS_PINS}")
        self.key = key
        self.place = place
        self.damaged = damaged
