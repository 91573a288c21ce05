"""The algorithms that these tasks are for run on them."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import TD3, HerReplayBuffer

from sb3_clearning.envs import TASK_IDS

SMALL: dict[str, Any] = {
    "learning_starts": 100,
    "batch_size": 32,
    "policy_kwargs": {"net_arch": [32, 32]},
    "seed": 0,
}


def assert_trained(model: Any) -> None:
    assert model.num_timesteps >= 500
    assert model._n_updates > 0
    for parameter in model.policy.parameters():
        assert np.isfinite(parameter.detach().numpy()).all()


@pytest.mark.slow
@pytest.mark.parametrize("task_id", TASK_IDS)
def test_td3_with_hindsight_trains(task_id: str) -> None:
    # Finger's first episode lasts longer than 500 steps, and HER samples from finished ones only.
    env = gym.make(task_id, max_episode_steps=50)
    model = TD3("MultiInputPolicy", env, replay_buffer_class=HerReplayBuffer, **SMALL).learn(500)
    assert_trained(model)
    rewards = model.replay_buffer.sample(256).rewards.numpy()  # type: ignore[union-attr]
    assert set(np.unique(rewards)) <= {-1.0, 0.0}
    assert (rewards == 0.0).any()  # relabelled goals are reached
    assert len(model.ep_info_buffer) > 0  # type: ignore[arg-type]
    assert len(model.ep_success_buffer) > 0  # type: ignore[arg-type]
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("task_id", TASK_IDS)
def test_clearning_trains(task_id: str) -> None:
    clearning = pytest.importorskip("sb3_clearning.clearning.clearning")
    env = gym.make(task_id)
    assert_trained(clearning.CLearning("MultiInputPolicy", env, **SMALL).learn(500))
    env.close()


@pytest.mark.slow
def test_clearning_learns_the_gridworld() -> None:
    """Random actions spend 4% of the time in the goal's cell, this training 50%."""
    clearning = pytest.importorskip("sb3_clearning.clearning.clearning")
    env = gym.make("ContinuousGridworld-v0")
    settings = {**SMALL, "learning_starts": 500, "batch_size": 128, "policy_kwargs": {"net_arch": [64, 64]}}
    model = clearning.CLearning("MultiInputPolicy", env, gamma=0.9, **settings).learn(2500)
    at_goal = []
    for seed in range(20):
        observation, _ = env.reset(seed=1000 + seed)
        truncated = False
        while not truncated:
            action, _ = model.predict(observation, deterministic=True)
            observation, _, _, truncated, info = env.step(action)
            at_goal.append(info["is_success"])
    assert np.mean(at_goal) > 0.3
