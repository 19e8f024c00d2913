"""A search with clocks: one agent reads, another writes, and the reader's clock may stand still now and then.

All ways of `most` steps are tried, with the real `tick` on both sides. While the directory's clock counts a lease, the
reader's may lose one tick: whether the margin covers that is what this search shows. A clock that runs fast only ends
leases sooner.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from kit.coherence.moves import Violation
from kit.coherence.parts import CHANNEL, DOWN, UP

from coherence_protocol.agent import Agent
from coherence_protocol.directory import Directory
from coherence_protocol.messages import CopyState, LeaseTerms

KEY = "k"
LEASE = 3.0
READER, WRITER = 0, 1


class Timed(NamedTuple):
    """A world with time: `clocks` are the agents' own, `stalled` how many ticks ago the reader's last stood still."""

    directory: Directory
    agents: tuple[Agent, Agent]
    channels: tuple
    now: float = 0.0
    clocks: tuple[float, float] = (0.0, 0.0)
    stalled: int = int(LEASE)


def timed_search(margin: float, most: int) -> tuple[int, int]:
    """Try everything up to `most` steps; how many worlds were met, and how many leases ended at the directory while it
    waited for them. Raises `Violation`."""
    terms = LeaseTerms(LEASE, margin, retry=100.0, patience=100.0)
    start = Timed(Directory.of([KEY], terms), (Agent("0", terms), Agent("1", terms)), (((), (), (), ()),) * 2)
    met, queue, waits = {_mark(start)}, deque([(start, 0)]), 0
    while queue:
        world, depth = queue.popleft()
        if depth == most:
            continue
        for after in _steps(world):
            mark = _mark(after)
            if mark in met:
                continue
            met.add(mark)
            waits += (
                bool(world.directory.lines[KEY].waiting)
                and after.now > world.now
                and not after.directory.lines[KEY].waiting
            )
            _check(after)
            queue.append((after, depth + 1))
    return len(met), waits


def _mark(world: Timed) -> tuple:
    agents = tuple((agent.copy(KEY), agent.asked) for agent in world.agents)
    return (world.directory.lines[KEY], agents, *world[2:])


def _check(world: Timed) -> None:
    seen = [agent.version(KEY, clock) for agent, clock in zip(world.agents, world.clocks, strict=True)]
    writer = any(agent.copy(KEY).writable(clock) for agent, clock in zip(world.agents, world.clocks, strict=True))
    if writer and None not in seen:
        raise Violation(f"a writer beside another copy at {world.now}, clocks {world.clocks}")
    if any(version is not None and version != world.directory.lines[KEY].version for version in seen):
        raise Violation(f"an old version can be read at {world.now}, clocks {world.clocks}")


def _steps(world: Timed) -> Iterator[Timed]:
    reader, writer = world.agents
    if reader.copy(KEY).pending is None and reader.version(KEY, world.clocks[READER]) is None:
        yield _at_agent(world, READER, reader.read([KEY], world.clocks[READER]))
    if writer.copy(KEY).pending is None:
        yield _at_agent(world, WRITER, writer.write([KEY], world.clocks[WRITER]))
    if writer.copy(KEY).state is CopyState.MODIFIED:
        yield _at_agent(world, WRITER, writer.write_back([KEY], world.clocks[WRITER]))
    for number in (READER, WRITER):
        yield from _arrivals(world, number)
    yield _ticked(world, 1.0)
    if world.stalled >= LEASE:
        yield _ticked(world, 0.0)


def _arrivals(world: Timed, number: int) -> Iterator[Timed]:
    for channel in UP + DOWN:
        mine = world.channels[number]
        if not mine[channel]:
            continue
        message = mine[channel][0]
        left = world._replace(channels=_put(world.channels, number, _put(mine, channel, mine[channel][1:])))
        if channel in DOWN:
            yield _at_agent(left, number, world.agents[number].handle(message, world.clocks[number]))
        elif world.directory.admits(message):
            turn = world.directory.handle(message, world.now)
            yield _sent(left._replace(directory=turn.directory), turn.messages)


def _ticked(world: Timed, rate: float) -> Timed:
    clocks = (world.clocks[READER] + rate, world.clocks[WRITER] + 1.0)
    stalled = min(int(LEASE), world.stalled + 1) if rate else 1
    world = world._replace(now=world.now + 1, clocks=clocks, stalled=stalled)
    turn = world.directory.tick(world.now)
    world = _sent(world._replace(directory=turn.directory), turn.messages)
    for number in (READER, WRITER):
        world = _at_agent(world, number, world.agents[number].tick(clocks[number]))
    return world


def _at_agent(world: Timed, number: int, turn) -> Timed:
    return _sent(world._replace(agents=_put(world.agents, number, turn.agent)), turn.messages)


def _sent(world: Timed, messages: tuple) -> Timed:
    channels = world.channels
    for message in messages:
        number, channel = int(message.agent), CHANNEL[type(message)]
        mine = channels[number]
        channels = _put(channels, number, _put(mine, channel, (*mine[channel], replace(message))))
    return world._replace(channels=channels)


def _put(values: tuple, place: int, value) -> tuple:
    return (*values[:place], value, *values[place + 1 :])
