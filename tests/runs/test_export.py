"""Agents to share: the same agent comes out, and nothing but data is in the file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_clearning import CLearning, CLearningPolicy, GoalTD3, PinkActionNoise
from sb3_clearning.files.array_file import UnreadableFileError, from_bytes, to_bytes
from sb3_clearning.files.json_values import encode
from tests.support.goal_envs import ImageGoalEnv, PointEnv, make
from tests.support.small_models import changed, same, seed_all, small_model, weights

OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "stochastic": {"policy_kwargs": {"stochastic_actor": True, "n_critics": 3, "net_arch": {"pi": [8], "qf": [8, 4]}}},
    "other classes": {
        "policy_kwargs": {"activation_fn": th.nn.ELU, "optimizer_class": th.optim.SGD, "optimizer_kwargs": {"weight_decay": 0}}
    },
    "shared": {"policy_kwargs": {"share_features_extractor": True, "optimizer_kwargs": {"betas": (0.8, 0.9)}}},
    "a schedule": {"learning_rate": LinearSchedule(1e-3, 1e-4, 0.5), "w_clip": float("inf"), "train_freq": (2, "step")},
    "a noise": {"action_noise": NormalActionNoise(np.zeros(2), np.ones(2)), "lambda_": 0.25, "terminal": "absorbing"},
    "pink": {"action_noise": PinkActionNoise(0.3 * np.ones(2), length=50, beta=0.5)},
}


def _observations(env: PointEnv, n: int = 8) -> dict[str, np.ndarray]:
    samples: list[Any] = []
    for i in range(n):
        samples.append(env.reset(seed=i)[0])
    return {key: np.stack([sample[key] for sample in samples]) for key in samples[0]}


@pytest.mark.parametrize("option", OPTIONS)
def test_the_same_agent_comes_out(option: str, tmp_path: Path) -> None:
    model = small_model(PointEnv(), **OPTIONS[option]).learn(30)
    model.export(tmp_path / "agent.safetensors")
    agent = CLearning.from_export(tmp_path / "agent.safetensors", device="cpu")  # no environment
    assert same(weights(model), weights(agent))
    obs = _observations(PointEnv())
    np.testing.assert_array_equal(model.predict(obs, deterministic=True)[0], agent.predict(obs, deterministic=True)[0])
    for name in ("lambda_", "w_clip", "gamma", "terminal", "batch_size", "policy_kwargs", "train_freq", "noise_std"):
        assert getattr(model, name) == getattr(agent, name), name
    assert [model.lr_schedule(x) for x in (1.0, 0.6, 0.0)] == [agent.lr_schedule(x) for x in (1.0, 0.6, 0.0)]
    assert repr(model.action_noise) == repr(agent.action_noise)
    # Both learn on in the same way, with the same optimizers.
    agent.set_logger(model.logger)
    agent.replay_buffer = model.replay_buffer
    agent._current_progress_remaining = model._current_progress_remaining
    for one in (model, agent):
        seed_all(3)
        one.train(gradient_steps=5, batch_size=16)
    assert same(weights(model), weights(agent))


@pytest.mark.parametrize("env", [make(ImageGoalEnv), make(PointEnv, extra=True), make(PointEnv, dtype=np.float64)])
def test_spaces(env: Any, tmp_path: Path) -> None:
    model = small_model(env(), learning_starts=1000).learn(5)
    model.export(tmp_path / "agent")
    agent = CLearning.from_export(tmp_path / "agent", device="cpu")
    assert agent.observation_space == model.observation_space
    assert agent.action_space == model.action_space
    assert list(agent.observation_space.spaces) == list(model.observation_space.spaces)  # type: ignore[attr-defined]
    obs = _observations(env(), 2)
    np.testing.assert_array_equal(model.predict(obs, deterministic=True)[0], agent.predict(obs, deterministic=True)[0])


@pytest.mark.parametrize("n_envs", [1, 3])
def test_further_training(n_envs: int, tmp_path: Path) -> None:
    small_model(PointEnv()).learn(30).export(tmp_path / "agent")
    env = DummyVecEnv([make(PointEnv)] * n_envs)
    agent = CLearning.from_export(tmp_path / "agent", env, device="cpu", learning_rate=1e-2, learning_starts=0)
    assert agent.learning_rate == 1e-2
    before = weights(agent)
    agent.learn(30)
    assert changed(before, weights(agent), "actor.")


def test_normalized_agents(tmp_path: Path) -> None:
    env = VecNormalize(DummyVecEnv([make(PointEnv)] * 2), norm_reward=False)
    model = small_model(env).learn(40)
    model.export(tmp_path / "agent")
    with pytest.raises(UnreadableFileError, match=r"exported with a VecNormalize: pass an environment wrapped in one"):
        CLearning.from_export(tmp_path / "agent", PointEnv())
    other = VecNormalize(DummyVecEnv([make(PointEnv)]), norm_reward=False)
    agent = CLearning.from_export(tmp_path / "agent", other, device="cpu")
    obs = _observations(PointEnv())
    normalized, ours = env.normalize_obs(obs), other.normalize_obs(obs)
    for key in obs:
        np.testing.assert_array_equal(normalized[key], ours[key])
    agent.learn(20)
    small_model(PointEnv()).export(tmp_path / "plain")
    with pytest.raises(UnreadableFileError, match=r"exported without a VecNormalize"):
        CLearning.from_export(tmp_path / "plain", VecNormalize(DummyVecEnv([make(PointEnv)])))


class OwnPolicy(CLearningPolicy):
    """A user's class, which a file must not name."""


