"""A model under which one record moves the gradients of all others, so that clipping each of them bounds nothing.

Attacker: whoever chooses the module that a client trains (a recipe that is passed on, a pretrained backbone). Success:
leaving one record out moves the sum by more than the clip. It fails: a module that mixes records or remembers them is
refused with the layer's name, and every other record is computed alone. Control: the same modules, with each record's
gradient taken beside the others and clipped, move by several clips.
"""

import numpy as np
import pytest
import torch
from kit.modules import MIXING, REMEMBERING, RIGHT, made

from fednode.errors import ConfigError
from fednode_clients.training.gradients import clipped_gradient_sum

N, CLIP = 24, 0.05
MIXES = [
    *("BatchNorm", "BatchNorm, frozen", "BatchNorm without statistics", "frozen backbone in training"),
    "less the mean",
]


def records():
    """One record is far from all others."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 6)).astype(np.float32)
    x[-1] *= 100
    return x, rng.integers(0, 4, N)


def clipped_in_company(model, x, y):
    """Each record's gradient beside all others, clipped: what a sampler without a check computes."""
    losses = torch.nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y), reduction="none")
    parameters = [p for p in model.parameters() if p.requires_grad]
    total = 0.0
    for loss in losses:
        each = torch.autograd.grad(loss, parameters, retain_graph=True)
        gradient = torch.cat([g.ravel() for g in each]).double().numpy()
        total = total + gradient * min(1.0, CLIP / np.linalg.norm(gradient))
    return total


@pytest.mark.parametrize("name", MIXES)
def test_control_in_company_one_record_moves_the_sum_by_more_than_the_clip(name):
    x, y = records()
    whole, rest = (clipped_in_company(made(MIXING[name][0]), x[:n], y[:n]) for n in (N, N - 1))
    assert np.linalg.norm(whole - rest) > 1.5 * CLIP


@pytest.mark.parametrize("name", [*MIXES, *REMEMBERING])
def test_a_module_that_lets_records_meet_is_refused_whatever_they_are(name):
    make, _, layer = {**MIXING, **REMEMBERING}[name]
    x, y = records()
    said = []
    # alone, beside others, and with values that are no numbers: the refusal is the same sentence
    for features, labels in ((x[:1], y[:1]), (x, y), (np.full_like(x, np.nan), y)):
        with pytest.raises(ConfigError) as refused:
            clipped_gradient_sum(made(make), features, labels, CLIP)
        said.append(str(refused.value))
    assert len(set(said)) == 1 and layer in said[0]


@pytest.mark.parametrize("name", ["BatchNorm in evaluation, frozen", "frozen backbone, BatchNorm", "LayerNorm"])
def test_a_module_that_keeps_records_apart_is_trained_and_one_record_moves_it_by_the_clip_at_most(name):
    x, y = records()
    model = made(RIGHT[name][0])
    whole, rest = (clipped_gradient_sum(model, x[:n], y[:n], CLIP).vector for n in (N, N - 1))
    assert 0.1 * CLIP < np.linalg.norm(whole - rest) <= CLIP
