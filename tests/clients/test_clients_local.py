from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from fednode.errors import ConfigError
from fednode_clients.training.local import LocalTraining, clipped, local_update
from fednode_clients.training.models import linear_head, load_vector, parameter_count, to_vector

SGD = partial(torch.optim.SGD, lr=0.5)


def mlp():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.ReLU(), torch.nn.Linear(5, 3))


def batches(n=20, size=8, seed=0):
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(rng.normal(size=(n, 6)).astype(np.float32))
    return DataLoader(TensorDataset(rows, torch.from_numpy(rng.integers(0, 3, n))), size)


def test_one_step_of_sgd_is_the_rate_times_the_mean_gradient():
    model, (batch,) = linear_head(6, 3), batches(8)
    load_vector(model, np.random.default_rng(1).normal(size=21))
    torch.nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
    gradient = np.concatenate([p.grad.double().numpy().ravel() for p in model.parameters()])
    update = local_update(model, [batch], 100.0, LocalTraining(SGD))
    assert update.vector == pytest.approx(0.5 * gradient, abs=1e-6)


def test_epochs_and_steps_are_those_asked_for():
    # the loss is the first weight, so that each step of SGD moves it by the rate
    training = LocalTraining(SGD, loss=lambda model, _: next(model.parameters())[0, 0])
    for epochs, steps, taken in ((1, None, 3), (4, None, 12), (4, 5, 5), (1, 5, 3)):
        model = linear_head(6, 3)
        chosen = LocalTraining(training.optimiser, epochs, steps, loss=training.loss)
        assert local_update(model, batches(), 100.0, chosen).vector.sum() == pytest.approx(0.5 * taken)


@pytest.mark.parametrize(
    "optimiser", [torch.optim.Adam, torch.optim.AdamW, partial(torch.optim.LBFGS, max_iter=3), SGD]
)
def test_any_optimiser_moves_the_model_and_never_by_more_than_the_clip(optimiser):
    for clip in (1e-3, 0.1, 1e6):
        model = mlp()
        before = to_vector(model)
        update = local_update(model, batches(), clip, LocalTraining(optimiser, epochs=2))
        moved = before - to_vector(model)
        norm = np.linalg.norm(moved)
        assert norm > 1e-2
        assert np.linalg.norm(update.vector) <= clip
        np.testing.assert_allclose(update.vector, moved * min(1.0, clip / norm), rtol=1e-9)


def test_a_proximal_weight_holds_the_model_back_as_in_fedprox():
    # with loss g.w + mu/2 |w - w0|^2 and rate r, step k moves by r (1 - r mu)^(k-1) g
    def first(model, _):
        return next(model.parameters())[0, 0]

    model = linear_head(6, 3)
    load_vector(model, np.full(21, 7.0))
    update = local_update(model, [None] * 3, 100.0, LocalTraining(SGD, proximal=0.4, loss=first))
    assert update.vector[0] == pytest.approx(0.5 * (1 + 0.8 + 0.64))
    assert not update.vector[1:].any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_a_result_that_is_not_finite_counts_as_zero(bad):
    rows = torch.full((2, 6), bad, dtype=torch.float32)
    update = local_update(linear_head(6, 3), [(rows, torch.tensor([0, 1]))] * 2, 1.0, LocalTraining(SGD))
    assert np.isfinite(update.vector).all()
    assert np.linalg.norm(update.vector) <= 1.0
    assert not clipped(np.array([1.0, np.nan]), 1.0).any()
    assert not clipped(np.array([1e200, 1e200]), 1.0).any()


def test_no_batches_give_zeros_and_frozen_parameters_do_not_travel():
    model = mlp()
    model[0].weight.requires_grad_(False)
    assert not local_update(model, [], 1.0, LocalTraining(SGD)).vector.any()
    update = local_update(model, batches(), 1.0, LocalTraining(SGD))
    assert update.vector.shape == (parameter_count(model),)
    assert update.vector.shape[0] == parameter_count(mlp()) - 30


def test_draws_are_fresh_unless_seeded_and_leave_the_callers_generator_alone():
    def run(seed):
        model = torch.nn.Sequential(torch.nn.Dropout(0.5), linear_head(6, 3))
        return local_update(model, batches(), 10.0, LocalTraining(SGD, seed=seed)).vector

    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second = run(None), run(None)
    assert torch.rand(1) == expected
    assert not np.array_equal(first, second)
    assert np.array_equal(run(3), run(3))


def test_the_models_mode_is_put_back():
    model = mlp().eval()
    local_update(model, batches(), 1.0, LocalTraining(SGD))
    assert not model.training


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"steps": 0}, {"proximal": -1.0}, {"proximal": float("nan")}])
def test_settings_without_sense_are_refused(bad):
    with pytest.raises(ConfigError):
        LocalTraining(SGD, **bad)
