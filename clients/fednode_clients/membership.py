"""Which member this process speaks for: found once from its configuration, kept for the life of the process."""

import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fednode.disk.private import require_private
from fednode.errors import ConfigError, PeerFault, StoreError
from fednode.members import member_names
from fednode.protocol.envelope import Topic
from fednode.protocol.requests import frame_kind, read_ask, read_spec
from fednode.reasons import Reason
from fednode_clients.client.client import Client, refusal
from fednode_clients.holder.holder import Holder
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.tasks import Schemes, role_in
from fednode_clients.limits import MemberLimits
from fednode_crypto import Rng, SystemRng, scheme

log = logging.getLogger("fednode.clients")

Config = Mapping[str, object]
SET_KEY_ROOT: Final = "set key-root to a folder of your own"


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What a node's and a run's configuration say about where and who this is."""

    run_id: int
    node: Config
    run: Config

    def partition(self) -> int:
        """The number that Flower gave this node among its siblings. Raises `ConfigError`."""
        value = self.node.get("partition-id")
        if not isinstance(value, int):
            raise ConfigError(
                'this node has no number; start it with --node-config "partition-id=0 num-partitions=..."'
            )
        return value


def member_name(place: NodeContext) -> str:
    """The first `clients` partitions are clients, the next `holders` are the key holders."""
    clients, holders = int(str(place.run.get("clients", 0))), int(str(place.run.get("holders", 0)))
    number = place.partition()
    if not 0 <= number < clients + holders:
        raise ConfigError(
            f"node {number} has no part among {clients} clients and {holders} holders; start {clients + holders} nodes"
        )
    return (member_names("client", clients) + member_names("holder", holders))[number]


def key_folder(place: NodeContext) -> Path:
    """`key-folder` of the node's own configuration; in a simulation, the member's folder under the run's key root."""
    own = place.node.get("key-folder")
    if own:
        return Path(str(own))
    shared = shared_root(place.run)
    if shared is not None:
        require_private(shared, SET_KEY_ROOT)
    return key_root(place.run_id, place.run) / member_name(place)


def key_root(run_id: int, run: Config) -> Path:
    """Where a simulation on one machine keeps the keys of its members: a private folder of this user and this run."""
    shared = shared_root(run)
    return Path(str(run["key-root"])) if shared is None else shared / str(run_id)


def shared_root(run: Config) -> Path | None:
    """The folder of this user's runs that name no `key-root`; None where this run names one.

    Anybody can foresee its name: `require_private` it before anything in it is believed.
    """
    return None if run.get("key-root") else Path(tempfile.gettempdir()) / f"fednode-{os.getuid()}"


@dataclass(frozen=True, slots=True)
class MemberParts:
    """What a member is made of; tests put other schemes and another Rng here, nothing else can."""

    schemes: Schemes = scheme
    rng: Callable[[], Rng] = SystemRng
    limits: MemberLimits = field(default_factory=MemberLimits)
    folder: Callable[[NodeContext], Path] = key_folder


def topic_of(frame: bytes) -> Topic:
    """What a request is about, so that a refusal of it can be told from others; "unreadable" if nobody can say."""
    try:
        kind = frame_kind(frame)
        if kind in ("round", "boxes", "confirm", "open", "key-check"):
            spec, _ = read_spec(kind, frame)
            return Topic(spec.task, spec.round, spec.digest())
        return Topic(read_ask(kind, frame)[0])
    except (PeerFault, MemoryError):
        return Topic("unreadable")


def storage_fault(error: StoreError) -> PeerFault:
    """A member's own trouble with its disk as the reason of a refusal: "member-storage".

    The detail is the operating system's reason; where the keys lie stays in the member's log.
    """
    log.warning("refused, since this member cannot keep what it must: %s", error)
    cause = error.__cause__
    reason = cause.strerror if isinstance(cause, OSError) else None
    return PeerFault(
        Reason.MEMBER_STORAGE,
        f"the member's disk or key folder failed: {reason or 'what it holds is damaged'}; see its log",
    )


def fault_of(error: PeerFault | StoreError | MemoryError) -> PeerFault:
    """Why a member refuses, as it may be told: the fault itself, "member-storage" or "member-memory"."""
    if isinstance(error, PeerFault):
        return error
    if isinstance(error, StoreError):
        return storage_fault(error)
    log.warning("refused, since this member has not the memory for what was asked")
    return PeerFault(Reason.MEMBER_MEMORY, "the member has not the memory for what was asked")


class Members:
    """The members that this process speaks for, each opened once: one in a deployment, several in a simulation."""

    def __init__(self, parts: MemberParts) -> None:
        self._parts = parts
        self._clients: dict[Path, Client] = {}
        self._holders: dict[Path, Holder] = {}

    def client(self, place: NodeContext) -> Client:
        """This node as a client. Raises `ConfigError` if it has no key folder."""
        path = self._parts.folder(place)
        if path not in self._clients:
            parts = self._parts
            self._clients[path] = Client(KeyFolder.open(path), self._limits(place), parts.schemes, parts.rng())
        return self._clients[path]

    def holder(self, place: NodeContext) -> Holder:
        """This node as a holder. Raises `ConfigError` if it has no key folder."""
        path = self._parts.folder(place)
        if path not in self._holders:
            parts = self._parts
            self._holders[path] = Holder(KeyFolder.open(path), self._limits(place), parts.schemes, parts.rng())
        return self._holders[path]

    def query(self, place: NodeContext, frame: bytes, kind: str) -> bytes:
        """The answer to a query, or a signed refusal with its reason; never an exception for what a peer did.

        What the member's own disk or memory does not take is refused too, as "member-storage" or "member-memory".
        Raises `ConfigError` if there is no key folder to sign with.
        """
        folder = KeyFolder.open(self._parts.folder(place))
        try:
            if kind == "hello":
                return folder.signer.write("hello", Topic("hello")).to_bytes()
            if kind == "task" and role_in(frame, folder.name) == "client":
                return self.client(place).take_task(frame).to_bytes()
            return self.holder(place).handle(frame).to_bytes()
        except (PeerFault, StoreError, MemoryError) as error:
            fault = fault_of(error)
        # past the except clause: what the error held on to is free again
        return refusal(folder, topic_of(frame), fault)

    def _limits(self, place: NodeContext) -> MemberLimits:
        # a simulated member's keys are the run's, and so are its limits
        simulated = self._parts.folder is key_folder and not place.node.get("key-folder")
        return self._parts.limits.configured(place.node, place.run, simulated=simulated)
