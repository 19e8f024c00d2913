"""Why something was refused."""

from collections.abc import Callable

import pytest

from fednode.errors import PeerFault


def reason_of(call: Callable[..., object], *args: object, **options: object) -> str:
    """The reason of the `PeerFault` that this call must raise."""
    with pytest.raises(PeerFault) as caught:
        call(*args, **options)
    return caught.value.reason
