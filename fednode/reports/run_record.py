"""The facts of one run, as the report shows them: frozen and JSON-safe.

Numbers are finite floats or integers; `render_json` refuses anything else and names the field. Times are seconds since
1970, UTC. "Model units" are those of the clipped gradients.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fednode.reasons import Reason

_PROVEN = frozenset({Reason.BAD_BOX, Reason.CROOKED_SHARE})

_SOUND = frozenset({"finished", "stopped", "budget-spent"})

ONE_MACHINE = "all keys were made by this run on one machine"
"""Start of `Trust.enrolment` for a study without independent members."""


@dataclass(frozen=True, slots=True)
class NamedReason:
    """A client, and why its message was not used."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One round as it ended.

    `rejected` sent something that cannot be accepted, `discarded` something harmless that is not needed (a repeat, a
    late one), `lost` never answered. `noise_planned` and `noise_added` are standard deviations of the noise in each
    coordinate of the sum, in model units: of the fewest survivors less the assumed colluders, and of all updates that
    arrived and were kept. `epsilon_after` and `renyi_after` are cumulative; a round that was `charged`
    leaves them as they are where others of its clients have paid more. Bytes are means over clients.
    `asked_again` counts how often clients were asked once more for an update that had found no room. `model_digest` is
    that of the model that was saved after the round, "" if none was. `clip` is an adaptive clip in this round.
    """

    round: int
    outcome: Literal["released", "failed"]
    reason: str | None
    invited: int
    survivors: tuple[str, ...]
    rejected: tuple[NamedReason, ...] = ()
    discarded: tuple[NamedReason, ...] = ()
    lost: tuple[str, ...] = ()
    holders_answered: tuple[str, ...] = ()
    holders_silent: tuple[str, ...] = ()
    noise_planned: float = 0.0
    noise_added: float = 0.0
    epsilon_after: float = 0.0
    renyi_after: float = 0.0
    accuracy: float | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0
    asked_again: int = 0
    charged: bool = False
    model_digest: str = ""
    clip: float | None = None

    @property
    def released(self) -> bool:
        """Whether a model came out of this round."""
        return self.outcome == "released"

    @property
    def proven(self) -> tuple[str, ...]:
        """The clients and holders that the key of a box showed to be wrong, each with its reason."""
        clients = tuple(f"{one.name} ({one.reason})" for one in self.rejected if one.reason in _PROVEN)
        return clients + tuple(one for one in self.holders_silent if one.endswith(f" ({Reason.FALSE_COMPLAINT})"))


@dataclass(frozen=True, slots=True)
class About:
    """What the run is for, and who answers for it, as its settings say; "" for what they do not say."""

    title: str = ""
    organisation: str = ""
    purpose: str = ""
    contact: str = ""


@dataclass(frozen=True, slots=True)
class LabelScore:
    """How many test records of one label the last model got `right`, of how many."""

    label: str
    right: int
    total: int

    @property
    def share(self) -> float:
        """The part that it got right, 0 to 1."""
        return self.right / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class DeltaPrice:
    """Epsilon of the whole run at another delta; None where no finite one is proven."""

    delta: float
    epsilon: float | None


@dataclass(frozen=True, slots=True)
class GroupPrice:
    """Epsilon for so many units of one person together, at the delta of the budget; None where none is proven."""

    size: int
    epsilon: float | None


@dataclass(frozen=True, slots=True)
class AuditFound:
    """What `fednode audit` found: "pass" or "fail", what is wrong in sentences, and its figures (docs/audit.md)."""

    verdict: str
    findings: tuple[str, ...]
    figures: Mapping[str, int | float]


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """The trained model, its data, and the number of clients.

    `model` names the thing trained ("an intent classifier"); `dimension` counts its parameters; `records` is a public
    number near the total over all clients; `divisor` is the one that every opened sum was divided by.
    `public_inputs` were made before the run, and say where they come from.
    """

    model: str
    dataset: str
    source: str
    labels: int
    dimension: int
    clients: int
    records: int
    divisor: float
    public_inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mechanism:
    """How the noise was made.

    `clip` is the L2 bound of one unit, `sensitivity` that bound after rounding to multiples of 2^-grid_bits,
    `local_stddev` the noise of one client per coordinate in the first round: all in model units. `target_z` is the
    planned noise of the first sum, without the assumed colluders' shares, over `clip`. `sampler_error` and
    `overflow_chance` are the chances added to delta for the whole run.
    """

    name: str
    sampling: str
    clip: float
    grid_bits: int
    sensitivity: float
    local_stddev: float
    target_z: float
    min_survivors: int
    assumed_colluders: int
    sampler_error: float
    overflow_chance: float


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What the run claims.

    `unit` is what is protected, of `fednode.units` ("record"). `adjacency` completes "neighbours differ by" ("the
    contribution of one record, which is replaced by zero in one of them"). `setting` is where the noise came from
    ("distributed noise"). `epsilon` is what the ledger holds at `delta`, `renyi` the bound by Renyi divergence beside
    it. `attack_advantage` and `attack_tpr` are those of the Gaussian mechanism that `epsilon` prices; `attack_tpr` is
    the true positive rate at 1 % false positives. `replace_one` is epsilon for one unit that says something else,
    `deltas` are the prices at five deltas, `groups` those of several units together. `rounds_left` counts further
    rounds such as the last one, or as planned if there was none; 10,000 stands for that many or more.
    """

    unit: str
    adjacency: str
    setting: str
    epsilon_limit: float
    delta: float
    epsilon: float
    renyi: float
    attack_advantage: float
    attack_tpr: float
    replace_one: float | None
    deltas: tuple[DeltaPrice, ...]
    groups: tuple[GroupPrice, ...]
    rounds_left: int


