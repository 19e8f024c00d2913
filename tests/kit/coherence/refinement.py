"""Each step of the round protocol is a way of the searched `Directory`, or stutters.

The map: a client whose chunk is confirmed at its newest version (`Standing.held`) is an agent with a Shared copy; the
node is the agent that writes. A release is a way: the writer asks for its keys, everybody acknowledges, it writes back.
A proof is one: its sender reads, and is granted the version that the directory has. To forget a client is the end of
its leases. Everything else changes nothing that the map sees. `check_step` goes these ways with the real `Directory`
and `Agent`, and compares where they lead.
"""

from kit.coherence.moves import Violation
from kit.coherence.parts import TERMS

from coherence_protocol.agent import Agent
from coherence_protocol.directory import Directory
from coherence_protocol.messages import Acknowledgements, Requests

KEYS = "wi"
WRITER = "node"


class Register:
    """The directory and its agents, with every message delivered at once."""

    def __init__(self, held: tuple[int, ...]) -> None:
        self.directory = Directory.of(KEYS, TERMS)
        self.agents = {name: Agent(name, TERMS) for name in (WRITER, *map(str, range(len(held))))}
        for number, keys in enumerate(held):
            self.read(number, keys)

    def held(self) -> tuple[int, ...]:
        """The keys that each client has a Shared copy of, as bits; each is the version that the directory has."""
        found = []
        for number in range(len(self.agents) - 1):
            agent, name = self.agents[str(number)], str(number)
            mine = {key: agent.version(key, 0.0) for key in KEYS if name in self.directory.lines[key].sharers}
            if any(version != self.directory.lines[key].version for key, version in mine.items()):
                raise Violation("a reader of the register has another version than its directory")
            found.append(_bits(mine))
        return tuple(found)

    def versions(self) -> list[int]:
        return [self.directory.lines[key].version for key in KEYS]

    def read(self, number: int, keys: int) -> None:
        self._turned(str(number), self.agents[str(number)].read(_names(keys), 0.0))

    def write(self, keys: int) -> None:
        for does in ("write", "write", "write_back"):
            self._turned(WRITER, getattr(self.agents[WRITER], does)(_names(keys), 0.0))

    def drop(self, number: int, keys: int) -> None:
        name = str(number)
        self._turned(name, self.agents[name].drop(_names(keys), 0.0))
        self._deliver(list(self._directed(self.directory.end_lease(name, _names(keys), 0.0))))

    def _turned(self, name, turn) -> None:
        self.agents[name] = turn.agent
        self._deliver(list(turn.messages))

    def _directed(self, turn):
        self.directory = turn.directory
        return turn.messages

    def _deliver(self, messages: list) -> None:
        while messages:
            message = messages.pop(0)
            if isinstance(message, Requests | Acknowledgements):
                messages += self._directed(self.directory.handle(message, 0.0))
            else:
                turn = self.agents[message.agent].handle(message, 0.0)
                self.agents[message.agent] = turn.agent
                messages += turn.messages


def check_step(before: tuple[int, ...], after: tuple[int, ...], changed: int, read: int) -> None:
    """Return if the register goes from `before` to `after`, keys held by client, by what the round protocol did.

    `changed`: keys that were released. `read`: keys of whose newest bytes a client has just shown that it has them.
    Raises `Violation`.
    """
    register = Register(before)
    versions = register.versions()
    if changed:
        register.write(changed)
    for number, (had, has) in enumerate(zip(before, after, strict=True)):
        gained, lost = has & ~(had & ~changed), had & ~changed & ~has
        if gained & ~read:
            raise Violation("held without a reply that shows it: no step of the register")
        if gained:
            register.read(number, gained)
        if lost:
            register.drop(number, lost)
    if register.versions() != [version + (changed >> k & 1) for k, version in enumerate(versions)]:
        raise Violation("a release counts other versions than the register")
    if register.held() != after:
        raise Violation("the register's readers are others than those that the node believes in")


def _names(bits: int) -> tuple[str, ...]:
    return tuple(key for k, key in enumerate(KEYS) if bits >> k & 1)


def _bits(names) -> int:
    return sum(1 << KEYS.index(key) for key in names)
