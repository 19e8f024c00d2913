"""What a guarantee protects: the units, and the words in which plans, ledgers and reports speak of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Unit:
    """One kind of unit: what is replaced by zero in one of two neighbours, and moves a sum by at most the clip.

    `name` is the noun, whose plural adds an s. `zeroed` completes "zero-out of" and `differ` "neighbours differ by".
    `clipped` begins "... clipped to 1". `person` is the assumption that makes a person one unit, `otherwise` what
    follows if it is wrong.
    """

    name: str
    zeroed: str
    differ: str
    clipped: str
    person: str
    otherwise: str

    @property
    def adjacency(self) -> str:
        """The neighbours, as budgets and ledgers name them."""
        return f"zero-out of {self.zeroed}"


UNITS: Final[Mapping[str, Unit]] = {
    unit.name: unit
    for unit in (
        Unit(
            name="record",
            zeroed="one record",
            differ="the contribution of one record, which is replaced by zero in one of them",
            clipped="Each record's gradient was",
            person="One person's messages are one record",
            otherwise="a person with several records is protected less",
        ),
        Unit(
            name="customer",
            zeroed="all records of one customer at one client",
            differ="the contribution of all records of one customer at one client, replaced by zero in one of them",
            clipped="The gradients of each customer at each client were added up and",
            person="One person is one customer, at one client",
            otherwise="each client bounds its customers alone: a person at two clients is a group of two",
        ),
        Unit(
            name="client",
            zeroed="one client's update",
            differ="one client's update, which is replaced by zero in one of them",
            clipped="Each client's update was",
            person="One person's records are all at one client",
            otherwise="a person with records at two clients is a group of two",
        ),
    )
}
"""Every unit by its name."""


def require_unit(name: object) -> Unit:
    """The unit of that name. Raises `ValueError` with the names that there are."""
    unit = UNITS.get(name) if isinstance(name, str) else None
    if unit is None:
        raise ValueError(f"unknown unit {name!r}: this version protects a {', a '.join(UNITS)}")
    return unit
