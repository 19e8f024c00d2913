"""The members of this process, found from its configuration and kept for its life."""

import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fednode.clock import Clock, SystemClock
from fednode.disk.no_dumps import keep_keys_in_memory
from fednode.disk.private_folder import require_private
from fednode.errors import ConfigError, PeerFault, StoreError
from fednode.members import member_names
from fednode.protocol.envelope import Topic
from fednode.protocol.model import Layout
from fednode.protocol.requests import frame_kind, read_hello
from fednode.protocol.signed_requests import SignedRequest, task_of, topic_of
from fednode.reasons import Reason
from fednode_clients.client.client import Client, refusal
from fednode_clients.holder.holder import Holder
from fednode_clients.keyfolder.authentic import require_authentic
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.keyfolder.tasks import Schemes, role_in
from fednode_clients.limits import MemberLimits
from fednode_crypto import Rng, SystemRng, scheme

log = logging.getLogger("fednode.clients")

Config = Mapping[str, object]
SET_KEY_ROOT: Final = "set key-root to a folder of your own"


@dataclass(frozen=True, slots=True)
class NodeContext:
    """A SuperNode's own configuration and its run's."""

    run_id: int
    node: Config
    run: Config

    @property
    def node_config(self) -> Config:
        """The SuperNode's own, by the name that Flower's context has for it."""
        return self.node

    @property
    def run_config(self) -> Config:
        """The run's, by the name that Flower's context has for it."""
        return self.run

    def partition(self) -> int:
        """The number that Flower gave this node among its siblings. Raises `ConfigError`."""
        value = self.node.get("partition-id")
        if not isinstance(value, int):
            raise ConfigError(
                'this node has no number; start it with --node-config "partition-id=0 num-partitions=..."'
            )
        return value


def member_name(place: NodeContext) -> str:
    """The member's name in a simulation: the first `clients` partitions are clients, the next `holders` holders."""
    clients, holders = int(str(place.run.get("clients", 0))), int(str(place.run.get("holders", 0)))
    number = place.partition()
    if not 0 <= number < clients + holders:
        raise ConfigError(
            f"partition-id is {number}, with {clients} clients and {holders} holders; start {clients + holders} nodes"
        )
    return (member_names("client", clients) + member_names("holder", holders))[number]


def key_folder(place: NodeContext) -> Path:
    """The member's key folder: `key-folder` of its node's configuration; in a simulation, under the run's key root."""
    own = place.node.get("key-folder")
    if own:
        return Path(str(own))
    shared = shared_root(place.run)
    if shared is not None:
        require_private(shared, SET_KEY_ROOT)
    return key_root(place.run_id, place.run) / member_name(place)


def key_root(run_id: int, run: Config) -> Path:
    """The folder with the keys of a simulation's members: private to this user and this run."""
    shared = shared_root(run)
    return Path(str(run["key-root"])) if shared is None else shared / str(run_id)


def shared_root(run: Config) -> Path | None:
    """The folder of this user's runs without `key-root`; None if this run has one.

    Others can guess its name: call `require_private` before trusting anything in it.
    """
    return None if run.get("key-root") else Path(tempfile.gettempdir()) / f"fednode-{os.getuid()}"


def any_layout(_: NodeContext) -> Layout | None:
    """Whatever the node sends is trained: for a training function that takes its shapes from the arrays."""
    return None


@dataclass(frozen=True, slots=True)
class MemberParts:
    """The parts of a member. Only tests use other schemes, another `Rng` or another clock.

    `layout` gives the trained arrays of the member's own model, from its configuration and not from its data: a node
    that sends others is refused before training.
    """

    schemes: Schemes = scheme
    rng: Callable[[], Rng] = SystemRng
    limits: MemberLimits = field(default_factory=MemberLimits)
    folder: Callable[[NodeContext], Path] = key_folder
    clock: Clock = field(default_factory=SystemClock)
    layout: Callable[[NodeContext], Layout | None] = any_layout


