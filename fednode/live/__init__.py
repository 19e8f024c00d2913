"""A running node, looked at from outside: a Unix socket in the run's folder, and what is asked and answered there.

`LiveView` serves it from the node, `LiveNode` asks from a command. Nothing asked here can hurt the run; nothing of a
sealed update but its size and digest leaves the node.
"""

from fednode.live.client import LiveNode, live_runs
from fednode.live.knobs import Knob, Limited, guard_knobs, limit_knobs, memory_knobs
from fednode.live.prometheus import exposition
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
    "StoreStats",
    "StoreView",
    "Tuned",
    "exposition",
    "guard_knobs",
    "limit_knobs",
    "live_runs",
    "memory_knobs",
]
