import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fednode.errors import ConfigError
from fednode_clients.training.gradients import clip_scales, clipped_gradient_sum
from fednode_clients.training.models import (
    linear_head,
    load_vector,
    parameter_count,
    to_vector,
    travelling,
)
from fednode_clients.training.record_gradients import RecordGradients


def head(dimension=6, classes=4, seed=0):
    model = linear_head(dimension, classes)
    load_vector(model, np.random.default_rng(seed).normal(size=parameter_count(model)))
    return model


def records(n, dimension=6, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, dimension)).astype(np.float32), rng.integers(0, classes, n)


def one_by_one(model, features, labels):
    """Each record's gradient by plain autograd in float64."""
    twin = torch.nn.Linear(model.in_features, model.out_features).double()
    twin.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
    rows = []
    for x, y in zip(features, labels, strict=True):
        twin.zero_grad()
        torch.nn.functional.cross_entropy(twin(torch.from_numpy(x).double()[None]), torch.tensor([y])).backward()
        rows.append(np.concatenate([p.grad.numpy().ravel() for p in twin.parameters()]))
    return np.array(rows)


def float32_error(model, features):
    """How far float32 may move the sum of these records' gradients (L2), however it rounds and in whatever order.

    For a linear head: the logits are dot products, the softmax turns their error into at most half of it, and the
    gradient is its product with (x, 1). Clipping moves no two gradients further apart.
    """
    unit, (classes, dimension) = 2.0**-24, model.weight.shape
    weight, bias = (np.abs(p.detach().numpy()).astype(float) for p in (model.weight, model.bias))
    logits = (dimension + 2) * unit * (np.abs(features) @ weight.T + bias).max(axis=1)
    residuals = 0.6 * np.sqrt(classes) * logits + (classes + 10) * unit
    return float((residuals * np.hypot(1.0, np.linalg.norm(features, axis=1))).sum())


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 12), clip=st.sampled_from([1e-3, 0.5, 1.0, 100.0]), seed=st.integers(0, 2**32 - 1))
def test_closed_form_is_the_sum_of_clipped_autograd_gradients(n, clip, seed):
    model, (features, labels) = head(seed=seed), records(n, seed=seed)
    rows = one_by_one(model, features, labels)
    norms = np.linalg.norm(rows, axis=1)
    expected = (rows * np.minimum(1, clip / norms)[:, None]).sum(axis=0)
    got = clipped_gradient_sum(model, features, labels, clip)
    np.testing.assert_allclose(got.vector, expected, rtol=2e-6, atol=3e-6 * clip)
    assert (got.records, got.clip, got.dropped) == (n, clip, 0)
    assert got.clipped == int((norms > clip).sum())


def test_closed_form_and_sampled_agree_on_a_linear_head():
    model, (features, labels) = head(), records(150)
    wrapped = torch.nn.Sequential(model)
    for clip in (0.3, 1.0, 50.0):
        closed, sampled = (clipped_gradient_sum(m, features, labels, clip) for m in (model, wrapped))
        assert np.linalg.norm(sampled.vector - closed.vector) <= float32_error(model, features)
        assert (sampled.clipped, sampled.dropped, sampled.records) == (closed.clipped, closed.dropped, closed.records)


def mlp():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(5, 4))


def conv():
    torch.manual_seed(0)
    layers = torch.nn.Conv1d(2, 3, 3), torch.nn.GroupNorm(1, 3), torch.nn.ReLU(), torch.nn.Flatten()
    return torch.nn.Sequential(*layers, torch.nn.Linear(12, 4))


@pytest.mark.parametrize(("make", "shape"), [(mlp, (6,)), (conv, (2, 6))])
@pytest.mark.thorough
def test_sampled_path_sums_to_the_ordinary_gradient_when_nothing_is_clipped(make, shape):
    model, rng = make(), np.random.default_rng(0)
    features, labels = rng.normal(size=(70, *shape)).astype(np.float32), rng.integers(0, 4, 70)
    before = to_vector(model)
    got = clipped_gradient_sum(model, features, labels, 1e6)
    model.eval()
    loss = torch.nn.functional.cross_entropy(
        model(torch.from_numpy(features)), torch.from_numpy(labels), reduction="sum"
    )
    loss.backward()
    expected = np.concatenate([p.grad.numpy().ravel() for p in model.parameters()])
    np.testing.assert_allclose(got.vector, expected, rtol=1e-3, atol=1e-4)
    assert np.array_equal(before, to_vector(model))
    assert got.clipped == 0


