"""A model under which only the records of the node's choice have a gradient, so that the sum is about them alone.

Attacker: a lying node that sends all clients one model, so that one spec holds for the roster, and knows which features
a record has. Success: one record of all clients contributes. With infinities, or finite values so large that training
overflows, it fails: the model is refused before training (`bad-model`). Within `max_weight` it succeeds, whatever is
checked: a model can ignore records without one odd number. What that tells is bounded by the member's own epsilon, and
by nothing else. Control: without the check of the model, both traps leave one record; without the budget, the last one
is sent for ever.
"""

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import pytest
import torch
from kit.cohort import FakeCohort, Size
from kit.crypto.attacker import real_cohort
from kit.overheard import Overheard, Said, offered, offering

from fednode.privacy import DiscreteGaussianSum, epsilon
from fednode.protocol.model import Layout
from fednode_clients.keyfolder.folder import KeyFolder
from fednode_clients.limits import MemberLimits
from fednode_clients.training.gradients import GradientSum, clipped_gradient_sum

CLIENTS, EACH, FEATURES, HIDDEN, CLASSES = 4, 12, 24, 4, 3
VICTIM, RECORD = "client-3", 7
HEAD = Layout(("weight", "bias"), ((CLASSES, FEATURES), (CLASSES,)))
NETWORK = Layout(
    ("0.weight", "0.bias", "2.weight", "2.bias"), ((HIDDEN, FEATURES), (HIDDEN,), (CLASSES, HIDDEN), (CLASSES,))
)
QUIET = Layout(NETWORK.names[:3], NETWORK.shapes[:3])
"""The same network without the last bias."""

Arrays = dict[str, np.ndarray]


@dataclass
class Trained:
    """What each client's training gave, which no node sees."""

    sums: list[tuple[str, GradientSum]] = field(default_factory=list)

    def contributing(self) -> list[str]:
        return [name for name, total in self.sums if np.linalg.norm(total.vector) > 1e-6]


def held() -> tuple[np.ndarray, np.ndarray]:
    """Sparse counts, as of words, and labels: [client, record, feature]."""
    rng = np.random.default_rng(3)
    present = rng.random((CLIENTS, EACH, FEATURES)) < 0.25
    x = np.where(present, rng.uniform(0.5, 2.0, present.shape), 0.0).astype(np.float32)
    return x, rng.integers(0, CLASSES, (CLIENTS, EACH))


X, Y = held()
OWN = np.flatnonzero(X[int(VICTIM[-1]) - 1, RECORD])
"""The features of the record that the node is after."""
RARE = next(three for three in combinations(OWN, 3) if (X[:, :, three] > 0).all(axis=2).sum() == 1)
"""Three of them that no other record has together."""


def module(layout: Layout) -> torch.nn.Module:
    if layout is HEAD:
        return torch.nn.Linear(FEATURES, CLASSES)
    last = torch.nn.Linear(HIDDEN, CLASSES, bias=layout is NETWORK)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, HIDDEN), torch.nn.ReLU(), last)


def zeros(layout: Layout) -> Arrays:
    return {name: np.zeros(shape, np.float32) for name, shape in zip(layout.names, layout.shapes, strict=True)}


# --- three traps


def with_infinities(arrays: Arrays) -> Arrays:
    """A record without one of these features has a score that is no number, so it contributes nothing."""
    arrays["weight"][0, OWN] = -np.inf
    return arrays


def with_huge_values(arrays: Arrays) -> Arrays:
    """A record without one of three features overflows to one infinity in a class, and to the other in another."""
    for unit, feature in enumerate(RARE):
        arrays["0.weight"][unit, feature], arrays["0.bias"][unit] = -1e20, 2e19
        arrays["2.weight"][:2, unit] = 3e38, -3e38
    arrays["0.bias"][3] = arrays["2.weight"][0, 3] = 1.0
    return arrays


def within_limits(arrays: Arrays) -> Arrays:
    """One unit is silent but for the record with most of these features: every other gradient is exactly 0."""
    arrays["0.weight"][0, OWN], arrays["0.bias"] = 10.0, np.full(HIDDEN, -1.0, np.float32)
    scores = np.sort((X @ arrays["0.weight"][0]).ravel())
    arrays["0.bias"][0] = -scores[-2:].mean()
    arrays["2.weight"][:, 0] = 1.0, -1.0, 0.5
    return arrays


TRAPS = {"infinities": (HEAD, with_infinities), "huge values": (NETWORK, with_huge_values)}


