import pathlib
from typing import Any

import numpy as np
import pytest
import torch as th
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecFrameStack, VecNormalize
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn, VecEnvWrapper

from sb3_clearning import CLearning, GoalBatch, GoalReplayBuffer
from tests.support.goal_envs import ImageGoalEnv, PointEnv, make
from tests.support.small_models import changed, same, small_model, weights


class Recorder(VecEnvWrapper):
    """
    Writes down every transition of every environment, in a plain list, before any normalization. Final observations come from
    the ``terminal_observation`` of the infos.
    """

    def __init__(self, venv: VecEnv):
        super().__init__(venv)
        self.transitions: list[tuple[dict[str, np.ndarray], dict[str, np.ndarray], bool]] = []

    def reset(self) -> Any:
        self.last: Any = self.venv.reset()
        return self.last

    def step_wait(self) -> VecEnvStepReturn:
        obs, rewards, dones, infos = self.venv.step_wait()
        assert isinstance(obs, dict)
        for env in range(self.num_envs):
            before = {key: np.array(value[env]) for key, value in self.last.items()}
            after = infos[env]["terminal_observation"] if dones[env] else {key: value[env] for key, value in obs.items()}
            ended = bool(dones[env]) and not infos[env]["TimeLimit.truncated"]
            self.transitions.append((before, {key: np.array(value) for key, value in after.items()}, ended))
        self.last = {key: value.copy() for key, value in obs.items()}
        return obs, rewards, dones, infos


def _assert_buffer_holds(buffer: GoalReplayBuffer, recorder: Recorder, atol: float = 0.0) -> None:
    """The buffer's transitions are those of the recorder, each found by its state and its episode's goal."""

    def name(observation: dict[str, Any], row: int | None = None) -> bytes:
        # Two episodes may be in the same corner at the same time.
        values = [
            observation[key] if row is None else observation[key][row].numpy() for key in ("observation", "desired_goal")
        ]
        return np.concatenate(values).astype(np.float32).tobytes()

    seen = {name(before): i for i, (before, _, _) in enumerate(recorder.transitions)}
    assert len(seen) == len(recorder.transitions) == buffer.size() * buffer.n_envs
    batch = buffer.sample(20 * len(seen))
    found = set()
    for row in range(len(batch.actions)):
        i = seen[name(batch.observations, row)]
        before, after, ended = recorder.transitions[i]
        found.add(i)
        for key in ("observation", "achieved_goal"):
            np.testing.assert_array_equal(batch.observations[key][row], before[key].astype(np.float32))
            np.testing.assert_allclose(batch.next_observations[key][row], after[key].astype(np.float32), rtol=0, atol=atol)
        np.testing.assert_array_equal(batch.observations["desired_goal"][row], before["desired_goal"].astype(np.float32))
        assert bool(batch.dones[row]) == ended
    assert len(found) == len(seen), "a stored transition was never drawn"


def _vectorized(kind: type[DummyVecEnv] | type[SubprocVecEnv], n_envs: int, **kwargs: Any) -> VecEnv:
    # Episodes of different lengths end at different times
    return kind([make(PointEnv, length=7 + i, **kwargs) for i in range(n_envs)])


@pytest.mark.parametrize("kind", [DummyVecEnv, SubprocVecEnv])
@pytest.mark.parametrize("terminates", [False, True])
def test_several_environments(kind: type[DummyVecEnv] | type[SubprocVecEnv], terminates: bool) -> None:
    recorder = Recorder(_vectorized(kind, 3, terminates=terminates, dtype=np.float64))
    try:
        model = small_model(recorder, gradient_steps=-1, action_noise="pink", warmup_noise="pink")
        before = weights(model)
        model.learn(60)
        assert model.num_timesteps == 60
        assert model.replay_buffer.size() == 20
        # -1: as many updates as steps of all environments, from the first rollout past the warm-up on
        assert model._n_updates == 60 - 12
        assert changed(before, weights(model), "actor.")
        _assert_buffer_holds(model.replay_buffer, recorder)
        noise = model.replay_buffer.actions[:20]
        assert not np.allclose(noise[:, 0], noise[:, 1])
    finally:
        recorder.close()


def test_both_kinds_of_vectorized_environments_learn_the_same() -> None:
    learned = []
    for kind in (DummyVecEnv, SubprocVecEnv):
        env = _vectorized(kind, 2)
        learned.append(weights(small_model(env).learn(40)))
        env.close()
    assert same(learned[0], learned[1])


# -- VecNormalize --------------------------------------------------------------------------------------------------------


def _normalized(n_envs: int = 2, **kwargs: Any) -> tuple[VecNormalize, Recorder]:
    recorder = Recorder(_vectorized(DummyVecEnv, n_envs, **kwargs))
    return VecNormalize(recorder, norm_reward=False), recorder


@pytest.mark.parametrize("terminates", [False, True])
def test_the_buffer_holds_what_is_not_normalized(terminates: bool) -> None:
    env, recorder = _normalized(terminates=terminates)
    model = small_model(env).learn(80)
    # Final observations come back from their normalized form, as in SB3
    _assert_buffer_holds(model.replay_buffer, recorder, atol=1e-5)


