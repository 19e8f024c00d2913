"""Learn of a client's data from anything but its sealed update: from whether, why or in which order it answers.

Attacker: a node that lies, which asks one client any rounds in any order and sees all that leaves it, while training or
the disk fails in every way. Success: two data sets differ in a message's kind, size, order or head, or in a refusal's
bytes. It fails: after consent a client sends one sealed update, of zeros if training failed, and what it refuses is
decided without its data. The same requests, generator and clock serve both data sets. Control: if errors in training
come out of the mods, their words leave.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from kit import overheard
from kit.cohort import FakeSum, Size, failing
from kit.crypto.attacker import real_cohort
from kit.overheard import Overheard, Said, offered, offering

from fednode.driver import Request
from fednode.errors import ConfigError, PeerFault, StoreError
from fednode.protocol.model import Layout
from fednode.protocol.requests import frame_kind, spec_frame
from fednode.reasons import Reason
from fednode_clients.client import client as client_module
from fednode_clients.client.model_copy import ModelCopyStore
from fednode_clients.client.privatise import bound
from fednode_clients.keyfolder import untrained as note_module
from fednode_clients.keyfolder.audit_log import AuditLog
from fednode_clients.keyfolder.state_files import StateFiles
from fednode_clients.limits import MemberLimits
from fednode_clients.training.gradients import clipped_gradient_sum

VICTIM, FEATURES, CLASSES = "client-1", 6, 2
LAYOUT = Layout(("weight", "bias"), ((CLASSES, FEATURES), (CLASSES,)))
SIZE = Size(clients=4, holders=3, threshold=3, dimension=LAYOUT.dimension, scheme="ring")
ZEROS = {name: np.zeros(shape, np.float32) for name, shape in zip(LAYOUT.names, LAYOUT.shapes, strict=True)}


@dataclass(frozen=True)
class Records:
    """What a client knows; `word` stands for what an error may quote."""

    x: np.ndarray = field(repr=False)
    y: np.ndarray = field(repr=False)
    word: str


def records(seed: int, count: int, word: str) -> Records:
    rng = np.random.default_rng(seed)
    return Records(rng.normal(size=(count, FEATURES)).astype(np.float32), rng.integers(0, CLASSES, count), word)


FEW, MANY = records(1, 3, "ann-has-nothing"), records(2, 7, "ben-has-a-rare-illness-since-1987")


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A cohort, and what an honest node asks the victim: the task, then rounds 1 to 3."""
    cohort = real_cohort(tmp_path_factory.mktemp("cohort"), SIZE, MemberLimits())
    mine = [request for name, request in offered(cohort, LAYOUT, rounds=3) if name == VICTIM]
    assert [frame_kind(request.frame) for request in mine] == ["task", "round", "round", "round"]
    return cohort, mine


def everything(asked: list[Request]) -> list[tuple[str, Request]]:
    """Each round, a retry, the same round under other terms, a round after a gap, and the one left out."""
    task, one, two, three = asked
    script = [task, one, one, offering(one, max_records=7), three, two, three]
    return [(VICTIM, request) for request in script]


# --- training


def linear(arrays) -> torch.nn.Linear:
    model = torch.nn.Linear(FEATURES, CLASSES)
    model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
    return model


def honest(data, arrays, clip):
    return clipped_gradient_sum(linear(arrays), data.x, data.y, clip)


def raising(kind: type[BaseException], *first: object):
    """Training that fails with the data in its words."""

    def train(data, *_):
        raise kind(*first, f"cannot read {data.word}")

    return train


def times(count: int):
    return lambda data, arrays, clip: honest(
        Records(*(np.repeat(a, count, 0) for a in (data.x, data.y)), ""), arrays, clip
    )