@pytest.mark.parametrize(("make", "shape"), [(mlp, (6,)), (conv, (2, 6)), (head, (6,))])
@pytest.mark.parametrize("clip", [0.01, 1.0])
def test_one_record_alone_never_passes_the_clip(make, shape, clip):
    model, rng = make(), np.random.default_rng(1)
    for scale in (1e-3, 1.0, 1e3, 1e15):
        features = (scale * rng.normal(size=(1, *shape))).astype(np.float32)
        got = clipped_gradient_sum(model, features, rng.integers(0, 4, 1), clip)
        assert np.linalg.norm(got.vector) <= clip


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
    clip=st.sampled_from([1e-6, 0.1, 1.0, 7.0]),
    scale=st.sampled_from([1e-3, 1.0, 1e4, 1e30]),
    data=st.data(),
)
def test_neighbours_differ_by_the_clip_at_most(n, seed, clip, scale, data):
    model, (features, labels) = head(seed=seed), records(n, seed=seed)
    features = (features * scale).astype(np.float32)
    at = data.draw(st.integers(0, n - 1))
    with_it = clipped_gradient_sum(model, features, labels, clip)
    without = clipped_gradient_sum(model, np.delete(features, at, axis=0), np.delete(labels, at), clip)
    assert np.linalg.norm(with_it.vector - without.vector) <= clip


@settings(max_examples=60, deadline=None)
@example(norm=5.953007450215019e307, clip=1e-14)
@given(norm=st.floats(0, 1.7e308), clip=st.floats(1e-300, 1e300))
def test_a_scaled_norm_is_never_above_the_clip(norm, clip):
    (scale,) = clip_scales(np.array([norm]), clip)
    assert 0 <= scale <= 1
    assert norm * scale <= clip


def test_scales_of_zero_and_of_norms_that_are_not_finite():
    assert clip_scales(np.array([0.0, np.nan, np.inf, 0.5, 2.0]), 1.0).tolist() == [1.0, 0.0, 0.0, 1.0, 0.5 - 2.0**-21]


@pytest.mark.parametrize("wrap", [lambda model: model, torch.nn.Sequential])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_record_that_is_not_finite_counts_as_zero_and_is_counted(wrap, bad):
    linear, (features, labels) = head(), records(9)
    model, others = wrap(linear), np.delete(features, 4, axis=0)
    clean = clipped_gradient_sum(model, others, np.delete(labels, 4), 1.0)
    features[4, 2] = bad
    got = clipped_gradient_sum(model, features, labels, 1.0)
    # the sum itself is off by 2^-21 of the clip at most; on the other path the micro-batch may round each record anew
    most = 2.0**-21 if model is linear else 2 * float32_error(linear, others)
    assert np.linalg.norm(got.vector - clean.vector) <= most < 1e-3
    assert (got.dropped, got.records, got.clipped) == (1, 9, clean.clipped)


@pytest.mark.parametrize("wrap", [lambda model: model, torch.nn.Sequential])
@pytest.mark.parametrize("outside", [-1, 4, 2**62, -(2**63)])
def test_a_label_outside_the_model_counts_as_zero_and_is_counted(wrap, outside):
    model, (features, labels) = wrap(head()), records(9)
    clean = clipped_gradient_sum(model, np.delete(features, 4, axis=0), np.delete(labels, 4), 1.0)
    labels[4] = outside
    got = clipped_gradient_sum(model, features, labels, 1.0)
    assert np.linalg.norm(got.vector - clean.vector) < 1e-3
    assert (got.dropped, got.records, got.clipped) == (1, 9, clean.clipped)
    labels[:] = outside
    got = clipped_gradient_sum(model, features, labels, 1.0)
    assert not got.vector.any() and got.dropped == 9


@pytest.mark.parametrize("wrap", [lambda model: model, torch.nn.Sequential])
def test_records_beyond_the_proven_number_count_as_zero(wrap, monkeypatch):
    model, (features, labels) = wrap(head()), records(9)
    first = clipped_gradient_sum(model, features[:6], labels[:6], 1.0)
    monkeypatch.setattr("fednode_clients.training.gradients.MAX_RECORDS", 6)
    got = clipped_gradient_sum(model, features, labels, 1.0)
    assert np.array_equal(got.vector, first.vector) and (got.records, got.dropped) == (9, 3)


def test_values_that_overflow_float32_norms_are_clipped_and_not_lost():
    features = np.array([[3e38, 1.0, 2.0, 0.0, 0.0, 0.0]], dtype=np.float32)
    got = clipped_gradient_sum(linear_head(6, 4), features, np.array([1]), 1.0)
    assert np.linalg.norm(got.vector) == pytest.approx(1.0, rel=1e-5)
    assert (got.clipped, got.dropped) == (1, 0)


def test_a_model_that_is_not_finite_gives_zeros():
    model, (features, labels) = head(), records(5)
    with torch.no_grad():
        model.weight[0, 0] = torch.nan
    got = clipped_gradient_sum(model, features, labels, 1.0)
    assert not got.vector.any()
    assert got.dropped == 5


