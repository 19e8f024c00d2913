import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fednode.errors import ConfigError
from fednode.optimiser import DEFAULT_PATH, ServerOptimiser


def run(optimiser, gradients):
    state, parameters = optimiser.init(gradients.shape[1]), np.zeros(gradients.shape[1])
    for gradient in gradients:
        state, parameters = optimiser.apply(state, parameters, gradient)
    return state, parameters


def test_two_rounds_by_hand():
    optimiser = ServerOptimiser(rounds=2, path=3.0)
    assert [optimiser.rate(step) for step in range(3)] == [2.0, 1.0, 0.0]
    state, parameters = run(optimiser, np.array([[1.0, -2.0], [10.0, 0.0]]))
    assert state.step == 2
    assert parameters.tolist() == [-12.0, 4.0]


def test_two_rounds_with_momentum_by_hand():
    _, parameters = run(ServerOptimiser(rounds=2, path=3.0, momentum=0.5), np.array([[4.0], [8.0]]))
    assert parameters.tolist() == [-(2.0 * 2.0 + 1.0 * (0.5 * 2.0 + 0.5 * 8.0))]


def test_two_rounds_of_adam_by_hand():
    optimiser = ServerOptimiser(rounds=2, path=0.3, momentum=0.9, adam=True)
    _, parameters = run(optimiser, np.array([[4.0, -0.5], [8.0, 0.0]]))
    first = 0.2 * 0.4 / (np.sqrt(0.16) + 1e-3)
    second = 0.1 * (0.9 * 0.4 + 0.8) / (np.sqrt(0.99 * 0.16 + 0.64) + 1e-3)
    assert parameters[0] == pytest.approx(-(first + second))
    # the same step whatever the size of a gradient, as long as it is far above the floor
    assert run(ServerOptimiser(1, 0.2, 0.9, True), np.array([[4.0, -400.0]]))[1] == pytest.approx([-0.2, 0.2], rel=0.01)


@settings(max_examples=50, deadline=None)
@given(rounds=st.integers(1, 500), path=st.floats(1e-3, 1e6))
def test_rates_fall_and_add_up_to_the_path(rounds, path):
    optimiser = ServerOptimiser(rounds, path)
    rates = [optimiser.rate(step) for step in range(rounds)]
    assert all(early > late > 0 for early, late in itertools.pairwise(rates))
    assert sum(rates) == pytest.approx(path, rel=1e-12)


def test_a_constant_rate_adds_up_to_the_path_and_ends():
    optimiser = ServerOptimiser(4, 2.0, constant=True)
    assert [optimiser.rate(step) for step in range(5)] == [0.5, 0.5, 0.5, 0.5, 0.0]
    assert optimiser.weights() == (0.5, 0.5, 0.5, 0.5)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), momentum=st.sampled_from([0.0, 0.5, 0.9]))
def test_same_inputs_same_bits_and_arguments_untouched(seed, momentum):
    gradients = np.random.default_rng(seed).normal(size=(6, 33))
    before = gradients.copy()
    first = run(ServerOptimiser(6, momentum=momentum), gradients)[1]
    assert first.tobytes() == run(ServerOptimiser(6, momentum=momentum), gradients)[1].tobytes()
    assert np.array_equal(gradients, before)


def test_resumed_from_a_kept_state_gives_the_same_bits():
    optimiser = ServerOptimiser(4, momentum=0.9)
    gradients = np.random.default_rng(1).normal(size=(4, 7))
    half_state, half = run(optimiser, gradients[:2])
    for gradient in gradients[2:]:
        half_state, half = optimiser.apply(half_state, half, gradient)
    assert half.tobytes() == run(optimiser, gradients)[1].tobytes()


def test_a_step_after_the_last_round_moves_nothing():
    optimiser = ServerOptimiser(1)
    state, parameters = run(optimiser, np.ones((1, 3)))
    _, after = optimiser.apply(state, parameters, np.ones(3))
    assert np.array_equal(after, parameters)
    assert parameters[0] == -DEFAULT_PATH


def test_kept_noise_depends_on_the_path_and_not_on_the_rounds():
    kept = []
    for rounds in (20, 80):
        noise = np.random.default_rng(0).normal(scale=np.sqrt(rounds), size=(rounds, 4000))
        kept.append(run(ServerOptimiser(rounds, 1.0), noise)[1].std())
    assert kept[0] == pytest.approx(kept[1], rel=0.1)


@pytest.mark.parametrize(
    ("settings_", "says"),
    [
        ({"rounds": 0}, "rounds"),
        ({"rounds": 5, "path": 0.0}, "path"),
        ({"rounds": 5, "path": float("nan")}, "path"),
        ({"rounds": 5, "momentum": 1.0}, "momentum"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings_, says):
    with pytest.raises(ConfigError, match=says):
        ServerOptimiser(**settings_)


def test_other_shapes_and_values_that_are_not_finite_are_refused():
    optimiser = ServerOptimiser(3)
    with pytest.raises(ValueError, match="differ"):
        optimiser.apply(optimiser.init(3), np.zeros(3), np.zeros(4))
    with pytest.raises(ValueError, match="not finite"):
        optimiser.apply(optimiser.init(2), np.zeros(2), np.array([0.0, np.nan]))


def test_velocity_cannot_be_changed_from_outside():
    with pytest.raises(ValueError, match="read-only"):
        ServerOptimiser(3).init(2).velocity[0] = 1.0


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_the_weights_are_what_each_gradient_adds_to_the_last_parameters(momentum):
    optimiser = ServerOptimiser(5, path=3.0, momentum=momentum)
    _, parameters = run(optimiser, np.eye(5))
    assert optimiser.weights() == pytest.approx(-parameters)
