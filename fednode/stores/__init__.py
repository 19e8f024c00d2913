"""What the node keeps in its cache: sealed updates until their round is over, and versions of the model."""

from fednode.stores.parameters import ParameterSnapshot, ParameterStore, VersionExpired, parameter_limits
from fednode.stores.updates import PinOwner, UpdateId, UpdateLost, UpdateStore, UpdateUsage

__all__ = [
    "ParameterSnapshot",
    "ParameterStore",
    "PinOwner",
    "UpdateId",
    "UpdateLost",
    "UpdateStore",
    "UpdateUsage",
    "VersionExpired",
    "parameter_limits",
]
