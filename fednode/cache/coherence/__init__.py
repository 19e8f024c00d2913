"""Coherence: who has a copy of which version, as pure values. `docs/coherence.md` has states, messages and tables.

`Directory` and `Agent` are the protocol among caches that all may write; `RoundDirectory` is what a federated round
needs of it: one writer, many clients, batches.
"""

from fednode.cache.coherence.agent import Agent, AgentTurn
from fednode.cache.coherence.directory import Commit, Directory, DirectoryTurn
from fednode.cache.coherence.messages import Channel, State, Terms, Want
from fednode.cache.coherence.round_directory import Copies, Parcel, RoundDirectory, too_old

__all__ = [
    "Agent",
    "AgentTurn",
    "Channel",
    "Commit",
    "Copies",
    "Directory",
    "DirectoryTurn",
    "Parcel",
    "RoundDirectory",
    "State",
    "Terms",
    "Want",
    "too_old",
]