UNREADABLE = Topic("unreadable")
"""What is refused, if not even the task of a request can be read."""


def claimed(seal: bytes) -> Topic:
    """The task that a signature names, for the refusal of a request that is not known to be the node's."""
    try:
        return Topic(task_of(seal))
    except PeerFault:
        return UNREADABLE


def storage_fault(error: StoreError) -> PeerFault:
    """A fault of the member's disk as a refusal, MEMBER_STORAGE: with the operating system's reason, without paths."""
    log.warning("refused, because this member's disk failed: %s", error)
    cause = error.__cause__
    reason = cause.strerror if isinstance(cause, OSError) else None
    return PeerFault(
        Reason.MEMBER_STORAGE,
        f"the member's disk or key folder failed: {reason or 'its content is damaged'}; see its log",
    )


def fault_of(error: PeerFault | StoreError | MemoryError) -> PeerFault:
    """The refusal for this error: the fault itself, MEMBER_STORAGE or MEMBER_MEMORY."""
    if isinstance(error, PeerFault):
        return error
    if isinstance(error, StoreError):
        return storage_fault(error)
    log.warning("refused, because this member is out of memory")
    return PeerFault(Reason.MEMBER_MEMORY, "the member does not have the memory for this")


class Members:
    """The members of this process, each opened once: one in a deployment, several in a simulation."""

    def __init__(self, parts: MemberParts) -> None:
        self._parts, self.clock = parts, parts.clock
        self._clients: dict[Path, Client] = {}
        self._holders: dict[Path, Holder] = {}

    def client(self, place: NodeContext) -> Client:
        """This node as a client. Raises `ConfigError` if it has no key folder."""
        path = self._folder(place)
        if path not in self._clients:
            self._clients[path] = Client(*self._opened(path, place), self._parts.layout(place))
        return self._clients[path]

    def holder(self, place: NodeContext) -> Holder:
        """This node as a holder. Raises `ConfigError` if it has no key folder."""
        path = self._folder(place)
        if path not in self._holders:
            self._holders[path] = Holder(*self._opened(path, place))
        return self._holders[path]

    def _folder(self, place: NodeContext) -> Path:
        if place.node.get("key-folder"):
            # not in a simulation: its keys are the run's, and Flower's engine finds the processes to end in /proc
            keep_keys_in_memory()
        return self._parts.folder(place)

    def _opened(self, path: Path, place: NodeContext) -> tuple[KeyFolder, MemberLimits, Schemes, Rng]:
        # a simulated member's keys are the run's, and so are its limits
        simulated = self._parts.folder is key_folder and not place.node.get("key-folder")
        limits = self._parts.limits.configured(place.node, place.run, simulated=simulated)
        return KeyFolder.open(path, self._parts.clock), limits, self._parts.schemes, self._parts.rng()

    def query(self, place: NodeContext, request: SignedRequest) -> bytes:
        """The answer to a query, or a signed refusal, also for a fault of this member's own disk or memory.

        All but a hello, which anybody may say, must be signed by the node.

        Raises `ConfigError` if there is no key folder to sign with.
        """
        folder = KeyFolder.open(self._folder(place), self._parts.clock)
        frame, kind, about = request.frame, frame_kind(request.frame), claimed(request.seal)
        try:
            if kind == "hello":
                nonce = read_hello(frame).hex()
                return folder.signer.write("hello", Topic("hello"), about={"nonce": nonce}).to_bytes()
            require_authentic(folder, request)
            about = topic_of(frame)
            if kind == "task" and role_in(frame, folder) == "client":
                return self.client(place).take_task(frame).to_bytes()
            return self.holder(place).handle(frame).to_bytes()
        except (PeerFault, StoreError, MemoryError) as error:
            fault = fault_of(error)
        # outside the except clause, so that the memory that the error's traceback holds is free
        return refusal(folder, about, fault)