def with_nan(data, arrays, clip):
    x = data.x.copy()
    x[: len(x) // 2] = np.nan
    return clipped_gradient_sum(linear(arrays), x, data.y, clip)


def of_length(count: Callable[[Records], int], value: float = 0.0):
    return lambda data, _, clip: FakeSum(np.full(count(data), value), len(data.y), clip)


WHOLE = LAYOUT.dimension
SEALED = {
    "honest": honest,
    "far too many records": times(50),
    "no records": lambda data, arrays, clip: honest(Records(data.x[:0], data.y[:0], ""), arrays, clip),
    "NaN in features": with_nan,
    "labels outside the model": lambda data, arrays, clip: honest(
        Records(data.x, data.y + len(data.y), ""), arrays, clip
    ),
    "values far too large": of_length(lambda _: WHOLE, 1e100),
}
"""Ways in which training gives a sum, so that the payload is not the same for both data sets."""

UNTRAINED = {
    "raises ValueError": raising(ValueError),
    "raises PeerFault": raising(PeerFault, Reason.WRONG_SHAPE),
    "raises MemoryError": raising(MemoryError),
    "raises ConfigError": raising(ConfigError),
    "raises OSError": raising(OSError, 28),
    "raises StoreError": raising(StoreError),
    "raises KeyError": raising(KeyError),
    "wrong shapes of features": lambda data, arrays, clip: clipped_gradient_sum(
        linear(arrays), data.x[:, : len(data.y) - 2], data.y, clip
    ),
    "labels that are no integers": lambda data, arrays, clip: clipped_gradient_sum(
        linear(arrays), data.x, data.y / len(data.y), clip
    ),
    "wrong shape of the sum": of_length(lambda data: len(data.y)),
    "NaN in the sum": of_length(lambda _: WHOLE, np.nan),
    "a norm that overflows": of_length(lambda _: WHOLE, 1e300),
    "infinity in the sum": of_length(lambda _: WHOLE, np.inf),
    "an integer sum": lambda data, _, clip: FakeSum(np.full(WHOLE, len(data.y)), 1, clip),
    "another clip": lambda data, arrays, clip: honest(data, arrays, clip * len(data.y)),
    "NaN as clip": lambda data, arrays, clip: FakeSum(np.zeros(WHOLE), 1, float("nan")),
    "returns None": lambda *_: None,
    "returns a text": lambda data, *_: data.word,
}
"""Ways in which it gives none."""


def heard(asked, folder, data: Records, train=honest, script=None, around=lambda _: nullcontext()) -> list[Said]:
    cohort, mine = asked
    clients = Overheard(cohort, folder, lambda _, arrays, clip: train(data, arrays, clip))
    return clients.hear(everything(mine) if script is None else script, around)


def told(said: list[Said]) -> list[tuple[object, ...]]:
    return [one.visible() for one in said]


def test_what_an_honest_client_answers(asked, tmp_path):
    said = heard(asked, tmp_path / "a", FEW)
    assert [one.kind for one in said] == ["ready", "update", "update", "refusal", "update", "refusal", "update"]
    assert [one.reason for one in said if one.reason] == ["second-spec", "past-round"]
    # a retry gets the same bytes
    assert said[1].frame == said[2].frame and said[4].frame == said[6].frame != said[1].frame


@pytest.mark.parametrize("train", [*SEALED.values(), *UNTRAINED.values()], ids=[*SEALED, *UNTRAINED])
def test_however_training_ends_the_same_leaves(asked, tmp_path, train):
    honestly = told(heard(asked, tmp_path / "honest", FEW))
    for number, data in enumerate((FEW, MANY)):
        assert told(heard(asked, tmp_path / str(number), data, train)) == honestly, data


@pytest.mark.parametrize("train", UNTRAINED.values(), ids=UNTRAINED)
def test_a_failed_training_seals_what_a_client_without_records_seals(asked, tmp_path, train):
    """Even the payload is the same, since the generator is: all bytes but the boxes', and what is signed over these."""
    task, one, *_ = asked[1]
    script = [(VICTIM, task), (VICTIM, one)]
    empty = heard(asked, tmp_path / "empty", FEW, SEALED["no records"], script)[1].envelope.body
    for number, data in enumerate((FEW, MANY)):
        assert heard(asked, tmp_path / str(number), data, train, script)[1].envelope.body == empty
    assert heard(asked, tmp_path / "honest", MANY, honest, script)[1].envelope.body != empty


# --- the disk and the memory


def full_disk(word: str):
    return failing(StoreError(f"could not write {word}"))


DAMAGE: dict[str, tuple[object, str, Callable[..., object], str]] = {
    "the record cannot be read": (AuditLog, "entries", full_disk("record"), "member-storage"),
    "the state cannot be read": (StateFiles, "get", full_disk("state"), "member-storage"),
    "the model cannot be kept": (ModelCopyStore, "_keep", full_disk("copy"), "member-storage"),
    "the lock cannot be had": (client_module, "exclusive", full_disk("lock"), "member-storage"),
    "the record cannot be written": (AuditLog, "append", full_disk("record"), "member-storage"),
    "the update cannot be kept": (StateFiles, "put", full_disk("state"), "member-storage"),
    "no memory to read the round": (client_module.ClientKeys, "from_parts", failing(MemoryError()), "member-memory"),
    "no memory to seal": (client_module, "seal", failing(MemoryError()), "member-memory"),
    "the owner's note cannot be kept": (note_module, "untrained", full_disk("note"), ""),
}


def damaged(monkeypatch, first: Request, name: str):
    """In round 1 this fails, and later no more."""
    part, attribute, replacement, _ = DAMAGE[name]

    @contextmanager
    def around(request: Request) -> Iterator[None]:
        with monkeypatch.context() as disk:
            if request is first:
                disk.setattr(part, attribute, replacement)
            yield

    return around


@pytest.mark.parametrize("damage", DAMAGE)
def test_whatever_breaks_beside_training_the_same_leaves_for_all_data(asked, tmp_path, monkeypatch, damage):
    _, (task, one, two, _) = asked
    # the retry is another request, so nothing is broken any more
    script = [(VICTIM, request) for request in (task, one, replace(one), offering(one, max_records=7), two)]
    around = damaged(monkeypatch, one, damage)
    ways = [(data, train) for data in (FEW, MANY) for train in (honest, UNTRAINED["raises ValueError"])]
    heads = []
    for number, (data, train) in enumerate(ways):
        said = heard(asked, tmp_path / str(number), data, train, script, around)
        assert said[1].reason == DAMAGE[damage][3]
        heads.append(told(said))
    assert heads[0] == heads[1] == heads[2] == heads[3]


# --- refusals


def changed(array: str, value: float) -> dict[str, np.ndarray]:
    arrays = {name: value.copy() for name, value in ZEROS.items()}
    arrays[array].flat[0] = value
    return arrays


LIES: dict[str, Callable[[Request], Request]] = {
    "min-survivors": lambda one: offering(one, min_survivors=1, assumed_colluders=0),
    "noise-floor": lambda one: offering(one, local_variance=1),
    "no-room": lambda one: offering(one, max_records=10**6),
    "staleness": lambda one: offering(one, staleness=1),
    "round-cap": lambda one: offering(one, round=1_001),
    "not-a-client": lambda one: offering(one, round=0),
    "unknown-task": lambda one: offering(one, task="another"),
    "another-task": lambda one: offering(one, cohort_digest=bytes(32)),
    "bad-box-key": lambda one: offering(one, key_digest=bytes(32)),
    "another-model": lambda one: offering(one, model_digest=bytes(32)),
    "missing-chunks": lambda one: Request("train", one.tag, one.frame, {}),
    "unknown-chunk": lambda one: Request(
        "train", one.tag, one.frame, {**one.chunks, "junk/0": np.zeros(1, np.float32)}
    ),
    "bad-model": lambda one: offering(one, changed("weight", np.inf)),
    "wrong-shape": lambda one: offering(one, {"weight": np.zeros((1, WHOLE), np.float32)}),
    "malformed": lambda one: offering(one, outline=b"{}"),
    "unexpected": lambda one: Request(
        "train", one.tag, spec_frame("open", overheard.read_spec("round", one.frame)[0]), one.chunks
    ),
    "budget": lambda one: offering(one, local_variance=1 << 14),
}


@pytest.mark.parametrize("reason", LIES)
def test_what_is_refused_is_refused_before_the_data_are_looked_at(asked, tmp_path, reason):
    cohort, (task, one, two, _) = asked
    script = [(VICTIM, request) for request in (task, LIES[reason](one), two)]
    heads = []
    for number, data in enumerate((FEW, MANY)):
        seen = []

        def train(_, arrays, clip, data=data, seen=seen):
            seen.append(len(data.y))
            return honest(data, arrays, clip)

        limits = MemberLimits(max_epsilon=6.0) if reason == "budget" else MemberLimits()
        clients = Overheard(cohort, tmp_path / str(number), train, limits, LAYOUT)
        said = clients.hear(script)
        assert [one.reason for one in said] == ["", reason, ""] and len(seen) == 1
        assert said[1].envelope.signed.verified(cohort.cohort).name == VICTIM
        heads.append(told(said))
    assert heads[0] == heads[1]


# --- controls


def careless(spec, train):
    """As if training were trusted: what it raises comes out."""
    return bound(train(), spec.terms), None


@pytest.mark.parametrize(
    "way", ["raises ValueError", "raises PeerFault", "raises StoreError", "wrong shapes of features"]
)
def test_control_unless_errors_in_training_are_caught_two_data_sets_differ(asked, tmp_path, monkeypatch, way):
    monkeypatch.setattr(client_module, "_bounded", careless)
    honestly, few, many = (
        told(heard(asked, tmp_path / str(number), data, train))
        for number, (data, train) in enumerate([(FEW, honest), (FEW, UNTRAINED[way]), (MANY, UNTRAINED[way])])
    )
    assert few != honestly
    # what PeerFault says would travel in the refusal, what others say in Flower's error
    assert way == "raises StoreError" or few != many
