"""A small enrolled cohort with its keys in memory, and what its members talk about. The keys are no secret: never
outside tests."""

import hashlib
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kit.clocks import FakeClock

from fednode.privacy import Budget, DiscreteGaussianSum, Ledger, Receipt
from fednode.protocol.cohort import Cohort, Member, Role
from fednode.protocol.envelope import Signer, Topic
from fednode.protocol.spec import RoundSpec, Terms
from fednode_crypto import Demand, SumParams, plan
from fednode_crypto.identity import BoxKey, SigningKey

TASK = "intents"
TOPIC = Topic(TASK, 3, bytes(range(32)))


@dataclass(frozen=True, slots=True)
class InsecureMember:
    """A member whose keys follow from its name."""

    name: str
    role: Role
    point: int = 0

    @property
    def signing_key(self) -> SigningKey:
        return SigningKey.from_private_bytes(_secret("sign", self.name))

    @property
    def box_key(self) -> BoxKey:
        return BoxKey.from_private_bytes(_secret("box", self.name))

    @property
    def signer(self) -> Signer:
        return Signer(self.name, self.signing_key)

    @property
    def public(self) -> Member:
        return Member(self.name, self.role, self.signing_key.public, self.box_key.public, self.point)


def _secret(use: str, name: str) -> bytes:
    return hashlib.sha256(f"insecure {use} {name}".encode()).digest()


ENROLMENT = SigningKey.from_private_bytes(_secret("sign", "enrolment"))
CLIENTS = tuple(InsecureMember(f"client-{n}", "client") for n in (1, 2, 3))
HOLDERS = tuple(InsecureMember(f"holder-{n}", "holder", n) for n in (1, 2, 3))
NODE = InsecureMember("node", "client")
STRANGER = InsecureMember("client-9", "client")


@lru_cache(maxsize=1)
def small_cohort() -> Cohort:
    """Three clients and three holders, signed by `ENROLMENT`."""
    return Cohort.enrol([member.public for member in CLIENTS + HOLDERS], ENROLMENT, NODE.signing_key.public)


@lru_cache(maxsize=1)
def small_sum() -> SumParams:
    """A sum of ten coordinates over four updates, opened by two of three holders."""
    return plan("bfv", Demand(dimension=10, summands=4, value_bound=1_000, holders=3, threshold=2))


TERMS = Terms(
    unit="record",
    clip=1.0,
    grid_bits=16,
    local_variance=1 << 30,
    max_records=100,
    divisor=300.0,
    min_survivors=2,
    assumed_colluders=1,
    deadline=60.0,
)


def some_spec(round_number: int = 3) -> RoundSpec:
    return RoundSpec(
        task=TASK,
        round=round_number,
        model_version=4,
        model_digest=b"\x01" * 32,
        cohort_digest=small_cohort().digest(),
        key_digest=b"\x02" * 32,
        terms=TERMS,
        sum_params=small_sum(),
    )


@lru_cache(maxsize=1)
def some_receipt() -> Receipt:
    """A receipt as the ledger gives it; there is no other way to get one."""
    event = DiscreteGaussianSum(1.0, 12, 1_000, 12_000_000, 10, 1e-20)
    with (
        tempfile.TemporaryDirectory() as folder,
        Ledger.open(Path(folder) / "ledger.jsonl", Budget(100.0, 1e-5), FakeClock(), TASK) as ledger,
    ):
        return ledger.charge(event, 1, tuple(f"client-{n}" for n in range(10)))


def flipped(data: bytes, at: int, mask: int = 1) -> bytes:
    """`data` with the bits of `mask` turned over in byte `at`."""
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
