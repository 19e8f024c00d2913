"""What a task needs of a secure sum, whichever scheme it takes."""

from dataclasses import dataclass

from fednode_crypto.errors import WrongParameters
from fednode_crypto.params import checked_integer


@dataclass(frozen=True, slots=True)
class Demand:
    """What a task needs: so many coordinates, payloads in one sum, a bound for the sum, holders, answers to open.

    `value_bound` bounds each coordinate of the final sum, the tail of the noise (`noise_tail`) included.
    Raises WrongParameters when a field is not a whole number within its limits.
    """

    dimension: int
    summands: int
    value_bound: int
    holders: int
    threshold: int

    def __post_init__(self) -> None:
        for name in ("dimension", "summands", "value_bound", "holders", "threshold"):
            checked_integer(name, getattr(self, name))
        if self.threshold > self.holders:
            raise WrongParameters(f"{self.threshold} of {self.holders} holders cannot open: lower the threshold")
