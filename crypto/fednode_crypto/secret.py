"""What is secret does not show itself by accident."""

from typing import NoReturn


class Secret:
    """Cannot be pickled or copied, and shows nothing of itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<secret>)"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} is secret: hand on its bytes, each to whom they are for")