def test_zero_gradient_stays_zero():
    model = linear_head(6, 2)
    load_vector(model, np.array([0.0] * 12 + [1e30, -1e30]))
    got = clipped_gradient_sum(model, np.zeros((3, 6), np.float32), np.zeros(3, np.int64), 1.0)
    assert not got.vector.any()
    assert (got.records, got.clipped, got.dropped) == (3, 0, 0)


def test_an_empty_client_gives_zeros():
    got = clipped_gradient_sum(head(), np.zeros((0, 6), np.float32), np.zeros(0, np.int64), 1.0)
    assert got.vector.shape == (28,)
    assert not got.vector.any()
    assert got.records == 0


@pytest.mark.parametrize("wrap", [lambda model: model, torch.nn.Sequential])
@pytest.mark.parametrize(
    ("features", "labels", "clip", "says"),
    [
        (np.zeros((2, 5), np.float32), np.array([0, 1]), 1.0, "take"),
        (np.zeros((3, 6), np.float32), np.array([0, 1]), 1.0, "one for each"),
        (np.zeros(6, np.float32), np.array([0]), 1.0, "one for each"),
        (np.zeros((2, 6), np.int64), np.array([0, 1]), 1.0, "take"),
        (np.zeros((2, 6), np.float32), np.array([0.0, 1.0]), 1.0, "integers"),
        (np.zeros((2, 6), np.float32), np.array([0, 1]), 0.0, "positive"),
        (np.zeros((2, 6), np.float32), np.array([0, 1]), float("nan"), "positive"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(wrap, features, labels, clip, says):
    with pytest.raises(ValueError, match=says):
        clipped_gradient_sum(wrap(head()), features, labels, clip)


def test_a_layer_that_mixes_records_is_refused_with_what_to_do():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 4))
    with pytest.raises(ConfigError, match=r"mixes records .* use GroupNorm or LayerNorm"):
        clipped_gradient_sum(model, *records(4), 1.0)


def test_more_than_one_block_and_micro_batch_add_up():
    model, (features, labels) = head(), records(2500)
    whole = clipped_gradient_sum(model, features, labels, 0.5)
    halves = [
        clipped_gradient_sum(model, features[half], labels[half], 0.5) for half in (slice(1100), slice(1100, None))
    ]
    np.testing.assert_allclose(whole.vector, halves[0].vector + halves[1].vector, rtol=1e-12, atol=1e-12)
    assert (
        sum(map(len, RecordGradients(model, (features, labels), None, torch.float32).rows((features, labels)))) == 2500
    )


def test_private_numbers_do_not_print():
    assert repr(clipped_gradient_sum(head(), *records(5), 1.0)) == "GradientSum(clip=1.0, unit='record')"


class FakeCounting(torch.nn.Module):
    """A linear layer, a frozen one, and an integer buffer as BatchNorm has."""

    def __init__(self):
        super().__init__()
        self.front = torch.nn.Linear(3, 3).requires_grad_(False)
        self.head = torch.nn.Linear(3, 2)
        self.register_buffer("seen", torch.tensor(500, dtype=torch.int64))

    def forward(self, x):
        return self.head(self.front(x))


def test_only_trainable_floating_parameters_travel():
    model = FakeCounting()
    assert [name for name, _ in travelling(model)] == ["head.weight", "head.bias"]
    frozen = model.front.weight.clone()
    load_vector(model, np.arange(8.0))
    assert to_vector(model).tolist() == list(range(8))
    assert model.seen.item() == 500
    assert torch.equal(model.front.weight, frozen)
    got = clipped_gradient_sum(model, *records(5, 3, 2), 1.0)
    assert got.vector.shape == (8,)
    assert got.vector.any()


def test_linear_head_is_zero_and_draws_no_random_number():
    state = torch.get_rng_state()
    assert not to_vector(linear_head(5, 3)).any()
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(ValueError, match="2 classes or more"):
        linear_head(5, 1)


@pytest.mark.parametrize("vector", [np.zeros(27), np.zeros((28, 1)), np.full(28, np.nan), np.full(28, 1e300)])
def test_vectors_that_do_not_fit_change_nothing(vector):
    model = head()
    before = to_vector(model)
    with pytest.raises(ValueError, match="parameter"):
        load_vector(model, vector)
    assert np.array_equal(before, to_vector(model))


def test_a_vector_survives_the_way_through_the_model():
    vector = np.random.default_rng(0).normal(size=28).astype(np.float32).astype(np.float64)
    model = linear_head(6, 4)
    load_vector(model, vector)
    assert to_vector(model).tobytes() == vector.tobytes()


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 12), clip=st.sampled_from([1e-3, 1.0, 100.0]), seed=st.integers(0, 2**32 - 1))
def test_the_gradients_of_a_group_are_added_before_clipping(n, clip, seed):
    model, (features, labels) = head(seed=seed), records(n, seed=seed)
    groups = np.random.default_rng(seed).integers(-1, 3, n)
    rows = one_by_one(model, features, labels)
    sums = np.array([rows[groups == group].sum(axis=0) for group in np.unique(groups)])
    norms = np.linalg.norm(sums, axis=1)
    expected = (sums * np.minimum(1, clip / norms)[:, None]).sum(axis=0)
    got = clipped_gradient_sum(model, features, labels, clip, groups=groups)
    assert got.unit == "customer"
    np.testing.assert_allclose(got.vector, expected, rtol=1e-5, atol=3e-6 * clip)
    assert (got.records, got.clipped, got.dropped) == (n, int((norms > clip).sum()), 0)
    sampled = clipped_gradient_sum(torch.nn.Sequential(model), features, labels, clip, groups=groups)
    assert np.linalg.norm(sampled.vector - got.vector) <= float32_error(model, features)


