"""Executes the effects of a round, in order: `Driver` runs a task, one round at a time."""

from fednode.driver.channel import Channel, Reply, Request
from fednode.driver.driver import Driver
from fednode.driver.outcome import Release, RoundOutcome
from fednode.driver.round_log import BROKEN, describe_error
from fednode.driver.task import Node, PlannedTask

__all__ = [
    "BROKEN",
    "Channel",
    "Driver",
    "Node",
    "PlannedTask",
    "Release",
    "Reply",
    "Request",
    "RoundOutcome",
    "describe_error",
]
