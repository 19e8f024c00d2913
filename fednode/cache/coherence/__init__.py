"""Coherence: who has a copy of which version, as pure values. `docs/coherence.md` has states, messages and tables.

`Directory` and `Agent` are the protocol among caches that may all write. `RoundDirectory` is what a federated run uses:
one writer, many clients, batches.
"""

from fednode.cache.coherence.agent import Agent, AgentTurn
from fednode.cache.coherence.directory import Commit, Directory, DirectoryTurn
from fednode.cache.coherence.messages import CopyState, LeaseTerms, VirtualChannel, Want
from fednode.cache.coherence.round_directory import Copies, Parcel, RoundDirectory, too_old

__all__ = [
    "Agent",
    "AgentTurn",
    "Commit",
    "Copies",
    "CopyState",
    "Directory",
    "DirectoryTurn",
    "LeaseTerms",
    "Parcel",
    "RoundDirectory",
    "VirtualChannel",
    "Want",
    "too_old",
]
