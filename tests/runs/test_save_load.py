import copy
import io
import pathlib
import pickle
import zipfile
from typing import Any

import numpy as np
import pytest
import torch as th
from stable_baselines3 import TD3
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from sb3_clearning import CLearning, CLearningPolicy, GoalReplayBuffer, PinkActionNoise, ResumableCheckpoint
from tests.support.goal_envs import ImageGoalEnv, PointEnv, make
from tests.support.small_models import changed, same, seed_all, small_model, weights

OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "mixed": {
        "lambda_": 0.4,
        "n_steps": 1,
        "lambda_on_w": False,
        "w_clip": 3.0,
        "classifier_loss": "mse",
        "actor_loss": "prob",
        "terminal": "absorbing",
    },
    "stochastic": {"policy_kwargs": {"stochastic_actor": True}},
    "pink, three classifiers": {"action_noise": "pink", "warmup_noise": "pink", "policy_kwargs": {"n_critics": 3}},
    "shared extractor, SGD": {"policy_kwargs": {"share_features_extractor": True, "optimizer_class": th.optim.SGD}},
    "schedule": {"learning_rate": lambda progress: 1e-3 * (progress + 0.5), "policy_delay": 2},
}


def _observations(n: int = 8) -> dict[str, np.ndarray]:
    env = PointEnv()
    env.observation_space.seed(0)
    samples: list[Any] = [env.observation_space.sample() for _ in range(n)]
    return {key: np.stack([sample[key] for sample in samples]) for key in samples[0]}


def _optimizer_states(model: CLearning) -> list[th.Tensor]:
    states = (model.actor.optimizer.state_dict(), model.critic.optimizer.state_dict())
    return [tensor for state in states for slot in state["state"].values() for tensor in slot.values() if tensor is not None]


def _envs(n_envs: int, **kwargs: Any) -> VecEnv:
    return DummyVecEnv([make(PointEnv, **kwargs)] * n_envs)


@pytest.fixture(params=OPTIONS)
def trained(request: pytest.FixtureRequest) -> CLearning:
    return small_model(PointEnv(terminates=True), **OPTIONS[request.param]).learn(30)


def test_a_loaded_model_is_the_saved_one(trained: CLearning, tmp_path: pathlib.Path) -> None:
    obs = _observations()
    trained.save(tmp_path / "model")
    loaded = CLearning.load(tmp_path / "model", device="cpu")  # no environment
    assert same(weights(trained), weights(loaded))
    np.testing.assert_array_equal(trained.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0])
    for name in (
        *("lambda_", "w_clip", "classifier_loss", "actor_loss", "terminal", "commanded_goal_fraction", "noise_std"),
        *(
            "lambda_on_w",
            "warmup_noise",
            "gamma",
            "tau",
            "policy_delay",
            "batch_size",
            "num_timesteps",
            "_n_updates",
            "policy_kwargs",
        ),
    ):
        assert getattr(trained, name) == getattr(loaded, name), name
    assert type(trained.action_noise) is type(loaded.action_noise)


def test_training_goes_on_after_loading_as_if_never_stopped(trained: CLearning, tmp_path: pathlib.Path) -> None:
    trained.save(tmp_path / "model")
    trained.save_replay_buffer(tmp_path / "buffer")
    loaded = CLearning.load(tmp_path / "model", device="cpu")
    loaded.load_replay_buffer(tmp_path / "buffer", truncate_last_traj=False)
    loaded.set_logger(trained.logger)
    before = weights(trained)
    for model in (trained, loaded):
        seed_all(7)
        model.train(gradient_steps=4, batch_size=16)
        model.train(gradient_steps=3, batch_size=16)
    assert changed(before, weights(trained), "actor.")
    assert same(weights(trained), weights(loaded))
    states, loaded_states = _optimizer_states(trained), _optimizer_states(loaded)
    assert len(states) == len(loaded_states)
    assert all(th.equal(one, other) for one, other in zip(states, loaded_states, strict=True))
    assert trained._n_updates == loaded._n_updates


