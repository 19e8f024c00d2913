"""What a row is asked and what it answers. Both travel between processes as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Self

from benchmarks.harness.timing import Repeats, Stopwatch, Timing
from fednode.clock import SystemClock

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

VALUE_BITS: Final = 12
"""Bits of one client's value after clip, rounding and noise, the sign included."""

LARGEST_VALUE: Final = (1 << (VALUE_BITS - 1)) - 1
HOLDERS: Final = 5
THRESHOLD: Final = 4
FLOAT_BYTES: Final = 4
CHECK_CLIENT, CHECK_HOLDER = "check of the shares", "holder: open a box and check its share"
CHECK_HEAD, CHECK_BOX = "bytes of the check in the head", "bytes of the check in a box"
"""The parts of row `ring` that the check of shares costs."""

FOLDED: Final = 3
"""Updates that a row really folds and opens, to check that the sum is exact; neither time nor size depends on it."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row: so many values an update, so many clients in the cohort."""

    dimension: int
    clients: int
    repeats: Repeats = field(default_factory=Repeats)

    @property
    def float_bytes(self) -> int:
        """Bytes of a plain float32 update."""
        return FLOAT_BYTES * self.dimension

    @property
    def largest_sum(self) -> int:
        """The largest value of the sum of a full cohort."""
        return self.clients * LARGEST_VALUE


@dataclass(frozen=True, slots=True)
class Figures:
    """What one row measured; None where a scheme has no such role.

    `bytes_up`, `bytes_down`: one client, one round. `client`: from values to the bytes that it sends. `node`: from
    those bytes to the running sum, a client. `holder_bytes`: what one holder receives and sends a round. `opening`:
    from the running sum to the values, without the holders' part. `peak_bytes`: the row's process, in which all roles
    live. `parts`: seconds, or bytes, of parts by name.
    """

    bytes_up: int
    bytes_down: int
    client: Timing
    node: Timing
    opening: Timing
    peak_bytes: int
    holder_bytes: int | None = None
    holder: Timing | None = None
    parts: Mapping[str, float] = field(default_factory=dict)

    def timings(self) -> tuple[Timing, ...]:
        """Return all the times there are."""
        return (self.client, self.node, self.opening, *([] if self.holder is None else [self.holder]))

    @classmethod
    def from_dict(cls, answer: Mapping[str, Any]) -> Self:
        """Undo `asdict`."""
        roles = ("client", "node", "opening", "holder")
        return cls(**{**answer, **{name: Timing(**answer[name]) for name in roles if answer[name] is not None}})


@dataclass(frozen=True, slots=True)
class ConfirmStep:
    """One holder signs a roster of all clients: bytes of its request and its answer, and the time between them."""

    bytes_down: int
    bytes_up: int
    holder: Timing

    @property
    def total(self) -> int:
        """Bytes that one holder receives and sends for it."""
        return self.bytes_down + self.bytes_up

    @classmethod
    def from_dict(cls, answer: Mapping[str, Any]) -> Self:
        """Undo `asdict`."""
        return cls(**{**answer, "holder": Timing(**answer["holder"])})


def work(row: str, dimension: int, clients: int, repeats: Mapping[str, Any]) -> dict[str, Any]:
    """Call `measure` of the module of `row` on a case; the program that every timed row is started with."""
    case = Case(dimension, clients, Repeats(**repeats))
    program = import_module(f"benchmarks.sums.{row}")
    return asdict(program.measure(case, Stopwatch(SystemClock(), case.repeats)))


def some_values(case: Case, client: int = 0) -> "NDArray[np.int64]":
    """Return a client's values, int64 (dimension,), uniform over all that `VALUE_BITS` hold; the same every time."""
    import numpy as np

    generator = np.random.default_rng([case.dimension, client])
    return generator.integers(-LARGEST_VALUE, LARGEST_VALUE + 1, case.dimension)


def some_floats(case: Case, client: int = 0) -> "NDArray[np.float32]":
    """Return the floats that these values would stand for: float32 (dimension,), within 1."""
    import numpy as np

    return (some_values(case, client) / LARGEST_VALUE).astype(np.float32)


class WrongSum(RuntimeError):
    """A scheme that is timed did not give the sum, so its figures would mean nothing."""


def check_sum(found: "NDArray[Any]", updates: "list[NDArray[Any]]", tolerance: float = 0.0) -> None:
    """Raise WrongSum unless `found` is the sum of `updates`, each coordinate within `tolerance`."""
    import numpy as np

    wanted = np.sum(updates, axis=0, dtype=found.dtype)
    if found.shape != wanted.shape or float(np.abs(found - wanted).max()) > tolerance:
        raise WrongSum("the opened sum is not the sum of the updates, so the row is not measured")
