"""The loss that a cache may not hide: a pinned value that is gone."""

from fednode.errors import StoreError


class PinLost(StoreError):
    """`key` was pinned, nobody deleted it, and the server does not have it, or not whole."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the pinned value {key} is gone from the server; set its maxmemory-policy to noeviction, let it persist "
            "to its disk (appendonly yes), and see who else writes there"
        )
        self.key = key
