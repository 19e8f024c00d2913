"""The protocol, searched through: what holds in every state, and that the search finds what is planted."""

import random
from dataclasses import replace

import pytest
from kit.coherence.instances import INSTANCES, SLOW, found
from kit.coherence.moves import Rules, Violation
from kit.coherence.parts import (
    CHANNEL,
    DOWN,
    READABLE,
    REQUESTS,
    TERMS,
    UP,
    Part,
    canonical,
    in_flight,
    view_of,
    without_grants,
)
from kit.coherence.search import search
from kit.coherence.timed import timed_search

from coherence_protocol.agent import Agent
from coherence_protocol.directory import Directory
from coherence_protocol.line import Line
from coherence_protocol.messages import Acknowledge, Ask, Committed, CopyState, Granted, Invalidate, Refused, Want

pytestmark = pytest.mark.thorough

FLOORS = {
    "4 agents, 1 key, one message lost, one agent dies": (300_000, 2_000_000),
    "2 agents, 2 keys and both at once, one message lost, one agent dies": (190_000, 950_000),
    "3 agents, 1 key, one fault of any kind": (80_000, 350_000),
    "2 agents, 1 key, two faults of any kind, one agent dies": (58_000, 290_000),
}


@pytest.mark.parametrize("name", INSTANCES)
def test_every_state_keeps_the_invariants_and_every_pending_ends(name):
    states, transitions = FLOORS[name]
    covered = found(name)
    assert covered.states >= states and covered.transitions >= transitions and covered.depth >= 20


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("name", SLOW)
def test_larger_instances_keep_them_too(name):
    assert found(name).states >= 150_000


class GrantsAtOnce(Line):
    """Planted: grants without waiting for anybody's acknowledgement."""

    __slots__ = ()

    def ask(self, agent, ask, time):
        line, told = Line.ask(self, agent, ask, time)
        if line.serving is None:
            return line, told
        alone = replace(line, serving=None, waiting=frozenset(), holders=(), exclusive=False)
        granted, more = alone._grant(agent, ask, time)
        return granted, (*told, *more)


@pytest.mark.parametrize("agents", [2, 4])
def test_a_grant_before_the_acknowledgements_is_found(agents):
    with pytest.raises(Violation, match="a writer beside another copy, after 6 steps"):
        search(Rules(agents, line=GrantsAtOnce()))


@pytest.mark.parametrize("agents", [2, 4])
def test_one_fifo_for_both_kinds_of_messages_is_found_to_deadlock(agents):
    with pytest.raises(Violation, match=r"deadlock: .* after 7 steps"):
        search(Rules(agents, one_fifo=True))


class ForgetsWhatItCommitted(Line):
    """Planted: a write-back that comes again finds no trace of the first."""

    __slots__ = ()

    def _take_back(self, agent, key, serial):
        line, told = Line._take_back(self, agent, key, serial)
        return replace(line, settled=()), told


def test_an_agent_that_is_told_the_contrary_of_what_became_of_its_write_is_found():
    with pytest.raises(Violation, match="told the contrary"):
        search(Rules(2, faults=1, line=ForgetsWhatItCommitted()))


def test_the_margin_covers_the_drift_and_without_it_the_search_finds_two():
    worlds, waits = timed_search(1.0, 9)
    assert worlds >= 20_000 and waits >= 500
    with pytest.raises(Violation, match="a writer beside another copy"):
        timed_search(0.0, 9)


# --- is one state for many sound? ------------------------------------------------------------------------------------


def test_without_symmetry_the_search_meets_the_same_states():
    with_names = search(Rules(3), symmetric=False)
    without = search(Rules(3))
    sizes = {tuple(sorted(parts)) for _, _, parts in with_names.worlds}
    assert with_names.states > 4 * without.states
    described = {_described(with_names, world) for world in sizes}
    assert described == {_described(without, parts) for _, _, parts in without.worlds}


def _described(covered, parts) -> tuple:
    return tuple(sorted(repr(covered.parts.parts[part]) for part in parts))


@pytest.mark.parametrize("seed", range(40))
def test_walks_of_plain_objects_stay_within_the_states_that_the_search_met(seed):
    name = "2 agents, 1 key, two faults of any kind, one agent dies" if seed % 2 else list(INSTANCES)[2]
    rules, covered = INSTANCES[name], found(name)
    walk = Walk(rules, random.Random(seed))
    for _ in range(150):
        walk.step()
        parts = tuple(sorted(covered.parts.numbers[part] for part in walk.parts()))
        # a fault may have been spent on a message that the search had delivered already
        spent = range(walk.faults, rules.faults + 1)
        assert any((faults, walk.deaths, parts) in covered.worlds for faults in spent)


