"""Which round each client's copy of the model was last checked in, by its own signed reply.

A reply's head names a round's spec, and that names the model's digest: whoever signed it had every chunk of that
version. Where older models are allowed, it is this round that holders have to vouch for.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Proof:
    """A client had all of this version of the model when it answered the round whose spec has the digest `spec`."""

    version: int
    spec: bytes


class Copies:
    """The newest proof of each client; an older one that comes late changes nothing."""

    def __init__(self) -> None:
        self._proofs: dict[str, Proof] = {}

    def learn(self, client: str, proof: Proof) -> None:
        """Take in what a signed reply proves."""
        known = self._proofs.get(client)
        if known is None or known.version <= proof.version:
            self._proofs[client] = proof

    def forget(self, client: str) -> None:
        """The client says that it does not have what it had."""
        self._proofs.pop(client, None)

    def of(self, client: str) -> Proof | None:
        """What is known of a client, if anything is."""
        return self._proofs.get(client)
