from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_clearning import CLearning
from tests.support.goal_envs import PointEnv, make
from tests.support.small_models import same, small_model, weights

CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "mixed": {"lambda_": 0.5, "commanded_goal_fraction": 0.5},
    "pink": {"action_noise": "pink", "warmup_noise": "pink"},
    "stochastic": {"policy_kwargs": {"stochastic_actor": True}},
    "two environments": {"n_envs": 2, "action_noise": "pink", "warmup_noise": "pink"},
}


def _run(seed: int, n_envs: int = 1, **kwargs: Any) -> tuple[CLearning, np.ndarray]:
    """A trained model and the exploring actions that it takes next."""
    env = DummyVecEnv([make(PointEnv)] * n_envs)
    model = small_model(env, seed=seed, **kwargs)
    model.learn(40)
    obs = env.reset()
    actions = []
    for _ in range(15):
        action, _ = model.predict(obs, deterministic=False)  # type: ignore[arg-type]
        obs, _, _, _ = env.step(action)
        actions.append(action)
    return model, np.array(actions)


@pytest.mark.parametrize("case", CASES)
def test_the_same_seed_gives_the_same_weights_actions_and_data(case: str) -> None:
    (first, first_actions), (second, second_actions) = (_run(3, **CASES[case]) for _ in range(2))
    assert same(weights(first), weights(second))
    np.testing.assert_array_equal(first_actions, second_actions)
    np.testing.assert_array_equal(first.replay_buffer.actions, second.replay_buffer.actions)
    for key, values in first.replay_buffer.observations.items():
        np.testing.assert_array_equal(values, second.replay_buffer.observations[key])


@pytest.mark.parametrize("case", CASES)
def test_another_seed_gives_others(case: str) -> None:
    (first, first_actions), (second, second_actions) = (_run(seed, **CASES[case]) for seed in (3, 4))
    assert not same(weights(first), weights(second))
    assert not np.array_equal(first_actions, second_actions)
    assert not np.array_equal(first.replay_buffer.actions, second.replay_buffer.actions)


def test_predictions_are_deterministic_when_asked_for() -> None:
    model, _ = _run(0, policy_kwargs={"stochastic_actor": True})
    assert model.env is not None
    obs: Any = model.env.reset()
    np.testing.assert_array_equal(model.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])
    assert not np.array_equal(model.predict(obs)[0], model.predict(obs)[0])
