"""How much privacy a task may spend, and the unit it protects."""

from dataclasses import asdict, dataclass, field, fields
from typing import Self

from fednode.errors import ConfigError
from fednode.privacy.checks import exact_keys, positive, probability
from fednode.units import require_unit

LARGEST_EPSILON = 50.0
"""Of a run and of a limit: above, the chance of an error outside the noise is no longer small beside delta."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limit of one task: (epsilon, delta) for one `unit` of `fednode.units`, under its neighbours, `adjacency`.

    The unit and the adjacency say what the numbers mean; they do not enter the arithmetic, and a ledger never mixes
    two. Raises ConfigError for an epsilon that is not finite and above 0, a delta outside (0, 1) or an unknown unit.
    """

    epsilon: float
    delta: float
    unit: str = "record"
    adjacency: str = field(init=False)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))
            object.__setattr__(self, "delta", probability("delta", self.delta))
            object.__setattr__(self, "adjacency", require_unit(self.unit).adjacency)
        except ValueError as error:
            raise ConfigError(f"privacy budget: {error}") from error

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON; `from_dict` returns the same budget, to the bit."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Undo `to_dict`. ValueError for missing or unknown fields or other neighbours, ConfigError for bad values."""
        found = exact_keys("the budget", data, frozenset(one.name for one in fields(cls)))
        budget = cls(**{name: found[name] for name in found if name != "adjacency"})  # type: ignore[arg-type]
        if found["adjacency"] != budget.adjacency:
            raise ValueError(f"its neighbours are {found['adjacency']!r}, and those of a {budget.unit} are not")
        return budget