@dataclass(frozen=True, slots=True)
class Trust:
    """Who holds what: enrolment, secure sum, key holders, ledger.

    `enrolment` says how the members' keys were enrolled. `adversary` completes "the secure sum withstands" and says
    what is out of scope; `strength` says whose work the sum is, what it rests on and who has audited it.
    `sum_params` are the scheme's parameters, JSON-safe. `payload_bytes` is one sealed update,
    `float32_bytes` the same update in the clear as float32. `threshold` of `holders` open a sum. `ledger_head` is the
    hash of the ledger's last line; `ledger_check` the command that checks the chain, if there is one. `cohort` is the
    digest of the signed list of members.
    """

    enrolment: str
    scheme: str
    adversary: str
    strength: str
    sum_params: Mapping[str, object]
    payload_bytes: int
    float32_bytes: int
    holders: int
    threshold: int
    ledger_path: str
    ledger_head: str
    ledger_check: str | None
    model_digest: str
    cohort: str = ""

    @property
    def one_machine(self) -> bool:
        """True for a study: no member was independent of the run."""
        return self.enrolment.startswith(ONE_MACHINE)


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement that the guarantee rests on, and how it is known, or what follows if it is wrong."""

    what: str
    how: str


@dataclass(frozen=True, slots=True)
class Claims:
    """What the guarantee rests on, by who vouches for it.

    `verified` was checked by the node or the holders, `attested` was signed by the one party that can know it,
    `assumed` was checked by nobody.
    """

    verified: tuple[Claim, ...]
    attested: tuple[Claim, ...]
    assumed: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A whole run. `outcome` is a word, such as "finished", "stopped" or "unfinished"; `outcome_sentence` explains it.

    `settings` are all settings as resolved, JSON-safe. `warnings` are sentences: what was known to be weak before the
    first round; `deviations` are what then made the guarantee, or the run, weaker than planned. `unfinished` are the
    rounds that were released and whose model was not saved or not tested. `labels` are the scores of the last model
    that was tested, `audit` what an audit of the run found, if there was one;
    `population` says what all runs over the same records have spent together.
    """

    run_id: str
    version: str
    started: float
    ended: float
    outcome: str
    outcome_sentence: str
    settings: Mapping[str, object]
    task: TaskFacts
    mechanism: Mechanism
    guarantee: Guarantee
    trust: Trust
    claims: Claims
    rounds: tuple[RoundRecord, ...]
    warnings: tuple[str, ...]
    deviations: tuple[str, ...]
    unfinished: tuple[int, ...] = ()
    about: About = About()
    labels: tuple[LabelScore, ...] = ()
    audit: AuditFound | None = None
    population: str = ""

    @property
    def released(self) -> tuple[RoundRecord, ...]:
        """The rounds that gave a model."""
        return tuple(entry for entry in self.rounds if entry.released)

    @property
    def charged(self) -> tuple[RoundRecord, ...]:
        """The rounds that cost budget."""
        return tuple(entry for entry in self.rounds if entry.charged)

    @property
    def charged_in_vain(self) -> tuple[RoundRecord, ...]:
        """The rounds that cost budget and gave no model."""
        return tuple(entry for entry in self.charged if not entry.released)

    @property
    def signable(self) -> bool:
        """Whether anybody should sign: models came out of a deployment that ended as planned or by its operator."""
        return bool(self.released) and not self.trust.one_machine and self.outcome in _SOUND

    @property
    def majority(self) -> float:
        """The accuracy of always answering with the commonest label of the test records; 0 if none were tested."""
        counts = [one.total for one in self.labels]
        return max(counts) / sum(counts) if counts else 0.0

    @property
    def injected(self) -> tuple[str, ...]:
        """The faults that the settings asked for."""
        faults = self.settings.get("faults")
        return tuple(map(str, faults)) if isinstance(faults, list | tuple) else ()

    @property
    def accuracies(self) -> tuple[float, ...]:
        """The accuracies that were measured, in order of rounds, 0 to 1."""
        return tuple(entry.accuracy for entry in self.rounds if entry.accuracy is not None)

    @property
    def mean_download(self) -> float:
        """Bytes that one client was sent in a round, averaged over the rounds that asked clients; 0 if none did."""
        sent = [entry.bytes_down for entry in self.rounds if entry.bytes_down]
        return sum(sent) / len(sent) if sent else 0.0
