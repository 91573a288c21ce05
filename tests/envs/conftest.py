from collections.abc import Iterator

import gymnasium as gym
import pytest

import sb3_clearning.envs  # registers the ids


@pytest.fixture(params=sb3_clearning.envs.TASK_IDS)
def task(request: pytest.FixtureRequest) -> Iterator[gym.Env]:
    """Each task in turn, without the time limit."""
    env = gym.make(request.param).unwrapped
    yield env
    env.close()
