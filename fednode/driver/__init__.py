"""The one place where effects happen, in order: `Driver` runs a task, a round at a time."""

from fednode.driver.channel import Channel, Reply, Request
from fednode.driver.driver import Driver
from fednode.driver.parts import Node, Release, RoundOutcome, Task
from fednode.driver.tally import BROKEN, ended_by

__all__ = ["BROKEN", "Channel", "Driver", "Node", "Release", "Reply", "Request", "RoundOutcome", "Task", "ended_by"]