class Walk:
    """Directory, agents and channels as they are, with nothing renumbered, blanked or delivered at once."""

    def __init__(self, rules: Rules, choice: random.Random) -> None:
        self.choice, self.faults, self.deaths = choice, rules.faults, rules.deaths
        self.directory = Directory.of("k", TERMS)
        self.agents: list[Agent | None] = [Agent(str(number), TERMS) for number in range(rules.agents)]
        self.channels = [[[], [], [], []] for _ in self.agents]

    def parts(self):
        line = self.directory.lines["k"]
        for number, agent in enumerate(self.agents):
            name = str(number)
            copies = None if agent is None else (agent.copy("k"),)
            done = (agent is not None and (name, agent.copy("k").serial) in line.settled,)
            channels = tuple(tuple(replace(m, agent="") for m in channel) for channel in self.channels[number])
            part = Part(copies, done, channels, (view_of(line, name),))
            yield canonical(part, "k", ((line.serial, line.version),))

    def step(self) -> None:
        number = self.choice.randrange(len(self.agents))
        agent, mine = self.agents[number], self.channels[number]
        does = self.choice.choice([self.wish, self.deliver, self.deliver, self.deliver, self.again, self.trouble])
        does(number, agent, mine)

    def wish(self, number, agent, mine) -> None:
        if agent is None or agent.copy("k").state is CopyState.PENDING:
            return
        does = [agent.write, agent.write_back, agent.drop]
        if agent.copy("k").state is CopyState.INVALID:
            does.append(agent.read)
        self.moved(number, self.choice.choice(does)("k", 0.0))

    def deliver(self, number, agent, mine, *, keep=False) -> None:
        channel = self.choice.choice(UP + DOWN)
        if not mine[channel]:
            return
        message = mine[channel][0]
        if channel in UP and not self.directory.admits(message):
            return
        self.faults -= keep
        if not keep:
            mine[channel].pop(0)
        if channel in DOWN:
            self.moved(number, agent.handle(message, 0.0))
        else:
            self.turned(self.directory.handle(message, 0.0))

    def again(self, number, agent, mine) -> None:
        line, name = self.directory.lines["k"], str(number)
        (part,) = [Part(None, (), tuple(map(tuple, mine)), ())]
        if agent is None:
            if name in line.sharers:
                self.turned(self.directory.end_lease(name, "k", 0.0))
            return
        pending = agent.copy("k").pending
        served = line.serving is not None and line.serving.agent == name
        if pending is not None and not served and not in_flight(part, "k", (Ask, Granted, Committed, Refused)):
            if pending.want is not Want.WRITE_BACK or name not in line.waiting:
                self.moved(number, agent.repeat("k", 0.0))
        elif name in line.waiting and not in_flight(part, "k", (Invalidate, Acknowledge)):
            turn = self.directory.repeat("k", 0.0)
            self.turned(turn._replace(messages=tuple(m for m in turn.messages if m.agent == name)))

    def trouble(self, number, agent, mine) -> None:
        kind = self.choice.choice(["loss", "twice", "gives up", "late", "dies"])
        if kind == "dies" and self.deaths and agent is not None:
            self.agents[number], self.deaths = None, self.deaths - 1
            mine[2:] = [[], []]
        if not self.faults:
            return
        full = [channel for channel in UP + DOWN if mine[channel]]
        if kind == "loss" and full:
            mine[self.choice.choice(full)].pop(0)
            self.faults -= 1
        elif kind == "twice" and agent is not None:
            self.deliver(number, agent, mine, keep=True)
        elif kind == "gives up" and agent is not None and agent.copy("k").pending is not None:
            self.faults -= 1
            self.moved(number, agent.give_up("k"))
        elif kind == "late" and agent is not None and agent.copy("k").state not in READABLE:
            self.end_late(number, mine)

    def end_late(self, number, mine) -> None:
        if str(number) not in self.directory.lines["k"].sharers:
            return
        self.faults -= 1
        part = without_grants(Part(None, (), tuple(map(tuple, mine)), ()), "k")
        mine[:] = [list(channel) for channel in part.channels]
        self.turned(self.directory.end_lease(str(number), "k", 0.0))

    def moved(self, number, turn) -> None:
        self.agents[number] = turn.agent
        self.put(turn.messages)

    def turned(self, turn) -> None:
        self.directory = turn.directory
        self.put(turn.messages)

    def put(self, messages) -> None:
        for message in messages:
            channel, number = CHANNEL[type(message)], int(message.agent)
            if channel in UP or self.agents[number] is not None:
                self.channels[number][channel].append(message)


def test_a_walk_meets_requests_that_have_to_wait():
    walk = Walk(Rules(3), random.Random(1))
    waited = 0
    for _ in range(400):
        walk.step()
        waited += any(mine[REQUESTS] and not walk.directory.admits(mine[REQUESTS][0]) for mine in walk.channels)
    assert waited > 10
