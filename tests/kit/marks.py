"""A mark of a node's ledger, for requests to holders that no real ledger stands behind."""

from fednode.protocol.ledger_mark import LedgerMark

MARK = LedgerMark("kit", 1, "00" * 32)
MARKED = MARK.parts()
