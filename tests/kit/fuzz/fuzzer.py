"""Gives mutated inputs to readers and says what came out that must not: an error of another type, or too much time or
memory."""

import time
import traceback
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from kit.fuzz.mutations import Mutator, Sign

from fednode.errors import PeerFault

MOST_SECONDS = 1.0
MOST_MEMORY = 64 << 20
_EVERY = 50
"""One input of so many is measured for memory, since that is slow."""


@dataclass(frozen=True)
class Target:
    """A reader, valid inputs for it, and the errors that it may end in.

    `prepare` comes before each `refresh` inputs; `sign` signs a head for whoever it names.
    """

    name: str
    seeds: Sequence[bytes] = field(repr=False)
    read: Callable[[bytes], object] = field(repr=False)
    allowed: tuple[type[Exception], ...] = (PeerFault,)
    prepare: Callable[[], object] | None = field(default=None, repr=False)
    refresh: int = 200
    weight: int = 2
    sign: Sign = field(default=lambda _head: bytes(64), repr=False)


@dataclass(frozen=True)
class Leak:
    """What must not happen: in which reader, how, and the input."""

    target: str
    what: str
    data: bytes = field(repr=False)


@dataclass
class Fuzzer:
    """The same `seed` gives the same inputs. `outcomes` counts by target how they ended: a reason, or "accepted"."""

    targets: Sequence[Target]
    seed: int
    donors: Sequence[bytes] = field(repr=False)
    seconds: Callable[[], float] = time.perf_counter
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)

    def run(self, count: int) -> list[Leak]:
        """Try `count` inputs, shared out by weight; return one leak of each kind."""
        total = sum(target.weight for target in self.targets)
        found: dict[tuple[str, str], Leak] = {}
        for target in self.targets:
            random = Random(f"{self.seed} {target.name}")
            mutator = Mutator(random, self.donors, target.sign)
            self.outcomes[target.name] = Counter()
            for number in range(-(-count * target.weight // total)):
                if target.prepare is not None and number % target.refresh == 0:
                    target.prepare()
                leak = self._tried(target, mutator.mutate(random.choice(target.seeds)), number % _EVERY == _EVERY // 2)
                if leak is not None:
                    found.setdefault((leak.target, leak.what), leak)
        return list(found.values())

    def _tried(self, target: Target, data: bytes, measured: bool) -> Leak | None:
        if measured:
            tracemalloc.start()
        began, what = self.seconds(), "accepted"
        try:
            said = target.read(data)
            what = said if isinstance(said, str) else what
        except target.allowed as error:
            what = str(getattr(error, "reason", type(error).__name__))
        except Exception as error:  # noqa: BLE001 - what comes out here is what is looked for
            place = traceback.extract_tb(error.__traceback__)[-1]
            return Leak(target.name, f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}", data)
        finally:
            took = self.seconds() - began
            peak = tracemalloc.get_traced_memory()[1] if measured else 0
            tracemalloc.stop()
        self.outcomes[target.name][what.partition(":")[0]] += 1
        if peak > MOST_MEMORY:
            return Leak(target.name, "takes too much memory", data)
        if took > MOST_SECONDS and not measured:
            # once more: the machine may have been busy with something else
            began = self.seconds()
            with suppress(*target.allowed):
                target.read(data)
            if self.seconds() - began > MOST_SECONDS:
                return Leak(target.name, "takes too long", data)
        return None