def test_the_optimizer_state_is_needed_for_that(tmp_path: pathlib.Path) -> None:
    # The comparison above must see a lost optimizer state.
    model = small_model(PointEnv()).learn(30)
    model.save(tmp_path / "model")
    loaded = CLearning.load(tmp_path / "model", device="cpu")
    loaded.set_logger(model.logger)
    loaded.replay_buffer = model.replay_buffer
    loaded.critic.optimizer.state.clear()
    for one in (model, loaded):
        seed_all(7)
        one.train(gradient_steps=3, batch_size=16)
    assert not same(weights(model), weights(loaded))


def test_collecting_goes_on_after_loading(trained: CLearning, tmp_path: pathlib.Path) -> None:
    trained.save(tmp_path / "model")
    trained.save_replay_buffer(tmp_path / "buffer")
    loaded = CLearning.load(tmp_path / "model", env=PointEnv(terminates=True), device="cpu")
    loaded.load_replay_buffer(tmp_path / "buffer")
    before = weights(loaded)
    loaded.learn(15, reset_num_timesteps=False)
    assert loaded.num_timesteps == 45
    assert loaded.replay_buffer.size() == 45
    assert loaded._n_updates == trained._n_updates + 15
    assert changed(before, weights(loaded), "actor.")


def test_an_environment_may_follow_later(tmp_path: pathlib.Path) -> None:
    small_model(PointEnv()).learn(20).save(tmp_path / "model")
    loaded = CLearning.load(tmp_path / "model", device="cpu")
    assert loaded.env is None
    loaded.set_env(PointEnv())
    loaded.learn(10, reset_num_timesteps=False)
    assert loaded.num_timesteps == 30


