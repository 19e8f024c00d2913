"""A client: takes a task, judges each round by its own limits, and sends one sealed update a round, the same bytes on
a retry."""

from fednode.errors import PeerFault
from fednode.protocol.envelope import Envelope, Topic
from fednode.protocol.requests import read_ask
from fednode.protocol.spec import KEY_CHECK_ROUND, RoundSpec
from fednode_clients.consent import Limits
from fednode_clients.keyfolder import KeyFolder
from fednode_clients.private import ClippedSum, add_noise, bound, seal
from fednode_clients.tasks import KnownTask, Schemes, recalled_task, verified_task
from fednode_crypto import Rng
from fednode_crypto.scheme import Sealer


class Client:
    """One client on one machine. What it promised and sent lies in its key folder, so a restart changes nothing."""

    def __init__(self, folder: KeyFolder, limits: Limits, schemes: Schemes, rng: Rng) -> None:
        self.folder, self._limits, self._schemes, self._rng = folder, limits, schemes, rng
        self._known: dict[str, tuple[KnownTask, Sealer]] = {}
        self._agreed: set[bytes] = set()

    def take_task(self, frame: bytes) -> Envelope:
        """Check a task and its joint key, keep them, say "ready". Raises `PeerFault` with the reason to refuse."""
        task, parts = read_ask("task", frame)
        self._remember(verified_task(self.folder, self._schemes, task, parts))
        return self.folder.signer.write("ready", Topic(task))

    def judge(self, spec: RoundSpec, model: bytes) -> bytes | None:
        """The update that was sealed for this very spec already (to be sent again), or None if the round may be joined.

        `model` is the digest of the arrays that came with the spec. Raises `PeerFault`: what `Limits.check` and
        `KnownTask.check` raise, "another-model", "second-spec" for a round that this client joined under another spec,
        "round-cap" if it has joined as many rounds of the task as it ever will, "not-a-client".
        """
        known, _ = self._task(spec.task)
        known.check(spec)
        self._limits.check(spec)
        if known.me.role != "client" or spec.round == KEY_CHECK_ROUND:
            raise PeerFault("not-a-client", f"{self.folder.name} sends no updates in round {spec.round}")
        if model != spec.model_digest:
            raise PeerFault("another-model", "the arrays are not those that the round names")
        earlier = self._earlier(spec)
        if earlier is None:
            self._agreed.add(spec.digest())
        return earlier

    def _earlier(self, spec: RoundSpec) -> bytes | None:
        sealed = self.folder.get(f"sealed/{spec.task}")
        if sealed is not None and sealed[:32] == spec.digest():
            return sealed[32:]
        joined = [entry for entry in self.folder.recorded() if entry.get("joined") == spec.task]
        if any(entry.get("round") == spec.round for entry in joined):
            raise PeerFault(
                "second-spec", f"I joined round {spec.round} of {spec.task} under another spec or sent it already"
            )
        if len(joined) >= self._limits.max_rounds:
            raise PeerFault(
                "round-cap", f"{len(joined)} rounds of {spec.task} joined, {self._limits.max_rounds} are my most"
            )
        return None

    def answer(self, spec: RoundSpec, total: ClippedSum) -> bytes:
        """Bound, round, noise, seal, sign; on disk before it is returned.

        Raises `PeerFault("no-consent")` for a spec that `judge` did not pass, or that was answered since, and
        `ValueError` or `Overflow` for a sum that no honest training gives; nothing is sent then.
        """
        if spec.digest() not in self._agreed:
            raise PeerFault("no-consent", f"round {spec.round} of {spec.task} was not judged under this spec")
        _, sealer = self._task(spec.task)
        noised = add_noise(bound(total, spec.terms), spec.terms, self._rng)
        sealed = seal(noised, spec, sealer, self._rng)
        topic = Topic(spec.task, spec.round, sealed.spec_digest)
        frame = self.folder.signer.write("update", topic, sealed.payload).to_bytes()
        # the record first: after a crash in between, the round counts as joined and is never sealed a second time
        self._agreed.discard(sealed.spec_digest)
        self.folder.record({"joined": spec.task, "round": spec.round, "spec": sealed.spec_digest.hex()})
        self.folder.put(f"sealed/{spec.task}", sealed.spec_digest + frame)
        return frame

    def refuse(self, spec: RoundSpec, fault: PeerFault) -> bytes:
        """A signed refusal that says why."""
        return refusal(self.folder, Topic(spec.task, spec.round, spec.digest()), fault)

    def _task(self, task: str) -> tuple[KnownTask, Sealer]:
        if task not in self._known:
            self._remember(recalled_task(self.folder, self._schemes, task))
        return self._known[task]

    def _remember(self, known: KnownTask) -> None:
        self._known[known.card.task] = (known, known.scheme.sealer(known.card.sum_params, known.key))


def refusal(folder: KeyFolder, topic: Topic, fault: PeerFault) -> bytes:
    """A signed "no" with its reason, for any request."""
    about = {"reason": _one_line(fault.reason, 64), "detail": _one_line(fault.detail or fault.reason, 512)}
    return folder.signer.write("refusal", topic, about=about).to_bytes()


def _one_line(text: str, longest: int) -> str:
    """The text as a head can carry it: printable, on one line, not empty."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(plain.split())[:longest] or "no reason given"