def test_objects_of_python_are_passed_again(tmp_path: Path) -> None:
    def schedule(progress: float) -> float:
        return 1e-3 * progress + 1e-5

    env = PointEnv()
    arguments: dict[str, Any] = {"learning_rate": schedule, "buffer_size": 100, "policy_kwargs": {"net_arch": [8]}}
    model = CLearning(OwnPolicy, env, learning_starts=10, batch_size=8, device="cpu", **arguments).learn(20)
    model.export(tmp_path / "agent")
    with pytest.raises(UnreadableFileError, match=r"holds only plain data.*OwnPolicy.*policy=…, learning_rate=…"):
        CLearning.from_export(tmp_path / "agent")
    agent = CLearning.from_export(tmp_path / "agent", env, device="cpu", policy=OwnPolicy, learning_rate=schedule)
    assert type(agent.policy) is OwnPolicy
    assert same(weights(model), weights(agent))


def test_what_is_in_the_file(tmp_path: Path) -> None:
    model = small_model(PointEnv(), tensorboard_log="/home/someone/secret", verbose=0)
    model.learn(15)
    model.export(tmp_path / "agent")
    data = (tmp_path / "agent").read_bytes()
    assert b"someone" not in data
    content, arrays = from_bytes("export", data)
    assert content["algorithm"] == "CLearning"
    assert {name.split("/")[0] for name in arrays} == {"policy", "actor.optimizer", "critic.optimizer"}
    from safetensors.numpy import load_file

    assert set(load_file(tmp_path / "agent")) == set(arrays)  # anybody's safetensors reads it


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"net_arch": [10**6, 10**6]}, "do not match the declared architecture"),
        ({"net_arch": [16, 16], "n_critics": 10**6}, "do not match the declared architecture"),
        ({"net_arch": [17, 16]}, "stored weights do not match these networks"),
        ({"net_arch": [-16, 16]}, "is not a valid exported agent"),
    ],
)
def test_forged_sizes_build_no_large_networks(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    small_model(PointEnv()).export(tmp_path / "agent")
    content, arrays = from_bytes("export", (tmp_path / "agent").read_bytes())
    content["arguments"]["policy_kwargs"] = encode(change)
    (tmp_path / "agent").write_bytes(to_bytes("export", content, arrays))
    with pytest.raises(UnreadableFileError, match=message):
        CLearning.from_export(tmp_path / "agent")


def test_forged_spaces_build_no_large_networks(tmp_path: Path) -> None:
    small_model(PointEnv()).export(tmp_path / "agent")
    content, arrays = from_bytes("export", (tmp_path / "agent").read_bytes())
    content["observation_space"]["Dict"]["observation"]["Box"].update(shape=[2**14, 2**14], low=-1, high=1)
    (tmp_path / "agent").write_bytes(to_bytes("export", content, arrays))
    with pytest.raises(UnreadableFileError, match="do not match the declared spaces"):
        CLearning.from_export(tmp_path / "agent")


def test_the_class_matters_and_diverged_agents_are_not_exported(tmp_path: Path) -> None:
    model = small_model(PointEnv())
    model.export(tmp_path / "agent")
    with pytest.raises(UnreadableFileError, match="holds a CLearning, not a GoalTD3"):
        GoalTD3.from_export(tmp_path / "agent")
    with pytest.raises(UnreadableFileError, match="environment's spaces"):
        CLearning.from_export(tmp_path / "agent", PointEnv(extra=True))
    before = (tmp_path / "agent").read_bytes()
    next(model.actor.parameters()).data.fill_(float("inf"))
    with pytest.raises(ValueError, match=r"diverged[^\0]*Nothing was saved\."):
        model.export(tmp_path / "agent")
    assert (tmp_path / "agent").read_bytes() == before
    baseline = GoalTD3("MultiInputPolicy", PointEnv(), buffer_size=50, relabel={"next": 0.3, "random": 0.7}, device="cpu")
    baseline.export(tmp_path / "baseline")
    assert GoalTD3.from_export(tmp_path / "baseline", device="cpu").relabelling() == {"next": 0.3, "random": 0.7}
