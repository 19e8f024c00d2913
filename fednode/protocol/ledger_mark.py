"""How far the node's ledger was: holders sign it with each roster and each opening, and keep it in their record.

A ledger that lost its end, or was begun anew, soon has another line in the place of one that a holder has seen. So the
holders' records show it where the node's own disk shows nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fednode.errors import PeerFault
from fednode.reasons import Reason
from fednode.wire import Fields, canonical, parse

LEDGER = "ledger"
_LONGEST, _MOST_LINES = 256, 2**53


@dataclass(frozen=True, slots=True)
class LedgerMark:
    """A ledger of this name had so many lines, and this SHA-256 in its last, in hexadecimal."""

    name: str
    lines: int
    head: str

    def parts(self) -> dict[str, bytes]:
        """Return the mark as a named part of a request."""
        return {LEDGER: canonical({"name": self.name, "lines": self.lines, "head": self.head})}

    @staticmethod
    def from_parts(parts: Mapping[str, bytes]) -> "LedgerMark":
        """Return the mark among untrusted parts. Raises `PeerFault` BAD_REQUEST without one, MALFORMED."""
        if LEDGER not in parts:
            raise PeerFault(Reason.BAD_REQUEST, "the request does not say how far the ledger is")
        fields = parse(parts[LEDGER]).only("name", "lines", "head")
        name, lines = fields.text("name", _LONGEST), fields.integer("lines", 1, _MOST_LINES)
        return LedgerMark(name, lines, fields.octets("head", 32).hex())

    def entry(self) -> list[object]:
        """Return the mark as a member's record keeps it, and as holders sign it."""
        return [self.name, self.lines, self.head]

    def require_signed(self, about: Fields) -> None:
        """Raise `PeerFault` ANOTHER_REQUEST if a holder signed another mark."""
        if about.raw().get(LEDGER) != self.entry():
            raise PeerFault(Reason.ANOTHER_REQUEST, "the answer names another head of the ledger")

    def require_among(self, entries: Iterable[Mapping[str, object]]) -> None:
        """Raise `PeerFault` ANOTHER_LEDGER if an entry of the record keeps another head of this line."""
        for entry in entries:
            kept = entry.get(LEDGER)
            if isinstance(kept, list) and kept[:2] == [self.name, self.lines] and kept[2:] != [self.head]:
                raise PeerFault(Reason.ANOTHER_LEDGER, f"line {self.lines} of ledger {self.name} was another before")