@pytest.mark.parametrize(("n_before", "n_after"), [(1, 3), (3, 1), (3, 2)])
@pytest.mark.parametrize("noise", ["gaussian", "pink"])
def test_a_loaded_model_takes_another_number_of_environments(n_before: int, n_after: int, noise: str) -> None:
    model = small_model(_envs(n_before), action_noise=noise, warmup_noise="pink", learning_starts=6).learn(30)
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    loaded = CLearning.load(file, env=_envs(n_after), device="cpu")
    loaded.learn(30)
    assert loaded.replay_buffer.n_envs == n_after
    assert loaded.replay_buffer.size() == 30 // n_after
    after_warmup = loaded.replay_buffer.actions[6 // n_after + 1 : 30 // n_after]
    for env in range(1, n_after):  # every environment has its own noise
        assert not np.allclose(after_warmup[:, 0], after_warmup[:, env])


def test_the_model_file_has_no_buffer_and_no_environment(tmp_path: pathlib.Path) -> None:
    model = small_model(ImageGoalEnv(), buffer_size=400, learning_starts=100, batch_size=4).learn(100)
    model.save(tmp_path / "model.zip")
    data, params, _ = load_from_zip_file(tmp_path / "model.zip", device="cpu")
    assert data is not None
    for name in ("replay_buffer", "env", "_vec_normalize_env", "_metrics", "_distances", "_warmup", "_updater"):
        assert name not in data
    assert set(params) == {"policy", "actor.optimizer", "critic.optimizer"}
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        # 300 images of 1296 bytes would not fit into the part that is not weights
        assert archive.getinfo("data").file_size < 200_000


def test_custom_objects_replace_saved_ones(tmp_path: pathlib.Path) -> None:
    small_model(PointEnv()).learn(15).save(tmp_path / "model")
    replaced = {"learning_rate": 0.5, "lambda_": 0.25, "action_noise": "pink", "lr_schedule": lambda _: 0.5}
    loaded = CLearning.load(tmp_path / "model", env=PointEnv(), device="cpu", custom_objects=replaced)
    assert loaded.lambda_ == 0.25
    assert isinstance(loaded.action_noise, PinkActionNoise)
    loaded.learn(15)
    assert loaded.critic.optimizer.param_groups[0]["lr"] == 0.5


def test_arguments_of_load_replace_saved_ones_and_are_checked(tmp_path: pathlib.Path) -> None:
    small_model(PointEnv()).learn(15).save(tmp_path / "model")
    noise = NormalActionNoise(np.zeros(2), np.ones(2))
    loaded = CLearning.load(tmp_path / "model", device="cpu", lambda_=0.0, action_noise=noise)
    assert loaded.lambda_ == 0.0
    assert loaded.action_noise is noise
    with pytest.raises(ValueError, match="`lambda_` must be at least 0 and at most 1"):
        CLearning.load(tmp_path / "model", device="cpu", lambda_=2.0)


@pytest.mark.parametrize("noise", ["auto", "gaussian"])
def test_a_named_noise_is_made_of_the_new_standard_deviation(noise: str, tmp_path: pathlib.Path) -> None:
    model = small_model(_envs(2), action_noise=noise).learn(20, callback=ResumableCheckpoint(tmp_path / "run"))
    model.save(tmp_path / "model")
    model.export(tmp_path / "model.safetensors")
    for loaded in (
        CLearning.load(tmp_path / "model", device="cpu", noise_std=0.01),
        CLearning.from_export(tmp_path / "model.safetensors", device="cpu", noise_std=0.01),
        CLearning.resume(tmp_path / "run", _envs(2), noise_std=0.01),
    ):
        assert isinstance(loaded.action_noise, NormalActionNoise if noise == "gaussian" else PinkActionNoise)
        np.testing.assert_allclose(loaded.action_noise._sigma, 0.01)
    own = small_model(PointEnv(), action_noise=PinkActionNoise(0.2 * np.ones(2)))
    own.save(tmp_path / "own")
    kept: Any = CLearning.load(tmp_path / "own", device="cpu", noise_std=0.01).action_noise
    np.testing.assert_allclose(kept._sigma, 0.2)  # the user's noise is the user's


def test_parameters_are_got_and_set() -> None:
    source, target = (small_model(PointEnv(), seed=seed).learn(20) for seed in (1, 2))
    assert not same(weights(source), weights(target))
    parameters: Any = copy.deepcopy(source.get_parameters())  # they are the model's own tensors
    assert set(parameters) == {"policy", "actor.optimizer", "critic.optimizer"}
    target.set_parameters(parameters, device="cpu")
    assert same(weights(source), weights(target))
    target.replay_buffer = source.replay_buffer
    for model in (source, target):
        seed_all(0)
        model.train(gradient_steps=3, batch_size=16)
    assert same(weights(source), weights(target))
    with pytest.raises(ValueError, match="do not match"):
        target.set_parameters({"policy": parameters["policy"]}, exact_match=True, device="cpu")
    target.set_parameters({"policy": parameters["policy"]}, exact_match=False, device="cpu")


@pytest.mark.parametrize("stochastic", [False, True])
def test_the_policy_alone_saves_and_loads(stochastic: bool, tmp_path: pathlib.Path) -> None:
    arguments = {"stochastic_actor": stochastic, "n_critics": 3, "net_arch": {"pi": [8], "qf": [4, 4]}}
    model = small_model(PointEnv(), policy_kwargs=arguments).learn(20)
    model.policy.save(str(tmp_path / "policy.pt"))
    policy = CLearningPolicy.load(str(tmp_path / "policy.pt"), device="cpu")
    assert policy.stochastic_actor is stochastic
    obs = _observations()
    np.testing.assert_array_equal(policy.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])
    tensors = {key: th.as_tensor(value) for key, value in obs.items()}
    actions = th.zeros(len(obs["observation"]), 2)
    assert th.equal(policy.critic(tensors, actions), model.critic(tensors, actions))
    assert th.equal(policy.critic_target(tensors, actions), model.critic_target(tensors, actions))


def test_weights_go_to_a_vector_and_back() -> None:
    source, target = (small_model(PointEnv(), seed=seed) for seed in (1, 2))
    target.policy.load_from_vector(source.policy.parameters_to_vector())
    assert same(weights(source), weights(target))


# -- the buffer --------------------------------------------------------------------------------------------------------------


def _contents(buffer: GoalReplayBuffer) -> list[np.ndarray]:
    seed_all(0)
    batch = buffer.sample_goals(64, {"next": 0.25, "future": 0.25, "random": 0.25, "original": 0.25})[0]
    tensors = [*batch.observations.values(), *batch.next_observations.values(), batch.actions, batch.dones]
    return [tensor.numpy() for tensor in tensors]


