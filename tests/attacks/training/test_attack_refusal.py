"""Ask a question about a client's data by the shape of the model: does it refuse, when others answer?

Attacker: a lying node, which makes a task a question: a model with C classes, for C = 2, 3, ... A client that fails in
training, because it holds a label above C - 1, features that are no numbers or a file that it cannot read, would
refuse, signed, exact and without noise. Success: what leaves differs from what a client with other data says. It fails:
with the app of docs/members.md, or one that takes its shapes from the model, every client sends one sealed update, or
all refuse because the model is not theirs. Control: without these defences the node reads each client's largest label.
"""

import re
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
import torch
from kit.cohort import FakeCohort, Size
from kit.crypto.attacker import real_cohort
from kit.overheard import Overheard, Said, offered

from fednode.protocol.model import Layout
from fednode_clients.app import PrivateApp
from fednode_clients.client import client as client_module
from fednode_clients.client.privatise import bound
from fednode_clients.limits import MemberLimits
from fednode_clients.training import gradients
from fednode_clients.training.gradients import clipped_gradient_sum

(CLIENT,) = re.findall(
    r"```python\n(import fednode\nimport numpy.*?)```",
    (Path(__file__).resolve().parents[3] / "docs/members.md").read_text(encoding="utf-8"),
    re.DOTALL,
)
FEATURES = 3
LARGEST = {"client-1": 3, "client-2": 1, "client-3": 4, "client-4": 2}
"""The largest label of each client."""

Held = dict[str, tuple[np.ndarray, np.ndarray] | None]
"""Features and labels by client; None if its file is missing."""


def question(root: Path, layout: Layout) -> tuple[FakeCohort, list]:
    size = Size(clients=4, holders=3, threshold=3, dimension=layout.dimension, scheme="ring")
    cohort = real_cohort(root, size, MemberLimits())
    return cohort, offered(cohort, layout)


def layout_of(classes: int, features: int = FEATURES) -> Layout:
    return Layout(("weight", "bias"), ((classes, features), (classes,)))


def data_of(features: int, largest: dict[str, int]) -> Held:
    rng = np.random.default_rng(5)
    held = {}
    for name, label in largest.items():
        x = rng.normal(size=(6, features)).astype(np.float32)
        held[name] = (x, np.append(rng.integers(0, label + 1, 5), label))
    return held


def visible(said: list[Said]) -> list[tuple[object, ...]]:
    return [one.visible() for one in said]


# --- the app that the documentation shows


@pytest.fixture
def documented(monkeypatch):
    """The layout and the training function of the app."""
    given = []
    with monkeypatch.context() as patch:
        patch.setattr(PrivateApp, "trains", lambda app, train: given.append((app._members._parts, train)))
        exec(compile(CLIENT, "docs/members.md", "exec"), {})  # noqa: S102 - it is our own
    ((parts, train),) = given
    return parts.layout(None), train


def with_nan(x, y):
    return np.full_like(x, np.nan), y


def outside(x, y):
    return x, y + 7


def unreadable(x, y):
    return x[:-1, :-1], y


def no_numbers(x, y):
    return x, y.astype("U9")


def everybody(documented, offer, root: Path, held: Held, layout: Layout | None = None) -> list[Said]:
    """What leaves while each client trains as documented, from the file in its own folder."""
    cohort, script = offer
    own, train = documented
    names = cohort.size.client_names

    def at_home(place, arrays, clip):
        home = root / f"home-{names[place.partition()]}"
        home.mkdir()
        if (mine := held[names[place.partition()]]) is not None:
            np.savez(home / "mine.npz", inputs=mine[0], targets=mine[1])
        with chdir(home):
            return train(place, arrays, clip)

    return Overheard(cohort, root / "keys", at_home, layout=layout or own).hear(script)


def missing(*_):
    return None


@pytest.mark.parametrize("spoil", [with_nan, outside, unreadable, no_numbers, missing])
def test_the_documented_app_says_the_same_whatever_its_records_are(documented, tmp_path, spoil):
    offer = question(tmp_path / "cohort", documented[0])
    held = data_of(64, dict.fromkeys(LARGEST, 1))
    usual = everybody(documented, offer, tmp_path / "usual", held)
    assert [one.kind for one in usual] == ["ready"] * 4 + ["update"] * 4
    odd = everybody(documented, offer, tmp_path / "odd", held | {"client-2": spoil(*held["client-2"])})
    assert visible(odd) == visible(usual)


def test_a_model_of_another_shape_is_refused_by_all_alike(documented, tmp_path):
    offer, held = question(tmp_path / "cohort", layout_of(3, 64)), data_of(64, LARGEST)
    said = everybody(documented, offer, tmp_path / "asked", held)
    assert [one.reason for one in said] == [""] * 4 + ["wrong-shape"] * 4
    assert not list(tmp_path.glob("asked/home-*"))


# --- an app that takes its shapes from the model


def shaped(held: Held, names):
    def train(place, arrays, clip):
        model = torch.nn.Linear(*reversed(arrays["weight"].shape))
        model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
        return clipped_gradient_sum(model, *held[names[place.partition()]], clip)

    return train


def asked_for_every_class(root: Path, held: Held, most: int = 5) -> dict[int, list[Said]]:
    """What the clients say to a model of C classes, by C."""
    answers = {}
    for classes in range(2, most + 1):
        cohort, script = question(root / f"{classes}", layout_of(classes))
        clients = Overheard(cohort, root / f"{classes}-keys", shaped(held, cohort.size.client_names))
        answers[classes] = clients.hear(script)[4:]
    return answers


def largest_labels(answers: dict[int, list[Said]]) -> dict[str, int]:
    """What the node learns: the fewest classes with which a client sends an update, less one."""
    found: dict[str, int] = {}
    for classes, said in sorted(answers.items()):
        for one in said:
            if one.kind == "update":
                found.setdefault(one.name, classes - 1)
    return found


def test_the_number_of_classes_asks_nothing(tmp_path):
    answers = asked_for_every_class(tmp_path, data_of(FEATURES, LARGEST))
    assert {one.kind for said in answers.values() for one in said} == {"update"}
    for said in answers.values():
        heads = {one.visible()[2] for one in said}, {one.visible()[-2] for one in said}
        assert all(len(seen) == 1 for seen in heads)
    assert set(largest_labels(answers).values()) == {1}


def test_control_if_labels_outside_fail_and_failures_are_told_every_largest_label_is_read(tmp_path, monkeypatch):
    def strict(labels, classes):
        if labels.max() >= classes:
            raise ValueError(f"label {labels.max()} for a model of {classes} classes")
        return np.ones(len(labels), bool), labels

    monkeypatch.setattr(gradients, "known_labels", strict)
    monkeypatch.setattr(client_module, "_bounded", lambda spec, train: (bound(train(), spec.terms), None))
    answers = asked_for_every_class(tmp_path, data_of(FEATURES, LARGEST))
    assert largest_labels(answers) == LARGEST
