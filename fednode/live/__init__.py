"""The live view of a running node: a Unix socket in the run's folder, and the requests and answers on it.

`LiveView` serves it from the node, `LiveNode` asks from a command; `metrics_served` is for Prometheus. No request can
end the run, and of a sealed update only size and digest leave the node.
"""

from fednode.live.client import LiveNode, live_runs
from fednode.live.knobs import Knob, Limited, guard_knobs, limit_knobs, memory_knobs
from fednode.live.metrics import RunNumbers, exposition, metrics_served
from fednode.live.server import SOCKET_NAME, LiveView
from fednode.live.stats import Extras, Inspectable, StoreStats, StoreView, Tuned

__all__ = [
    "SOCKET_NAME",
    "Extras",
    "Inspectable",
    "Knob",
    "Limited",
    "LiveNode",
    "LiveView",
    "RunNumbers",
    "StoreStats",
    "StoreView",
    "Tuned",
    "exposition",
    "guard_knobs",
    "limit_knobs",
    "live_runs",
    "memory_knobs",
    "metrics_served",
]