class Trap:
    """A cohort whose rounds the node asks over its own model."""

    def __init__(self, root, layout: Layout, arrays: Arrays, rounds: int = 1) -> None:
        size = Size(clients=CLIENTS, holders=3, threshold=3, dimension=layout.dimension, scheme="ring")
        self.cohort: FakeCohort = real_cohort(root / "cohort", size, MemberLimits())
        honest = offered(self.cohort, layout, rounds)
        self.script = [(n, one if one.call == "query" else offering(one, arrays)) for n, one in honest]
        self.root, self.layout, self.trained = root, layout, Trained()

    def sprung(self, limits: MemberLimits | None = None) -> list[Said]:
        """What leaves in the rounds."""
        names = self.cohort.size.client_names

        def train(place, arrays, clip):
            model, number = module(self.layout), place.partition()
            model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
            total = clipped_gradient_sum(model, X[number], Y[number], clip)
            self.trained.sums.append((names[number], total))
            return total

        self.clients = Overheard(self.cohort, self.root / "keys", train, limits or MemberLimits(), self.layout)
        return self.clients.hear(self.script)[CLIENTS:]

    def folder(self, name: str) -> KeyFolder:
        return KeyFolder.open(self.root / "keys" / name)


@pytest.mark.parametrize("trap", TRAPS)
def test_a_model_that_makes_training_overflow_is_refused_before_training(tmp_path, trap):
    layout, make = TRAPS[trap]
    node = Trap(tmp_path, layout, make(zeros(layout)))
    said = node.sprung()
    assert [one.reason for one in said] == ["bad-model"] * CLIENTS and not node.trained.sums
    # nothing was joined, so nothing was spent
    assert all(node.folder(name).audit_log.entries() == [] for name in node.cohort.size.client_names)


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_control_without_the_check_only_records_with_all_the_features_contribute(tmp_path, monkeypatch, trap):
    monkeypatch.setattr(MemberLimits, "check_model", lambda *_: None)
    layout, make = TRAPS[trap]
    node = Trap(tmp_path, layout, make(zeros(layout)))
    assert [one.kind for one in node.sprung()] == ["update"] * CLIENTS
    kept = {name: total.records - total.dropped for name, total in node.trained.sums}
    wanted = OWN if trap == "infinities" else list(RARE)
    assert kept == {f"client-{n + 1}": int((X[n][:, wanted] > 0).all(axis=1).sum()) for n in range(CLIENTS)}
    assert node.trained.contributing() == [VICTIM] and kept[VICTIM] == 1


def test_an_ordinary_model_has_a_gradient_for_every_client(tmp_path):
    node = Trap(tmp_path, HEAD, zeros(HEAD))
    assert [one.kind for one in node.sprung()] == ["update"] * CLIENTS
    assert len(node.trained.contributing()) == CLIENTS


# --- what no check stops


def test_within_the_limit_one_record_alone_contributes_and_no_check_of_the_model_sees_it(tmp_path):
    """This documents what is left (docs/threats.md, item 2)."""
    arrays = within_limits(zeros(QUIET))
    assert max(np.abs(array).max() for array in arrays.values()) < MemberLimits().max_weight / 2
    node = Trap(tmp_path, QUIET, arrays)
    assert [one.kind for one in node.sprung()] == ["update"] * CLIENTS
    assert node.trained.contributing() == [VICTIM]
    totals = dict(node.trained.sums)
    alone = clipped_gradient_sum(
        _loaded(arrays), X[int(VICTIM[-1]) - 1][[RECORD]], Y[int(VICTIM[-1]) - 1][[RECORD]], totals[VICTIM].clip
    )
    assert np.array_equal(totals[VICTIM].vector, alone.vector)
    # none of them was dropped: their gradients are 0
    assert [total.dropped for total in totals.values()] == [0] * CLIENTS
    # what bounds it: the price in the record, the noise of the fewest survivors against one record's clip
    (entry,) = node.folder(VICTIM).audit_log.entries()
    event = DiscreteGaussianSum.from_dict(entry["cost"])
    assert np.linalg.norm(alone.vector) <= event.clip == totals[VICTIM].clip
    assert event.noise_multiplier >= MemberLimits().min_noise


def _loaded(arrays: Arrays) -> torch.nn.Module:
    model = module(QUIET)
    model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
    return model


def test_however_often_it_is_sent_the_members_own_epsilon_ends_it(tmp_path):
    node = Trap(tmp_path, QUIET, within_limits(zeros(QUIET)), rounds=8)
    said = [one for one in node.sprung() if one.name == VICTIM]
    joined = sum(one.kind == "update" for one in said)
    assert 1 <= joined < 8 and {one.reason for one in said[joined:]} == {"budget"}
    entries = node.folder(VICTIM).audit_log.entries()
    events = [DiscreteGaussianSum.from_dict(entry["cost"]) for entry in entries]
    limits = MemberLimits()
    assert len(events) == joined and epsilon(events, limits.delta) <= limits.max_epsilon
    assert epsilon([*events, events[0]], limits.delta) > limits.max_epsilon


def test_control_without_the_budget_it_goes_on(tmp_path):
    node = Trap(tmp_path, QUIET, within_limits(zeros(QUIET)), rounds=8)
    said = node.sprung(MemberLimits(max_epsilon=1e9))
    assert {one.kind for one in said} == {"update"} and node.trained.contributing() == [VICTIM] * 8
