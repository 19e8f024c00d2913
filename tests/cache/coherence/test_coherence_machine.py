"""20 agents, 10 keys, batches, real time with drifting clocks: the same invariants on a large instance."""

import math

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from kit.coherence.parts import CHANNEL, DOWN, READABLE, UP

from coherence_protocol.agent import Agent
from coherence_protocol.directory import Directory
from coherence_protocol.messages import CopyState, LeaseTerms

AGENTS, KEYS = 20, "abcdefghij"
TERMS = LeaseTerms(lease=10.0, margin=2.0, retry=1.5, patience=60.0)
SLOWEST, FASTEST = 0.8, 1.25
agents = st.integers(0, AGENTS - 1)
some_keys = st.sets(st.sampled_from(KEYS), min_size=1, max_size=4).map(sorted)


class Caches(RuleBasedStateMachine):
    """Agents whose clocks run at SLOWEST to FASTEST of the directory's, over channels that lose and repeat."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.directory = Directory.of(KEYS, TERMS)
        self.agents = {number: Agent(str(number), TERMS) for number in range(AGENTS)}
        self.rates = {n: SLOWEST + (FASTEST - SLOWEST) * n / (AGENTS - 1) for n in range(AGENTS)}
        self.to_write: set[tuple[int, str]] = set()
        self.commits = 0
        self.channels = {(number, channel): [] for number in range(AGENTS) for channel in range(4)}

    def clock(self, number: int) -> float:
        return 50.0 * number + self.now * self.rates[number]

    def moved(self, number: int, turn) -> None:
        self.agents[number] = turn.agent
        self.put(turn.messages)

    def turned(self, turn) -> None:
        self.directory = turn.directory
        self.commits += len(turn.commits)
        self.put(turn.messages)

    def put(self, messages) -> None:
        for message in messages:
            self.channels[int(message.agent), CHANNEL[type(message)]].append(message)

    @rule(number=agents, keys=some_keys, does=st.sampled_from(["read", "read", "write", "write_back", "drop"]))
    def wishes(self, number, keys, does):
        if number in self.agents:
            self.moved(number, getattr(self.agents[number], does)(keys, self.clock(number)))
            if does == "write":
                self.to_write |= {(number, key) for key in keys}

    @rule(choices=st.lists(st.integers(0, 4 * AGENTS - 1), min_size=1, max_size=30))
    def delivers(self, choices):
        for choice in choices:
            self.deliver(choice // 4, choice % 4)

    @rule()
    def delivers_everything(self):
        for place in sorted(self.channels):
            while self.deliver(*place):
                pass

    @rule(number=agents, channel=st.sampled_from(UP + DOWN), what=st.sampled_from(["lost", "twice"]))
    def fails(self, number, channel, what):
        waiting = self.channels[number, channel]
        if waiting and what == "lost":
            waiting.pop(0)
        elif waiting:
            again = waiting[0]
            if self.deliver(number, channel):
                waiting.insert(0, again)

    @rule(number=st.integers(0, 3))
    def dies(self, number):
        self.agents.pop(number, None)

    @rule(seconds=st.sampled_from([0.3, 1.0, 2.5, 9.0]))
    def passes(self, seconds):
        self.now += seconds
        # a copy is over at its agent's own clock, whether or not the agent was awake to notice it
        self.turned(self.directory.tick(self.now))
        for number in list(self.agents):
            self.moved(number, self.agents[number].tick(self.clock(number)))

    def deliver(self, number: int, channel: int) -> bool:
        waiting = self.channels[number, channel]
        if not waiting or (channel in UP and not self.directory.admits(waiting[0])):
            return False
        message = waiting.pop(0)
        if channel in UP:
            self.turned(self.directory.handle(message, self.now))
        elif number in self.agents:
            self.moved(number, self.agents[number].handle(message, self.clock(number)))
            self.writes_what_it_may(number)
        return True

    def writes_what_it_may(self, number: int) -> None:
        agent, now = self.agents[number], self.clock(number)
        ready = {key for who, key in self.to_write if who == number and agent.copy(key).writable(now)}
        if ready:
            self.to_write -= {(number, key) for key in ready}
            self.moved(number, agent.write(sorted(ready), now))

    @invariant()
    def one_writer_or_many_readers_of_the_last_version(self):
        for key, line in self.directory.lines.items():
            seen = {n: agent.copy(key) for n, agent in self.agents.items()}
            readable = {n: copy for n, copy in seen.items() if copy.readable(self.clock(n))}
            assert all(copy.version == line.version for copy in readable.values())
            assert len(readable) <= 1 or not any(copy.writable(self.clock(n)) for n, copy in readable.items())
            assert {str(n) for n in readable} <= line.sharers

    @invariant()
    def the_directory_is_one_of_its_states(self):
        for line in self.directory.lines.values():
            assert (line.state is CopyState.PENDING) == bool(line.waiting)
            assert not line.exclusive or len(line.holders) == 1
            assert line.waiting <= line.sharers

    def teardown(self):
        for _ in range(math.ceil(4 * TERMS.patience)):
            self.delivers_everything()
            if self.quiet():
                return
            self.passes(1.0)
            self.one_writer_or_many_readers_of_the_last_version()
        raise AssertionError("something stays Pending though everything is delivered and all leases have run out")

    def quiet(self) -> bool:
        copies = [agent.copy(key) for agent in self.agents.values() for key in KEYS]
        lines = self.directory.lines.values()
        return not any(copy.pending for copy in copies) and not any(line.state is CopyState.PENDING for line in lines)


@pytest.mark.thorough
def test_large_instances_keep_the_invariants():
    run_state_machine_as_test(
        Caches,
        settings=settings(
            max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_a_long_run_reads_and_writes_for_real():
    caches = Caches()
    read = 0
    for turn in range(300):
        caches.wishes(turn % AGENTS, [KEYS[turn % 10], KEYS[(turn * 7 + 3) % 10]], ["read", "write"][turn % 3 == 0])
        caches.delivers_everything()
        if turn % 5 == 0:
            caches.passes(0.3)
        caches.one_writer_or_many_readers_of_the_last_version()
        caches.the_directory_is_one_of_its_states()
        read += sum(copy.state in READABLE for agent in caches.agents.values() for copy in agent.copies.values())
    caches.teardown()
    assert caches.commits >= 100 and read >= 1_000
    assert caches.commits == sum(line.version for line in caches.directory.lines.values())
