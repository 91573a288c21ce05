"""Models without an environment: they learn from data as a model with one does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_clearning import CLearning, GoalReplayBuffer, GoalTD3, ResumableCheckpoint
from sb3_clearning.common.goal_algorithm import GoalAlgorithm
from tests.support.goal_envs import PointEnv
from tests.support.small_models import same, small_model, weights

ARGUMENTS: dict[str, Any] = {
    "policy_kwargs": {"net_arch": [16, 16]},
    "batch_size": 16,
    "buffer_size": 500,
    "seed": 0,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def data() -> GoalReplayBuffer:
    return small_model(PointEnv(), learning_starts=1000).learn(100).replay_buffer


def without_env(data: GoalReplayBuffer, algorithm: type[GoalAlgorithm] = CLearning, **arguments: Any) -> Any:
    env = PointEnv()
    model = algorithm.from_spaces(env.observation_space, env.action_space, **{**ARGUMENTS, **arguments})
    model.replay_buffer.add_transitions(data.transitions())
    return model


@pytest.mark.parametrize("algorithm", [CLearning, GoalTD3])
@pytest.mark.parametrize("stochastic", [False, True])
def test_it_learns_as_with_an_environment(data: GoalReplayBuffer, algorithm: type[GoalAlgorithm], stochastic: bool) -> None:
    arguments = {**ARGUMENTS, "policy_kwargs": {"net_arch": [16, 16], "stochastic_actor": stochastic}}
    with_env = algorithm("MultiInputPolicy", PointEnv(), **arguments)
    with_env.replay_buffer.add_transitions(data.transitions())
    before = weights(with_env)
    model = without_env(data, algorithm, **arguments)
    for each in (with_env, model):
        each.set_random_seed(1)
        each.learn_offline(30)
    assert model.env is None
    assert model.num_timesteps == 30
    assert same(weights(model), weights(with_env))
    assert not same(weights(model), before)


def test_files(data: GoalReplayBuffer, tmp_path: Path) -> None:
    model = without_env(data).learn_offline(10)
    obs = PointEnv().observation_space.sample()
    model.export(tmp_path / "agent.safetensors")
    model.save(tmp_path / "agent.zip")
    for other in (CLearning.from_export(tmp_path / "agent.safetensors"), CLearning.load(tmp_path / "agent.zip")):
        assert np.array_equal(other.predict(obs)[0], model.predict(obs)[0])
        other.replay_buffer.add_transitions(data.transitions())
        assert other.learn_offline(5).env is None


def test_it_resumes(data: GoalReplayBuffer, tmp_path: Path) -> None:
    one = without_env(data).learn_offline(40, callback=ResumableCheckpoint(tmp_path / "one", every=10))
    without_env(data).learn_offline(20, callback=ResumableCheckpoint(tmp_path / "two", every=10))
    resumed = CLearning.resume(tmp_path / "two", None)
    resumed.learn_offline(40, callback=ResumableCheckpoint(tmp_path / "two", every=10))
    assert resumed.num_timesteps == 40
    assert same(weights(resumed), weights(one))


def test_an_environment_later(data: GoalReplayBuffer) -> None:
    model = without_env(data).learn_offline(5)
    with pytest.raises(ValueError, match=r"has no environment: call `model.set_env\(env\)` before `learn`"):
        model.learn(5)
    size = model.replay_buffer.size()
    model.set_env(PointEnv())
    assert model.learn(20).replay_buffer.size() == size + 20


def test_an_error_leaves_no_stand_in(data: GoalReplayBuffer) -> None:
    def fails(*_: Any) -> bool:
        raise RuntimeError("from the callback")

    model = without_env(data)
    with pytest.raises(RuntimeError, match="from the callback"):
        model.learn_offline(5, callback=fails)
    assert model.env is None
    assert model.get_env() is None


def test_observations_of_a_normalized_environment(data: GoalReplayBuffer) -> None:
    # An agent of a VecNormalize: without it nothing is normalized, and set_env takes one later.
    model = without_env(data).learn_offline(5)
    model.set_env(VecNormalize(DummyVecEnv([PointEnv])))
    assert model.learn(20).get_vec_normalize_env() is not None
