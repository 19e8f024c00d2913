"""Faults to inject, as a person writes them: `garbage@3:client-04`, `slow@2-4:client-01`, `dead@2-:holder-1`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fednode.settings.nearest import guess

ROLE_OF = {
    "lost-before-upload": "client",
    "lost-after-upload": "client",
    "lost-before-opening": "client",
    "slow": "client",
    "garbage": "client",
    "repeat": "client",
    "lie": "client",
    "dead": "holder",
}
"""Every kind of fault and the role it befalls."""

_FORM = re.compile(r"(?P<kind>[^@:]*)@(?P<first>[0-9]{1,9})(?P<more>-(?P<last>[0-9]{0,9}))?:(?P<member>[^@:]+)")


@dataclass(frozen=True, slots=True)
class Fault:
    """A member that misbehaves in one way from round `first` to round `last`, both included; None means to the end."""

    kind: str
    first: int
    last: int | None
    member: str

    def __str__(self) -> str:
        """The form that `parse_fault` reads back."""
        rounds = str(self.first)
        if self.last != self.first:
            rounds += "-" if self.last is None else f"-{self.last}"
        return f"{self.kind}@{rounds}:{self.member}"

    @property
    def role(self) -> str:
        """Whom it befalls: `client` or `holder`."""
        return ROLE_OF[self.kind]

    def named_as(self, names: Sequence[str]) -> "Fault":
        """The same fault with its member written as in `names`, whatever its zeros: client-3 is client-03."""
        role, _, number = self.member.rpartition("-")
        if role != self.role or not (number.isascii() and number.isdigit()):
            return self
        place = int(number[-9:]) if number[:-9].strip("0") == "" else 0
        return replace(self, member=names[place - 1]) if 1 <= place <= len(names) else self

    def covers(self, round_number: int) -> bool:
        """Whether it happens in this round; rounds count from 1."""
        return self.first <= round_number and (self.last is None or round_number <= self.last)


def parse_fault(text: str) -> Fault:
    """Read one fault; raises ValueError with a sentence that names what is wrong and what would be right."""
    form = _FORM.fullmatch(text.strip())
    if form is None:
        raise ValueError(
            f"{text!r} is not a fault: write KIND@ROUND:MEMBER, as in garbage@3:client-04 or dead@2-:holder-1"
        )
    kind, first, member = form["kind"], int(form["first"]), form["member"]
    last = first if form["more"] is None else int(form["last"]) if form["last"] else None
    if kind not in ROLE_OF:
        raise ValueError(f"{kind!r} is no kind of fault, which are {', '.join(ROLE_OF)}{guess(kind, ROLE_OF)}")
    if first < 1:
        raise ValueError(f"{text!r}: rounds count from 1")
    if last is not None and last < first:
        raise ValueError(f"{text!r}: round {last} comes before round {first}")
    return Fault(kind, first, last, member)
