"""Any module is right against autograd record by record, or refused with the layer's name."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.modules import MIXING, REMEMBERING, RIGHT, chosen, gradient_alone, made, rows, tokens

from fednode.errors import ConfigError
from fednode_clients.training.gradients import clipped_gradient_sum
from fednode_clients.training.models import to_vector
from fednode_clients.training.record_gradients import RecordGradients

N, CLIP = 5, 0.3


def dealt(kind, n=N, seed=0):
    rng = np.random.default_rng(seed)
    return kind(rng, n), rng.integers(0, 4, n)


@pytest.mark.parametrize("others", [(), (torch.nn.Parameter(torch.ones(6, 4)),)])
def test_complex_parameters_are_refused_by_their_name(others):
    class Wave(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.others, self.phase = torch.nn.ParameterList(others), torch.nn.Parameter(torch.ones(6, 4) * 1j)

        def forward(self, x):
            return (x.to(torch.complex64) @ self.phase).abs() + sum(x @ other for other in self.others)

    model, records = Wave(), (np.ones((2, 6), np.float32), np.zeros(2, np.int64))
    with pytest.raises(ConfigError, match="phase"):
        clipped_gradient_sum(model, *records, CLIP)
    model.phase.requires_grad_(False)
    assert clipped_gradient_sum(model, *records, CLIP).vector.shape == (24 * len(others),)


def test_at_least_forty_modules_are_tried():
    assert len(RIGHT) + len(MIXING) + len(REMEMBERING) >= 70


@pytest.mark.parametrize("name", RIGHT)
def test_a_module_is_right_against_autograd_record_by_record(name):
    make, kind = RIGHT[name]
    features, labels = dealt(kind)
    alone = np.array([gradient_alone(make, chosen(features, slice(i, i + 1)), labels[i]) for i in range(N)])
    norms = np.linalg.norm(alone, axis=1)
    expected = (alone * np.minimum(1.0, CLIP / np.maximum(norms, 1e-30))[:, None]).sum(axis=0)
    model = made(make)
    got = clipped_gradient_sum(model, features, labels, CLIP)
    # what is kept back of the clip, and float32 arithmetic in another order
    assert np.linalg.norm(got.vector - expected) <= N * CLIP * 2e-6
    assert (got.records, got.clipped, got.dropped) == (N, int((norms > CLIP).sum()), 0)


@pytest.mark.parametrize("name", RIGHT)
def test_without_a_record_the_sum_of_any_module_moves_by_the_clip_at_most(name):
    make, kind = RIGHT[name]
    features, labels = dealt(kind, seed=1)
    model = made(make)
    whole = clipped_gradient_sum(model, features, labels, CLIP)
    for at in (0, N - 1):
        kept = np.arange(N) != at
        rest = clipped_gradient_sum(model, chosen(features, kept), labels[kept], CLIP)
        assert np.linalg.norm(whole.vector - rest.vector) <= CLIP


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["perceptron with dropout", "CNN, GroupNorm", "GRU", "attention, time first", "tied weights"]),
    n=st.integers(1, 70),
    seed=st.integers(0, 2**32 - 1),
    clip=st.sampled_from([1e-6, 0.1, 7.0]),
    data=st.data(),
)
def test_without_any_record_the_sum_moves_by_the_clip_at_most(name, n, seed, clip, data):
    make, kind = RIGHT[name]
    features, labels = dealt(kind, n, seed)
    kept = np.arange(n) != data.draw(st.integers(0, n - 1))
    model = made(make)
    whole, rest = (
        clipped_gradient_sum(model, chosen(features, which), labels[which], clip).vector
        for which in (np.arange(n) >= 0, kept)
    )
    assert np.linalg.norm(whole - rest) <= clip


def gradients_of(model, records):
    return RecordGradients(model, records, None, torch.float32)


@pytest.mark.parametrize("name", ["perceptron with dropout", "CNN", "attention, batch first", "embedding", "GRU"])
def test_other_records_do_not_change_one_bit_of_a_gradient(name):
    make, kind = RIGHT[name]
    features, labels = dealt(kind, 70)
    gradients = gradients_of(made(make), (features, labels))
    together = np.concatenate(list(gradients.rows((features, labels))))
    order = np.random.default_rng(0).permutation(70)[:40]
    again = np.concatenate(list(gradients.rows((chosen(features, order), labels[order]))))
    assert np.array_equal(again, together[order])


@pytest.mark.parametrize("name", [*MIXING, *REMEMBERING])
def test_a_module_that_mixes_or_remembers_records_is_refused_by_name(name):
    make, kind, layer = {**MIXING, **REMEMBERING}[name]
    with pytest.raises(ConfigError) as refused:
        clipped_gradient_sum(made(make), *dealt(kind), CLIP)
    assert layer in str(refused.value)


@pytest.mark.parametrize("name", ["pruned, run before", "spectral norm in training", "CNN, InstanceNorm that counts"])
def test_a_model_is_left_as_it_was(name):
    make, kind = RIGHT[name]
    model = made(make)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    modes, drawn = [module.training for module in model.modules()], torch.get_rng_state()
    clipped_gradient_sum(model, *dealt(kind), CLIP)
    after = model.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(value, after[key]) for key, value in before.items())
    assert modes == [module.training for module in model.modules()] and torch.equal(drawn, torch.get_rng_state())
    assert not torch.are_deterministic_algorithms_enabled() and all(p.grad is None for p in model.parameters())


# --- types, inputs, losses


def network(dtype):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 4)).to(dtype)


@pytest.mark.parametrize("make", [network, lambda dtype: network(dtype)[0]])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_a_model_of_any_precision_is_right(make, dtype):
    features, labels = dealt(rows)
    model = make(dtype)
    before = to_vector(model)
    exact = make(dtype).double()
    gradients = []
    for x, y in zip(features, labels, strict=True):
        exact.zero_grad()
        scores = exact(torch.from_numpy(x).double()[None])
        torch.nn.functional.cross_entropy(scores, torch.tensor([y])).backward()
        gradients.append(np.concatenate([p.grad.numpy().ravel() for p in exact.parameters()]))
    expected = sum(g * min(1.0, CLIP / np.linalg.norm(g)) for g in gradients)
    got = clipped_gradient_sum(model, features, labels, CLIP)
    assert np.linalg.norm(got.vector - expected) <= N * CLIP * 2e-6
    assert np.array_equal(before, to_vector(model)) and {p.dtype for p in model.parameters()} == {dtype}


class InsistingOnHalf(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 4, dtype=torch.bfloat16)

    def forward(self, x):
        return self.layer(x.to(torch.bfloat16)).float()


def test_a_forward_that_insists_on_half_precision_is_refused_by_name():
    with pytest.raises(ValueError, match=r"layer 'layer' \(Linear\)"):
        clipped_gradient_sum(InsistingOnHalf(), *dealt(rows), CLIP)


@pytest.mark.parametrize("scale", [0.0, 1.0, 50.0, 1e4])
def test_a_saturated_linear_layer_still_takes_the_closed_form(scale, monkeypatch):
    model = made(lambda: torch.nn.Linear(300, 7))
    with torch.no_grad():
        model.weight *= scale
    monkeypatch.setattr(RecordGradients, "rows", None)
    features = np.random.default_rng(0).normal(size=(40, 300)).astype(np.float32)
    got = clipped_gradient_sum(model, features, np.arange(40) % 7, CLIP)
    assert (got.records, got.dropped) == (40, 0) and np.linalg.norm(got.vector) > 0


def test_a_hook_for_all_modules_reaches_the_gradients():
    features, labels = dealt(rows)
    model = made(RIGHT["linear"][0])
    plain = clipped_gradient_sum(model, features, labels, 100.0)
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *call: 2 * call[-1])
    try:
        doubled = clipped_gradient_sum(model, features, labels, 100.0)
    finally:
        handle.remove()
    assert np.linalg.norm(doubled.vector - plain.vector) > 0.1 * np.linalg.norm(plain.vector)


def test_a_value_that_the_type_does_not_hold_counts_as_zero_and_is_counted():
    features = np.array([[1e39, 1, 1, 0, 0, 0], [1e-60, 1, 1, 0, 0, 0]])
    labels = np.array([0, 1])
    single = clipped_gradient_sum(network(torch.float32), features, labels, CLIP)
    double = clipped_gradient_sum(network(torch.float64), features, labels, CLIP)
    assert (single.dropped, double.dropped) == (1, 0)
    assert np.linalg.norm(single.vector) <= CLIP and np.isfinite(double.vector).all()
    # the closed form of a linear layer holds both
    assert clipped_gradient_sum(network(torch.float32)[0], features, labels, CLIP).dropped == 0
    tiny = torch.nn.Linear(3, 2, bias=False, dtype=torch.float32)
    got = clipped_gradient_sum(tiny, np.full((1, 3), 1e-60), np.array([0]), 1e-80)
    assert np.linalg.norm(got.vector) == pytest.approx(1e-80, rel=1e-5) and got.clipped == 1


@pytest.mark.parametrize("at", [0, 3, 40])
def test_a_token_that_the_model_does_not_know_drops_its_record_and_no_other(at):
    make, kind = RIGHT["embedding"]
    ids, labels = dealt(kind, 41)
    kept = np.arange(41) != at
    model = made(make)
    clean = clipped_gradient_sum(model, ids[kept], labels[kept], CLIP)
    ids[at, 2] = 99
    got = clipped_gradient_sum(model, ids, labels, CLIP)
    assert got.dropped == 1 and np.linalg.norm(got.vector - clean.vector) <= 1e-9


def squared(outputs, targets):
    return ((outputs - targets) ** 2).mean(dim=1)


def test_any_loss_with_a_value_a_record():
    features, targets = dealt(rows)[0], np.random.default_rng(1).normal(size=(N, 4))
    model = network(torch.float64)
    expected = np.zeros(59)
    for x, y in zip(features, targets, strict=True):
        model.zero_grad()
        squared(model(torch.from_numpy(x).double()[None]), torch.from_numpy(y)[None]).sum().backward()
        gradient = np.concatenate([p.grad.numpy().ravel() for p in model.parameters()])
        expected += gradient * min(1.0, CLIP / np.linalg.norm(gradient))
    got = clipped_gradient_sum(model, features, targets, CLIP, loss=squared)
    assert np.linalg.norm(got.vector - expected) <= N * CLIP * 2e-6


def test_a_loss_without_a_value_a_record_is_refused():
    with pytest.raises(ValueError, match="one value a record"):
        clipped_gradient_sum(network(torch.float32), *dealt(rows), CLIP, loss=lambda outputs, _: outputs * outputs)


def test_what_is_decided_does_not_depend_on_the_records():
    """A record for which the model raises, and one for which it does not, are treated by the same way of computing."""
    make, _ = RIGHT["embedding"]
    ids, labels = dealt(tokens)
    ways = [gradients_of(made(make), (some, labels)) for some in (ids, ids + 10**6)]
    # nothing is learned of the second one's gradients: each of its records is dropped, by itself
    assert len({one.few_rows.tobytes() for one in ways}) == 1
    dropped = [clipped_gradient_sum(made(make), some, labels, CLIP).dropped for some in (ids, ids + 10**6)]
    assert dropped == [0, N]
