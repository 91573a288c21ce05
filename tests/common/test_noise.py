import pickle

import numpy as np
import pytest
from scipy import stats
from stable_baselines3.common.noise import VectorizedActionNoise

from sb3_clearning.common.noise import PinkActionNoise, PinkUniformActions, pink_noise
from tests.support.noise_law import autocorrelation, spectral_slope


@pytest.fixture(autouse=True)
def _seeded() -> None:
    np.random.seed(0)


def _roll(noise: PinkActionNoise, steps: int) -> np.ndarray:
    return np.stack([noise() for _ in range(steps)])


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 2.0])
def test_the_spectrum_falls_as_one_over_f_to_the_beta(beta: float) -> None:
    assert spectral_slope(pink_noise(256, (2000,), beta)) == pytest.approx(-beta, abs=0.03)


@pytest.mark.parametrize("length", [1, 2, 7, 64])
@pytest.mark.parametrize("beta", [0.0, 1.0, 2.0])
def test_every_step_is_standard_normal(length: int, beta: float) -> None:
    sequences = pink_noise(length, (4000,), beta)
    for step in sorted({0, length // 2, length - 1}):
        assert stats.kstest(sequences[step], "norm").pvalue > 1e-3
    assert np.mean(sequences**2, axis=1) == pytest.approx(1, abs=0.12)


@pytest.mark.parametrize(("length", "beta"), [(50, 1.0), (33, 1.0), (50, 0.0)])
def testautocorrelation_is_the_analytic_one(length: int, beta: float) -> None:
    sequences = pink_noise(length, (20_000,), beta)
    for lag in (1, 2, 10):
        measured = np.mean(sequences[3] * sequences[3 + lag])
        assert measured == pytest.approx(autocorrelation(length, beta, lag), abs=0.03)


def test_beta_zero_is_white() -> None:
    np.random.seed(3)
    noise = pink_noise(100, (2,), beta=0.0)
    np.random.seed(3)
    np.testing.assert_allclose(noise, np.random.standard_normal((100, 2)), atol=1e-12)


def test_sigma_scales_each_dimension_and_dimensions_are_independent() -> None:
    sigma = np.array([0.1, 0.5, 0.0])
    noise = PinkActionNoise(sigma, length=4)
    steps = []
    for _ in range(4000):
        noise.reset()
        steps.append(noise())
    values = np.stack(steps)
    assert values.shape == (4000, 3)
    assert values.dtype == np.float32
    np.testing.assert_allclose(values.std(axis=0), sigma, rtol=0.05)
    assert stats.kstest(values[:, 1], "norm", args=(0, 0.5)).pvalue > 1e-3
    assert abs(np.corrcoef(values[:, 0], values[:, 1])[0, 1]) < 0.06


def test_steps_of_an_episode_form_one_pink_sequence() -> None:
    noise = PinkActionNoise(np.ones(200), length=128)
    assert spectral_slope(_roll(noise, 128)) == pytest.approx(-1, abs=0.05)


def test_a_new_sequence_when_the_old_one_runs_out() -> None:
    sequences = _roll(PinkActionNoise(np.ones(5000), length=3), 6).reshape(2, 3, 5000)
    # Within a sequence steps are correlated, across the seam they are not (nor repeated)
    within = np.corrcoef(sequences[0, 1], sequences[0, 2])[0, 1]
    assert within == pytest.approx(autocorrelation(3, 1.0, 1), abs=0.05)
    for step in range(3):
        assert abs(np.corrcoef(sequences[0, 2], sequences[1, step])[0, 1]) < 0.06


def test_reset_starts_a_new_independent_sequence() -> None:
    noise = PinkActionNoise(np.ones(5000), length=100)
    before = noise()
    noise.reset()
    assert abs(np.corrcoef(before, noise())[0, 1]) < 0.06


@pytest.mark.parametrize("used", [False, True])
def test_copies_of_a_vectorized_noise_are_independent(used: bool) -> None:
    base = PinkActionNoise(np.ones(5000), length=100)
    if used:
        base()
    noise = VectorizedActionNoise(base, n_envs=3)
    values = noise()
    assert values.shape == (3, 5000)
    off_diagonal = np.corrcoef(values)[~np.eye(3, dtype=bool)]
    assert np.abs(off_diagonal).max() < 0.06


def test_resetting_one_env_leaves_the_others_sequences_alone() -> None:
    noise = VectorizedActionNoise(PinkActionNoise(np.ones(5000), length=100), n_envs=2)
    before = noise()
    noise.reset([0])
    after = noise()
    assert abs(np.corrcoef(before[0], after[0])[0, 1]) < 0.06
    assert np.corrcoef(before[1], after[1])[0, 1] == pytest.approx(autocorrelation(100, 1.0, 1), abs=0.05)


def test_the_global_seed_makes_it_reproducible() -> None:
    noise = PinkActionNoise(np.ones(2), length=5)
    np.random.seed(1)
    first = _roll(noise, 12)
    noise.reset()
    np.random.seed(1)
    np.testing.assert_array_equal(first, _roll(noise, 12))


def test_a_saved_noise_goes_on_where_it_stopped() -> None:
    noise = PinkActionNoise(np.ones(2), length=50)
    _roll(noise, 7)
    restored = pickle.loads(pickle.dumps(noise))
    np.testing.assert_array_equal(_roll(noise, 43), _roll(restored, 43))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sigma": 0.1}, "one value per action dimension"),
        ({"sigma": []}, "one value per action dimension"),
        ({"sigma": [0.1, -0.1]}, "sigma must be finite and not negative"),
        ({"sigma": [np.inf]}, "sigma must be finite and not negative"),
        ({"sigma": [0.1], "length": 0}, "length must be at least 1 step"),
        ({"sigma": [0.1], "beta": -1.0}, "beta must be finite and not negative"),
        ({"sigma": [0.1], "beta": np.nan}, "beta must be finite and not negative"),
    ],
)
def test_bad_arguments_say_what_is_wrong(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PinkActionNoise(**arguments)


def test_repr_names_the_parameters() -> None:
    assert repr(PinkActionNoise(np.array([0.5]), 10, 2.0)) == "PinkActionNoise(sigma=[0.5], length=10, beta=2.0)"


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_warm_up_actions_are_uniform_at_every_step(beta: float) -> None:
    actions = PinkUniformActions(n_envs=1000, action_dim=3, length=20, beta=beta)
    steps = np.stack([actions() for _ in range(20)])
    assert steps.shape == (20, 1000, 3)
    assert steps.dtype == np.float32
    assert np.abs(steps).max() <= 1
    for step in (0, 10, 19):
        assert stats.kstest(steps[step].ravel(), "uniform", args=(-1, 2)).pvalue > 1e-3


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_warm_up_actions_have_the_noise_s_correlation_in_time(beta: float) -> None:
    actions = PinkUniformActions(n_envs=500, action_dim=10, length=50, beta=beta)
    first, second = actions().ravel(), actions().ravel()
    # Spearman's correlation of a bivariate normal with correlation r is 6/pi asin(r/2); ranks ignore the uniform map
    expected = 6 / np.pi * np.arcsin(autocorrelation(50, beta, 1) / 2)
    assert stats.spearmanr(first, second).statistic == pytest.approx(expected, abs=0.05)


def test_warm_up_actions_reset_per_env_and_reproduce() -> None:
    actions = PinkUniformActions(n_envs=2, action_dim=2000, length=100)
    np.random.seed(1)
    before = actions()
    actions.reset([1])
    after = actions()
    assert np.corrcoef(before[0], after[0])[0, 1] > 0.5
    assert abs(np.corrcoef(before[1], after[1])[0, 1]) < 0.1
    assert abs(np.corrcoef(before[0], before[1])[0, 1]) < 0.1
    actions.reset()
    np.random.seed(1)
    np.testing.assert_array_equal(actions(), before)