@pytest.mark.parametrize("wrap", [lambda model: model, torch.nn.Sequential])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_removing_a_group_moves_the_sum_by_the_clip_at_most(wrap, scale):
    model, (features, labels) = wrap(head()), records(40)
    features, groups = (features * scale).astype(np.float32), np.arange(40) % 7
    whole = clipped_gradient_sum(model, features, labels, 0.5, groups=groups)
    for group in range(7):
        kept = groups != group
        rest = clipped_gradient_sum(model, features[kept], labels[kept], 0.5, groups=groups[kept])
        assert np.linalg.norm(whole.vector - rest.vector) <= 0.5
    # control: a bound on each record alone does not bound the group
    cut = [clipped_gradient_sum(model, features[kept], labels[kept], 0.5) for kept in (groups >= 0, groups > 0)]
    assert np.linalg.norm(cut[0].vector - cut[1].vector) > 0.5


@pytest.mark.parametrize("wrap", [lambda model: model, torch.nn.Sequential])
def test_records_of_a_group_that_are_not_finite_count_as_zero_and_are_counted(wrap):
    model, (features, labels) = wrap(head()), records(9)
    groups = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])
    clean = clipped_gradient_sum(model, *(np.delete(a, 4, axis=0) for a in (features, labels)), 1.0,
                                 groups=np.delete(groups, 4))  # fmt: skip
    features[4, 2] = np.nan
    got = clipped_gradient_sum(model, features, labels, 1.0, groups=groups)
    assert np.linalg.norm(got.vector - clean.vector) < 1e-5
    assert (got.records, got.dropped, got.clipped) == (9, 1, clean.clipped)


@pytest.mark.parametrize("groups", [np.zeros(3, np.int64), np.zeros(4), np.zeros((4, 1), np.int64)])
def test_groups_that_do_not_fit_are_refused(groups):
    with pytest.raises(ValueError, match="groups"):
        clipped_gradient_sum(head(), *records(4), 1.0, groups=groups)


def test_norms_whose_squares_overflow_or_vanish_are_clipped():
    tiny = np.full((1, 6), 1e-200)
    model = torch.nn.Linear(6, 4, bias=False, dtype=torch.float64)
    for features, clip in ((tiny, 1e-250), (1e200 * np.eye(6)[:1], 1.0)):
        with torch.no_grad():
            model.weight.zero_()
        got = clipped_gradient_sum(model, features, np.array([1]), clip)
        assert np.linalg.norm(got.vector / clip) == pytest.approx(1.0, rel=1e-5) and got.clipped == 1


@pytest.mark.parametrize("count", [2, 9, 34, 1025])
@pytest.mark.parametrize("dimension", [16, 384])
@pytest.mark.parametrize("scale", [1.0, 1e17, 1e19])
def test_leaving_a_record_out_of_huge_ones_moves_the_sum_by_the_clip_at_most(scale, dimension, count):
    # two classes tie but for rounding, so another order of adding gives another class
    rng = np.random.default_rng(dimension)
    half = rng.normal(size=(count, dimension)) * scale
    features, labels = half + half[:, ::-1], rng.integers(0, 3, count)
    for seed in range(2):
        model = head(dimension, 3, seed).double()
        with torch.no_grad():
            model.weight[1] = model.weight[0].flip(0)
        whole = clipped_gradient_sum(model, features, labels, 1.0).vector
        for out in {0, count // 2, count - 1}:
            rest = np.delete(features, out, 0), np.delete(labels, out)
            moved = whole - clipped_gradient_sum(model, *rest, 1.0).vector
            assert np.linalg.norm(moved) <= 1.0