@pytest.mark.parametrize("env", [make(PointEnv), make(ImageGoalEnv)])
def test_a_loaded_buffer_samples_as_the_saved_one(env: Any, tmp_path: pathlib.Path) -> None:
    model = small_model(env(), learning_starts=1000, buffer_size=60).learn(85)  # it has gone round
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    other = small_model(env(), seed=5, buffer_size=60)
    other.load_replay_buffer(tmp_path / "buffer.pkl", truncate_last_traj=False)
    for one, loaded in zip(_contents(model.replay_buffer), _contents(other.replay_buffer), strict=True):
        np.testing.assert_array_equal(one, loaded)
    assert other.replay_buffer.device == other.device


def test_a_loaded_buffer_does_not_go_on_with_the_next_episode(tmp_path: pathlib.Path) -> None:
    # Saved in the middle of an episode; the environment that follows starts elsewhere.
    model = small_model(PointEnv(), learning_starts=1000).learn(25)
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    env = PointEnv()
    other = small_model(env, seed=5, learning_starts=1000)
    other.load_replay_buffer(tmp_path / "buffer.pkl")
    other.learn(5, reset_num_timesteps=False)
    buffer = other.replay_buffer
    assert buffer.size() == 30
    batch = buffer.sample_goals(500, {"next": 1.0})[0]
    moves = (batch.next_observations["observation"] - batch.observations["observation"])[:, :2].abs()
    assert float(moves.max()) <= 0.4 + 1e-5
    assert ((batch.next_observations["observation"][:, 2] - batch.observations["observation"][:, 2]) > 0).all()


class _Foreign:
    pass


def _td3_buffer() -> Any:
    return TD3("MultiInputPolicy", PointEnv(), buffer_size=50, device="cpu").replay_buffer


def _goal_buffer(env: PointEnv, n_envs: int = 1) -> GoalReplayBuffer:
    return GoalReplayBuffer(50, env.observation_space, env.action_space, device="cpu", n_envs=n_envs)


@pytest.mark.parametrize(
    ("make_buffer", "message"),
    [
        (_Foreign, "holds a _Foreign, not a GoalReplayBuffer"),
        (_td3_buffer, "holds a DictReplayBuffer, not a GoalReplayBuffer: it was saved by another algorithm"),
        (lambda: _goal_buffer(PointEnv(extra=True)), "does not fit this model"),
        (lambda: _goal_buffer(PointEnv(action_shape=(2, 1))), "does not fit this model"),
        (lambda: _goal_buffer(PointEnv(), n_envs=2), "number of environments"),
    ],
)
def test_a_buffer_that_does_not_fit_leaves_ours_untouched(make_buffer: Any, message: str, tmp_path: pathlib.Path) -> None:
    model = small_model(PointEnv()).learn(25)
    buffer, before = model.replay_buffer, _contents(model.replay_buffer)
    with open(tmp_path / "foreign.pkl", "wb") as file:
        pickle.dump(make_buffer(), file)
    with pytest.raises(ValueError, match=message):
        model.load_replay_buffer(tmp_path / "foreign.pkl")
    assert model.replay_buffer is buffer
    for one, other in zip(before, _contents(model.replay_buffer), strict=True):
        np.testing.assert_array_equal(one, other)
    model.learn(10, reset_num_timesteps=False)


def test_a_file_that_is_no_pickle_leaves_the_buffer_untouched(tmp_path: pathlib.Path) -> None:
    model = small_model(PointEnv()).learn(25)
    buffer = model.replay_buffer
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    cut = (tmp_path / "buffer.pkl").read_bytes()[:-100]
    (tmp_path / "buffer.pkl").write_bytes(cut)
    with pytest.raises(ValueError, match="is not a replay buffer that `save_replay_buffer` wrote"):
        model.load_replay_buffer(tmp_path / "buffer.pkl")
    assert model.replay_buffer is buffer


def test_a_model_that_does_not_fit_the_environment(tmp_path: pathlib.Path) -> None:
    small_model(PointEnv()).save(tmp_path / "model")
    with pytest.raises(ValueError, match="spaces do not match"):
        CLearning.load(tmp_path / "model", env=PointEnv(extra=True), device="cpu")
