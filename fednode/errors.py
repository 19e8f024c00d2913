"""Two families of error: a peer's fault is data that is counted; our own is an exception with its exit code.

FednodeError
+- PeerFault            what arrived is bad: counted under `reason`, the run goes on
+- ConfigError      2   the settings cannot work; says which one and what to do
+- DataError        3   the data, the run or the key file looked for is missing or unreadable
+- BudgetExhausted  4   the privacy budget does not hold what is asked
+- TooFewSurvivors  5   fewer updates arrived than the round may open
+- TooFewHolders    6   fewer key holders answered than it takes to open
+- OpeningRejected  7   what was opened is not what honest holders would have opened
+- StoreError       8   a disk or a cache did not take what it was given
+- AuditFailed      9   noise or clip are not what the ledger counts
+- Interrupted    130   the operator asked to stop
"""

from typing import ClassVar


class FednodeError(Exception):
    """Every error that FedNode raises on purpose; `exit_code` is what the command line ends with."""

    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        """The sentence on one line, for a terminal or a log: it may quote a peer, a file or a path."""
        return visible(super().__str__().replace("\n", " "))


class PeerFault(FednodeError):
    """A peer sent something that cannot be accepted.

    `reason` is the `fednode.reasons.Reason` that it is counted under. A fault that quotes a member's refusal has
    "refused: " and the member's own code, which may be any short text.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class ConfigError(FednodeError):
    """A setting cannot work: the sentence names it and says what to do."""

    exit_code: ClassVar[int] = 2


class DataError(FednodeError):
    """What was named is missing or unreadable, data or a file: the sentence says where it comes from."""

    exit_code: ClassVar[int] = 3


class BudgetExhausted(FednodeError):
    """The privacy budget does not hold what is asked; nothing was spent by asking."""

    exit_code: ClassVar[int] = 4


class TooFewSurvivors(FednodeError):
    """Fewer updates arrived than a round may open; nothing was opened, nothing was charged."""

    exit_code: ClassVar[int] = 5


class TooFewHolders(FednodeError):
    """Fewer holders answered than it takes to open; a charge already made is kept."""

    exit_code: ClassVar[int] = 6


class OpeningRejected(FednodeError):
    """The opened sum failed its check: nothing is published, the charge is kept.

    `points` are the holders whose answers were left out before that; empty when nobody could be told apart.
    """

    exit_code: ClassVar[int] = 7

    def __init__(self, message: str, points: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.points = points


class StoreError(FednodeError):
    """A disk, a key folder or a cache did not take what it was given; nothing is half-written."""

    exit_code: ClassVar[int] = 8


class AuditFailed(FednodeError):
    """An audit found less noise, or more of a record, than the ledger counts: epsilon is larger than it says."""

    exit_code: ClassVar[int] = 9


class Interrupted(FednodeError):
    """The operator asked to stop: the ledger is whole, finished rounds are kept."""

    exit_code: ClassVar[int] = 130


def visible(text: str, keep: str = "") -> str:
    """`text` with everything escaped that moves a cursor, ends a line or is invisible, except the letters of `keep`."""
    return "".join(
        sign if sign.isprintable() or sign in keep else sign.encode("unicode_escape").decode("ascii") for sign in text
    )


def one_line(text: str, longest: int) -> str:
    """A peer's words as a terminal may show them: printable, on one line, `longest` characters at the most."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text[: 4 * longest]).split())[
        :longest
    ]
