"""Options that mean nothing are refused in one way, whatever type they are of."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from fednode.cache.redis.connections import LinkOptions
from fednode.cache.redis.records import RedisOptions
from fednode.cache.wrappers.loading import GuardSettings
from fednode.cache.wrappers.tiered import TierOptions
from fednode.errors import ConfigError

OPTIONS: list[Callable[[object], object]] = [
    lambda given: LinkOptions(timeout=given),  # type: ignore[arg-type]
    lambda given: LinkOptions(retry_after=given),  # type: ignore[arg-type]
    lambda given: LinkOptions(pauses=(given,)),  # type: ignore[arg-type]
    lambda given: GuardSettings(jitter=given),  # type: ignore[arg-type]
    lambda given: GuardSettings(negative_ttl=given),  # type: ignore[arg-type]
    lambda given: GuardSettings(wait=given),  # type: ignore[arg-type]
    lambda given: GuardSettings(negative_entries=given),  # type: ignore[arg-type]
    lambda given: TierOptions(heartbeat=given),  # type: ignore[arg-type]
    lambda given: TierOptions(followed_ttl=given),  # type: ignore[arg-type]
    lambda given: TierOptions(unfollowed_ttl=given),  # type: ignore[arg-type]
    lambda given: RedisOptions("task", orphan_seconds=given),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("given", ["5", "x", b"5", None, True, [5.0], 5j, float("nan"), np.ones(2)], ids=repr)
def test_what_is_no_number_is_refused(option: Callable[[object], object], given: object) -> None:
    with pytest.raises(ConfigError):
        option(given)


@pytest.mark.parametrize("pauses", [None, 0.05, "x", b"5"])
def test_pauses_come_in_a_tuple(pauses: object) -> None:
    with pytest.raises(ConfigError, match="pauses"):
        LinkOptions(pauses=pauses)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [1, np.float32(1), np.int64(1), Fraction(1)])
def test_every_kind_of_number_is_one(given: float) -> None:
    assert (
        LinkOptions(timeout=given).timeout == TierOptions(heartbeat=given).heartbeat == GuardSettings(wait=given).wait
    )
