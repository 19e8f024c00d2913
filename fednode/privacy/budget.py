"""How much privacy a task may spend, and the unit it protects."""

from dataclasses import asdict, dataclass, fields
from typing import Self

from fednode.errors import ConfigError
from fednode.privacy.checks import exact_keys, positive, probability, words


@dataclass(frozen=True, slots=True)
class Budget:
    """The limit of one task: (epsilon, delta) for one `unit`, under the neighbours named by `adjacency`.

    The unit and the adjacency say what the numbers mean; they do not enter the arithmetic, and a ledger never mixes
    two. Raises ConfigError for an epsilon that is not finite and above 0, a delta outside (0, 1), an unknown unit or a
    blank adjacency.
    """

    epsilon: float
    delta: float
    unit: str = "record"
    adjacency: str = "zero-out of one record"

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon))
            object.__setattr__(self, "delta", probability("delta", self.delta))
            words("unit", self.unit)
            words("adjacency", self.adjacency)
        except ValueError as error:
            raise ConfigError(f"privacy budget: {error}") from error
        if self.unit != "record":
            raise ConfigError(f"privacy budget: the unit {self.unit!r} is not known; this version protects a 'record'")

    def to_dict(self) -> dict[str, object]:
        """Return plain values for JSON; `from_dict` returns the same budget, to the bit."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: object) -> Self:
        """Undo `to_dict`. ValueError for a missing or unknown field, ConfigError for a bad value."""
        names = frozenset(field.name for field in fields(cls))
        return cls(**exact_keys("the budget", data, names))  # type: ignore[arg-type]  # the class checks each
