import numpy as np
import pytest
from scipy import stats
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise, VectorizedActionNoise

from sb3_clearning.common.batched_noise import BatchedNormalNoise, BatchedPinkNoise
from sb3_clearning.common.noise import ModelNoises, PinkActionNoise, PinkUniformActions, noise_argument, vectorized_noise
from tests.support.noise_law import autocorrelation, spectral_slope


@pytest.fixture(autouse=True)
def _seeded() -> None:
    np.random.seed(0)


def _pink(n_envs: int, action_dim: int = 2, **kwargs: float) -> BatchedPinkNoise:
    return PinkActionNoise(np.ones(action_dim), **kwargs).batched(n_envs)  # type: ignore[arg-type]


def _roll(noise: BatchedPinkNoise, steps: int) -> np.ndarray:
    return np.stack([noise() for _ in range(steps)])


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_the_spectrum_falls_as_one_over_f_to_the_beta(beta: float) -> None:
    sequences = _roll(_pink(600, 1, beta=beta), 256)[..., 0]
    assert spectral_slope(sequences) == pytest.approx(-beta, abs=0.05)


@pytest.mark.parametrize("length", [100, 1000])
def test_autocorrelation_is_that_of_one_environment_s_noise(length: int) -> None:
    sequences = _roll(_pink(4000, 5, length=length), 151).reshape(151, -1)
    for lag in (1, 2, 10, length // 10, 3 * length // 10):
        if lag < 151:
            measured = np.mean(sequences[0] * sequences[lag])
            # Another 0.01 for the average over 20,000 sequences
            assert measured == pytest.approx(autocorrelation(length, 1.0, lag), abs=0.03)


def test_every_step_has_the_wanted_deviation_from_the_first_on() -> None:
    sigma = np.array([0.1, 0.5])
    noise = PinkActionNoise(sigma).batched(20_000)
    steps = _roll(noise, 30)
    assert steps.shape == (30, 20_000, 2)
    assert steps.dtype == np.float32
    for step in (0, 1, 29):
        np.testing.assert_allclose(steps[step].std(axis=0), sigma, rtol=0.02)
        assert stats.kstest(steps[step, :, 1] / 0.5, "norm").pvalue > 1e-3
        # Actions are independent, and so are neighboring environments.
        assert abs(np.corrcoef(steps[step, :, 0], steps[step, :, 1])[0, 1]) < 0.03
        assert abs(np.corrcoef(steps[step, :-1, 0], steps[step, 1:, 0])[0, 1]) < 0.03


def test_a_reset_starts_new_sequences_where_episodes_ended_only() -> None:
    noise = _pink(2, 5000)
    before = noise()
    noise.reset([1])
    after = noise()
    assert np.corrcoef(before[0], after[0])[0, 1] == pytest.approx(autocorrelation(1000, 1.0, 1), abs=0.03)
    assert abs(np.corrcoef(before[1], after[1])[0, 1]) < 0.05
    noise.reset()
    assert abs(np.corrcoef(after[0], noise()[0])[0, 1]) < 0.05


def test_memory_does_not_grow_with_the_sequence() -> None:
    sizes = {sum(array.nbytes for array in _pink(4096, 8, length=length).snapshot().values()) for length in (100, 10_000)}
    assert len(sizes) == 1
    assert sizes.pop() < 2e6  # a sequence of 1000 steps would be 262 MB


def test_gaussian_noise_is_what_the_copies_draw() -> None:
    single = NormalActionNoise(np.array([0.0, 1.0]), np.array([0.1, 0.5]))
    copies, batched = VectorizedActionNoise(single, 5), vectorized_noise(single, 5)
    assert isinstance(batched, BatchedNormalNoise)
    np.random.seed(1)
    expected = [copies() for _ in range(3)]
    np.random.seed(1)
    for values in expected:
        found = batched()
        np.testing.assert_array_equal(found, values)
        assert found.dtype == values.dtype


def test_one_environment_keeps_its_noise_and_other_noises_are_copied() -> None:
    pink = PinkActionNoise(np.ones(2))
    assert vectorized_noise(pink, 1) is pink
    assert type(PinkUniformActions(1, 2).noise) is VectorizedActionNoise
    other = vectorized_noise(OrnsteinUhlenbeckActionNoise(np.zeros(2), np.ones(2)), 3)
    assert type(other) is VectorizedActionNoise
    assert noise_argument(pink.batched(3)) is pink


def test_a_snapshot_goes_on_bit_for_bit() -> None:
    warmup, action = PinkUniformActions(3, 2), _pink(3)
    noises = ModelNoises(warmup, action)
    assert noises.has_snapshot()
    for _ in range(5):
        warmup(), action()
    action.reset([1])
    arrays: dict[str, np.ndarray] = {}
    content = noises.snapshot(arrays)
    random_state = np.random.get_state()
    expected = [(warmup(), action()) for _ in range(4)]

    warmup, action = PinkUniformActions(3, 2), _pink(3)
    ModelNoises(warmup, action).restore(content, arrays)
    np.random.set_state(random_state)
    for first, second in expected:
        np.testing.assert_array_equal(warmup(), first)
        np.testing.assert_array_equal(action(), second)


def test_the_state_of_an_earlier_version_begins_new_sequences() -> None:
    # One state for each environment, as checkpoints had before the noise was batched.
    old = [{"class": "PinkActionNoise", "_step": 3} for _ in range(3)]
    arrays = {f"noise/{name}/{i}/_sequence": np.zeros((1000, 2)) for name in ("warmup", "action") for i in range(3)}
    warmup, action = PinkUniformActions(3, 2), _pink(3)
    before = action()
    ModelNoises(warmup, action).restore({"warmup": old, "action": old}, arrays)
    assert action.snapshot()["fresh"].all()
    assert not np.array_equal(before, action())