def test_batches_are_normalized_as_where_the_policy_acts() -> None:
    env, _ = _normalized()
    model = small_model(env).learn(80)
    relabel = {"next": 0.5, "random": 0.5}
    np.random.seed(0)
    raw = model.replay_buffer.sample_goals(50, relabel)[0]
    np.random.seed(0)
    batch = model.replay_buffer.sample_goals(50, relabel, env=env)[0]
    for given, plain in ((batch.observations, raw.observations), (batch.next_observations, raw.next_observations)):
        for key, values in given.items():
            # By hand from the running statistics; the goal that was an achieved one has those of the desired goal
            statistics = env.obs_rms[key]
            by_hand = (plain[key].numpy() - statistics.mean) / np.sqrt(statistics.var + env.epsilon)
            np.testing.assert_allclose(values.numpy(), np.clip(by_hand, -10, 10), atol=1e-4)


def test_training_sees_normalized_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    env, _ = _normalized()
    model = small_model(env, learning_starts=1000, n_steps=1).learn(80)
    seen: list[GoalBatch] = []
    monkeypatch.setattr(model._updater, "update", lambda batch, n_updates: seen.append(batch))
    np.random.seed(0)
    model.train(gradient_steps=1, batch_size=16)
    np.random.seed(0)
    (expected,) = model.replay_buffer.sample_goals(16, model.relabelling(), model.gamma, env=env)
    (batch,) = seen
    raw_times = batch.observations["observation"][:, 2]
    assert float(raw_times.min()) < 0, "times are at least 0 unless they are normalized"
    for key, values in expected.observations.items():
        assert th.equal(batch.observations[key], values)


def test_a_normalized_model_saves_and_loads_with_its_statistics(tmp_path: pathlib.Path) -> None:
    env, _ = _normalized()
    model = small_model(env).learn(60)
    model.save(tmp_path / "model")
    env.save(str(tmp_path / "statistics.pkl"))
    loaded_env = VecNormalize.load(str(tmp_path / "statistics.pkl"), _vectorized(DummyVecEnv, 2))
    loaded = CLearning.load(tmp_path / "model", env=loaded_env, device="cpu")
    assert loaded.get_vec_normalize_env() is loaded_env
    raw = {key: np.stack([space.sample()] * 2) for key, space in model.observation_space.spaces.items()}  # type: ignore[attr-defined]
    ours, theirs = env.normalize_obs(raw), loaded_env.normalize_obs(raw)
    np.testing.assert_array_equal(model.predict(ours, deterministic=True)[0], loaded.predict(theirs, deterministic=True)[0])
    # The statistics matter to the predictions
    assert not np.allclose(model.predict(ours, deterministic=True)[0], model.predict(raw, deterministic=True)[0], atol=1e-4)
    loaded.learn(20, reset_num_timesteps=False)
    assert loaded.num_timesteps == 80


def test_a_change_between_raw_and_normalized_observations_is_no_secret(recwarn: pytest.WarningsRecorder) -> None:
    model = small_model(PointEnv()).learn(20)
    model.set_env(VecNormalize(DummyVecEnv([PointEnv])))
    with pytest.warns(UserWarning, match="has learned from raw observations, and the environment here has a VecNormalize"):
        model.learn(5)
    model.learn(5)  # says it once
    model.set_env(PointEnv())
    with pytest.warns(UserWarning, match="learned from normalized observations, and the environment here has no VecNormalize"):
        model.learn_offline(5)
    model.set_env(VecNormalize(DummyVecEnv([PointEnv]), norm_obs=False))  # rewards are not read
    model.learn(5)
    untrained = small_model(PointEnv(), learning_starts=100).learn(20)
    untrained.set_env(VecNormalize(DummyVecEnv([PointEnv])))
    untrained.learn(5)  # nothing was learned before
    assert not [one for one in recwarn if "VecNormalize" in str(one.message)]


def test_distances_are_not_normalized() -> None:
    env, recorder = _normalized(n_envs=1)
    model = small_model(env).learn(7)
    (episode,) = model._distances.episodes
    distances = [
        float(np.linalg.norm(after["achieved_goal"] - before["desired_goal"])) for before, after, _ in recorder.transitions
    ]
    first = recorder.transitions[0][0]
    initial = float(np.linalg.norm(first["achieved_goal"] - first["desired_goal"]))
    expected = (initial, distances[-1], min(initial, *distances), np.mean(distances), distances[-1] - initial)
    np.testing.assert_allclose(np.array(episode), np.array(expected), atol=1e-5)


def test_only_some_keys_are_normalized() -> None:
    env = VecNormalize(DummyVecEnv([make(ImageGoalEnv)]), norm_obs_keys=["time"])
    model = small_model(env, batch_size=4).learn(15)
    batch = model.replay_buffer.sample(20, env=env)
    assert batch.observations["observation"].dtype == th.uint8
    statistics = env.obs_rms["time"]
    times = batch.observations["time"].numpy() * np.sqrt(statistics.var + env.epsilon) + statistics.mean
    np.testing.assert_allclose(times * 10, np.round(times * 10), atol=1e-3)


def test_stacked_frames() -> None:
    env = VecFrameStack(_vectorized(DummyVecEnv, 2), n_stack=3)
    model = small_model(env)
    before = weights(model)
    model.learn(40)
    assert changed(before, weights(model), "actor.")
    assert model.observation_space["observation"].shape == (9,)  # type: ignore[index]


def test_images_with_channels_last_are_transposed() -> None:
    first, last = (small_model(ImageGoalEnv(channels_first=order), batch_size=4).learn(20) for order in (True, False))
    assert last.observation_space["observation"].shape == (1, 36, 36)  # type: ignore[index]
    assert not changed(weights(first), weights(last))
