import contextlib
import json
import pathlib
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    EvalCallback,
    EveryNTimesteps,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from sb3_clearning import CLearning, ResumableCheckpoint
from sb3_clearning.common import updater
from tests.support.goal_envs import PointEnv, make
from tests.support.small_models import changed, seed_all, small_model, weights

TRAIN_METRICS = {
    *("train/classifier_loss", "train/accuracy_positive", "train/accuracy_negative", "train/logits_positive"),
    *("train/logits_random", "train/logits_actor", "train/w_mean", "train/w_clipped", "train/actor_loss"),
    *("train/learning_rate",),
}
DISTANCES = {f"rollout/distance_{name}" for name in ("initial", "final", "minimum", "average", "change")}
ROLLOUT_METRICS = DISTANCES | {"rollout/ep_len_mean", "rollout/ep_rew_mean", "rollout/success_rate"}


def _json_log(model: CLearning, folder: pathlib.Path) -> list[dict[str, float]]:
    """:return: What the model logged, one dict for each dump"""
    return [json.loads(line) for line in (folder / "progress.json").read_text().splitlines()]


def _scalars(folder: pathlib.Path) -> dict[str, list[Any]]:
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return {tag: accumulator.Scalars(tag) for tag in accumulator.Tags()["scalars"]}


# -- logs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lambda_", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("stochastic", [False, True])
def test_every_metric_is_logged_and_finite(lambda_: float, stochastic: bool, tmp_path: pathlib.Path) -> None:
    model = small_model(PointEnv(), lambda_=lambda_, policy_kwargs={"stochastic_actor": stochastic})
    model.set_logger(configure(str(tmp_path), ["json"]))
    model.learn(60, log_interval=2)
    dumps = _json_log(model, tmp_path)
    assert [dump["time/total_timesteps"] for dump in dumps] == [20, 40, 60]
    for dump in dumps:
        assert dump.keys() >= TRAIN_METRICS | ROLLOUT_METRICS | {"train/n_updates"}
        assert all(np.isfinite(value) for value in dump.values())
        for name in ("train/accuracy_positive", "train/accuracy_negative", "train/w_clipped", "rollout/success_rate"):
            assert 0 <= dump[name] <= 1
        assert dump["rollout/distance_minimum"] <= min(dump["rollout/distance_final"], dump["rollout/distance_initial"])
        change = dump["rollout/distance_final"] - dump["rollout/distance_initial"]
        assert dump["rollout/distance_change"] == pytest.approx(change, abs=1e-6)
        assert dump["train/w_mean"] >= 0 if lambda_ > 0 else dump["train/w_mean"] == 0


def test_metrics_are_means_since_the_last_log(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Against one update at a time, logged after each
    monkeypatch.setattr(updater, "MEASURE_EVERY", 1)
    model = small_model(PointEnv(), learning_starts=1000, policy_kwargs={"standardize": False}).learn(40)
    parameters = {name: value.clone() for name, value in model.policy.state_dict().items()}
    optimizers = [optimizer.state_dict() for optimizer in (model.actor.optimizer, model.critic.optimizer)]

    def dumped(sizes: list[int], folder: pathlib.Path) -> list[dict[str, float]]:
        model.policy.load_state_dict(parameters)
        for optimizer, state in zip((model.actor.optimizer, model.critic.optimizer), optimizers, strict=True):
            optimizer.load_state_dict(state)
            optimizer.state.clear()
        model.set_logger(configure(str(folder), ["json"]))
        seed_all(0)
        for size in sizes:
            for _ in range(size):
                model.train(gradient_steps=1, batch_size=16)
            model.dump_logs()
        return _json_log(model, folder)

    single = dumped([1] * 6, tmp_path / "single")
    (together,) = dumped([6], tmp_path / "together")
    for name in TRAIN_METRICS:
        assert together[name] == pytest.approx(np.mean([dump[name] for dump in single]), rel=1e-4, abs=1e-6), name


def test_metrics_are_what_their_names_say(tmp_path: pathlib.Path) -> None:
    raw = {"standardize": False}  # the first update would change what the networks see
    td = {"lambda_": 1.0, "n_steps": 1}
    model = small_model(PointEnv(), learning_starts=1000, target_policy_noise=0.0, policy_kwargs=raw, **td).learn(40)
    model.set_logger(configure(str(tmp_path), ["json"]))
    seed_all(0)
    batch = model.replay_buffer.sample_goals(32, {"next": 0.5, "random": 0.5})[0]
    logits = model.critic(batch.observations, batch.actions).detach().numpy()
    next_obs = {key: value[16:] for key, value in batch.next_observations.items()}
    target = model.critic_target(next_obs, model.actor_target(next_obs)).detach().numpy().min(axis=0)
    limit = model.w_clip = float(np.median(np.exp(target)))
    seed_all(0)
    model.train(gradient_steps=1, batch_size=32)
    model.dump_logs()
    (dump,) = _json_log(model, tmp_path)
    assert dump["train/accuracy_positive"] == pytest.approx((logits[:, :16] > 0).mean())
    assert dump["train/accuracy_negative"] == pytest.approx((logits[:, 16:] < 0).mean())
    assert dump["train/logits_positive"] == pytest.approx(logits[:, :16].mean(), abs=1e-5)
    assert dump["train/logits_random"] == pytest.approx(logits[:, 16:].mean(), abs=1e-5)
    assert dump["train/w_mean"] == pytest.approx(np.minimum(np.exp(target), limit).mean(), abs=1e-5)
    assert dump["train/w_clipped"] == pytest.approx(0.5)  # the limit is the median


def test_tensorboard(tmp_path: pathlib.Path) -> None:
    model = small_model(PointEnv(), tensorboard_log=str(tmp_path)).learn(40, log_interval=1)
    assert [folder.name for folder in tmp_path.iterdir()] == ["CLearning_1"]
    scalars = _scalars(tmp_path / "CLearning_1")
    assert scalars.keys() >= TRAIN_METRICS | ROLLOUT_METRICS
    assert [event.step for event in scalars["train/classifier_loss"]] == [20, 30, 40]
    model.learn(20, tb_log_name="named")
    assert (tmp_path / "named_1").is_dir()
    model.learn(20, tb_log_name="named", reset_num_timesteps=False)
    assert [folder.name for folder in sorted(tmp_path.iterdir())] == ["CLearning_1", "named_1"]


# -- callbacks ---------------------------------------------------------------------------------------------------------


def test_evaluation_and_its_best_model(tmp_path: pathlib.Path) -> None:
    evaluation = EvalCallback(
        Monitor(PointEnv()),
        n_eval_episodes=2,
        eval_freq=15,
        log_path=str(tmp_path),
        best_model_save_path=str(tmp_path),
        verbose=0,
    )
    small_model(PointEnv()).learn(50, callback=evaluation)
    results = np.load(tmp_path / "evaluations.npz")
    np.testing.assert_array_equal(results["timesteps"], [15, 30, 45])
    assert results["successes"].shape == (3, 2)
    CLearning.load(tmp_path / "best_model", env=PointEnv(), device="cpu").learn(15)


def test_evaluation_in_between_does_not_change_the_data() -> None:
    # An evaluation in its own environment must not mix with the trajectories that are stored.
    plain = small_model(PointEnv()).learn(12)
    evaluated = small_model(PointEnv())
    evaluated.learn(12, callback=EvalCallback(Monitor(PointEnv()), n_eval_episodes=1, eval_freq=4, verbose=0))
    for key, values in plain.replay_buffer.observations.items():
        np.testing.assert_array_equal(values, evaluated.replay_buffer.observations[key])


def test_evaluation_of_a_normalized_model() -> None:
    env = VecNormalize(DummyVecEnv([make(PointEnv)]))
    evaluation_env = VecNormalize(DummyVecEnv([lambda: Monitor(PointEnv())]), training=False, norm_reward=False)
    evaluation = EvalCallback(evaluation_env, n_eval_episodes=1, eval_freq=15, verbose=0)
    small_model(env).learn(30, callback=evaluation)
    for key, statistics in env.obs_rms.items():
        np.testing.assert_array_equal(statistics.mean, evaluation_env.obs_rms[key].mean)


def test_checkpoints_with_the_buffer(tmp_path: pathlib.Path) -> None:
    env = VecNormalize(DummyVecEnv([make(PointEnv)] * 2))
    checkpoints = CheckpointCallback(10, str(tmp_path), name_prefix="model", save_replay_buffer=True, save_vecnormalize=True)
    small_model(env).learn(40, callback=checkpoints)
    loaded_env = VecNormalize.load(str(tmp_path / "model_vecnormalize_20_steps.pkl"), DummyVecEnv([make(PointEnv)] * 2))
    model = CLearning.load(tmp_path / "model_20_steps", env=loaded_env, device="cpu")
    model.load_replay_buffer(tmp_path / "model_replay_buffer_20_steps.pkl")
    # SB3 calls callbacks before the step is stored
    assert model.replay_buffer.size() == 9
    before = weights(model)
    model.learn(20, reset_num_timesteps=False)
    assert model.num_timesteps == 40
    assert changed(before, weights(model), "actor.")


def test_callbacks_that_stop_training() -> None:
    model = small_model(PointEnv()).learn(500, callback=StopTrainingOnMaxEpisodes(3))
    assert model.num_timesteps == 30
    stop = StopTrainingOnRewardThreshold(reward_threshold=-1.0)  # the reward is 0
    evaluation = EvalCallback(Monitor(PointEnv()), callback_on_new_best=stop, n_eval_episodes=1, eval_freq=20, verbose=0)
    model = small_model(PointEnv()).learn(500, callback=evaluation)
    assert model.num_timesteps == 20


@pytest.mark.parametrize("ends", ["stops", "fails"])
def test_an_episode_that_a_callback_ended_is_not_gone_on_with(ends: str) -> None:
    """SB3 has taken a step by then, here the last of the second episode, that is not stored."""
    model = small_model(PointEnv(length=10))

    def end(_locals: dict[str, Any], _globals: dict[str, Any]) -> bool:
        if ends == "fails" and model.num_timesteps == 20:
            raise RuntimeError("a callback's own")
        return model.num_timesteps < 20

    with pytest.raises(RuntimeError) if ends == "fails" else contextlib.nullcontext():
        model.learn(500, callback=end)
    model.learn(15, reset_num_timesteps=False)
    stored = model.replay_buffer.transitions()
    assert np.flatnonzero(stored.truncations).tolist() == [9, 18, 28, 33]  # and what is stored so far
    times = np.round(10 * stored.observations["observation"][:, 2]).astype(int)
    assert times.tolist() == [*range(10), *range(9), *range(10), *range(5)]
    next_times = np.round(10 * stored.next_observations["observation"][:, 2]).astype(int)
    assert (next_times == times + 1).all()


def test_no_logs(tmp_path: pathlib.Path) -> None:
    model = small_model(PointEnv())
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(40, log_interval=0)
    assert (tmp_path / "progress.csv").read_text() == ""


def test_lists_of_callbacks_and_functions() -> None:
    calls: list[int] = []

    class Count(BaseCallback):
        def _on_step(self) -> bool:
            calls.append(self.num_timesteps)
            return True

    model = small_model(PointEnv())
    model.learn(20, callback=CallbackList([Count(), EveryNTimesteps(5, Count())]))
    assert sorted(calls) == sorted([*range(1, 21), 5, 10, 15, 20])
    model.learn(20, callback=lambda _locals, _globals: model.num_timesteps < 7)
    assert model.num_timesteps == 7


def test_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    updates = _watch_progress_bars(monkeypatch)
    small_model(DummyVecEnv([make(PointEnv)] * 2)).learn(20, progress_bar=True)
    assert updates == {"total": 20, "n": 20, "closed": True}


def _watch_progress_bars(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """:return: What the next progress bar shows"""
    shown: dict[str, Any] = {}

    class Bar:
        def __init__(self, total: int):
            shown.update(total=total, n=0, closed=False)

        def update(self, n: int) -> None:
            shown["n"] += n

        def refresh(self) -> None:
            pass

        def close(self) -> None:
            shown["closed"] = True

    monkeypatch.setattr("stable_baselines3.common.callbacks.tqdm", Bar)
    return shown


# -- offline -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def filled() -> CLearning:
    return small_model(PointEnv(), learning_starts=1000).learn(60)


def test_offline_training_takes_no_steps_and_keeps_the_data(filled: CLearning) -> None:
    before, size = weights(filled), filled.replay_buffer.size()
    filled.learn_offline(15)
    assert filled.num_timesteps == filled._n_updates == 15
    assert filled.replay_buffer.size() == size
    for part in ("actor.", "critic.", "actor_target.", "critic_target."):
        assert changed(before, weights(filled), part)
    filled.learn_offline(5, reset_num_timesteps=False)
    assert filled.num_timesteps == filled._n_updates == 20


def test_offline_training_logs_as_training_does(filled: CLearning, tmp_path: pathlib.Path) -> None:
    filled.tensorboard_log = str(tmp_path)
    filled.learn_offline(20, log_interval=5)
    (folder,) = tmp_path.iterdir()
    assert folder.name == "CLearning_offline_1"
    scalars = _scalars(folder)
    assert scalars.keys() >= TRAIN_METRICS
    assert [event.step for event in scalars["train/classifier_loss"]] == [5, 10, 15, 20]
    assert all(np.isfinite(event.value) for name in TRAIN_METRICS for event in scalars[name])


def test_offline_training_calls_callbacks_after_each_update(filled: CLearning, tmp_path: pathlib.Path) -> None:
    checkpoints = CheckpointCallback(10, str(tmp_path), name_prefix="model", save_replay_buffer=True)
    evaluation = EvalCallback(Monitor(PointEnv()), n_eval_episodes=1, eval_freq=8, log_path=str(tmp_path), verbose=0)
    updates: list[int] = []

    class Note(BaseCallback):
        def _on_step(self) -> bool:
            assert isinstance(self.model, CLearning)
            updates.append(self.model._n_updates)
            return True

    filled.learn_offline(25, callback=[checkpoints, evaluation, Note()])
    assert updates == list(range(1, 26))
    np.testing.assert_array_equal(np.load(tmp_path / "evaluations.npz")["timesteps"], [8, 16, 24])
    loaded = CLearning.load(tmp_path / "model_20_steps", env=PointEnv(), device="cpu")
    loaded.load_replay_buffer(tmp_path / "model_replay_buffer_20_steps.pkl")
    assert loaded.replay_buffer.size() == 60
    loaded.learn_offline(5, reset_num_timesteps=False)
    assert loaded._n_updates == 25


def test_a_callback_stops_offline_training(filled: CLearning) -> None:
    filled.learn_offline(50, callback=lambda _locals, _globals: filled.num_timesteps < 6)
    assert filled.num_timesteps == 6


def test_a_progress_bar_offline(filled: CLearning, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _watch_progress_bars(monkeypatch)
    calls: list[int] = []

    def note(_locals: dict[str, Any], _globals: dict[str, Any]) -> bool:
        calls.append(filled.num_timesteps)
        return True

    filled.learn_offline(12, callback=note, progress_bar=True)
    assert shown == {"total": 12, "n": 12, "closed": True}
    assert calls == list(range(1, 13)), "each callback is called once an update, with a progress bar, too"
    filled.learn_offline(4, progress_bar=True, reset_num_timesteps=False)
    assert shown == {"total": 4, "n": 4, "closed": True}


@pytest.mark.parametrize("as_list", [False, True])
def test_a_progress_bar_beside_a_checkpoint(as_list: bool, filled: CLearning, tmp_path: pathlib.Path) -> None:
    """A callback is made ready once: two would want the same folder."""
    checkpoint = ResumableCheckpoint(tmp_path, every=5)
    filled.learn_offline(10, callback=[checkpoint] if as_list else checkpoint, progress_bar=True)
    assert CLearning.resume(tmp_path, PointEnv()).num_timesteps == 10


def test_a_learning_rate_schedule_offline() -> None:
    model = small_model(PointEnv(), learning_starts=1000, learning_rate=lambda progress: progress).learn(20)
    rates: list[float] = []

    def note(_locals: dict[str, Any], _globals: dict[str, Any]) -> bool:
        rates.append(model.critic.optimizer.param_groups[0]["lr"])
        return True

    model.learn_offline(10, callback=note)
    np.testing.assert_allclose(rates, np.arange(10, 0, -1) / 10)


def test_offline_training_of_a_normalized_model() -> None:
    model = small_model(VecNormalize(DummyVecEnv([make(PointEnv)] * 2)), learning_starts=1000).learn(40)
    before = weights(model)
    model.learn_offline(5)
    assert changed(before, weights(model), "actor.")


@pytest.mark.parametrize("n_envs", [1, 3])
def test_a_vecnormalize_that_saw_nothing_takes_its_statistics_from_the_data(n_envs: int) -> None:
    source = small_model(PointEnv(), learning_starts=1000).learn(300).replay_buffer.transitions()
    env = VecNormalize(DummyVecEnv([make(PointEnv)] * n_envs), norm_reward=False)
    model = small_model(env, buffer_size=600)
    model.replay_buffer.add_transitions(source)
    model.learn_offline(5)
    stored = model.replay_buffer
    for key in ("observation", "achieved_goal", "desired_goal"):
        states = stored.observations["achieved_goal" if key == "desired_goal" else key][: stored.size()]
        statistics = env.obs_rms[key]
        np.testing.assert_allclose(statistics.mean, states.mean(axis=(0, 1)), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(statistics.var, states.var(axis=(0, 1)), rtol=1e-3)
    before = {key: value.mean.copy() for key, value in env.obs_rms.items()}
    model.learn_offline(5, reset_num_timesteps=False)
    assert all((env.obs_rms[key].mean == mean).all() for key, mean in before.items()), "once"


def test_online_training_follows_offline_training(filled: CLearning) -> None:
    filled.learn_offline(5)
    filled.learning_starts = 0
    filled.learn(10)
    assert filled._n_updates == 15
    assert filled.replay_buffer.size() == 70


def test_offline_training_after_loading(filled: CLearning, tmp_path: pathlib.Path) -> None:
    filled.save(tmp_path / "model")
    filled.save_replay_buffer(tmp_path / "buffer")
    model = CLearning.load(tmp_path / "model", device="cpu")
    model.load_replay_buffer(tmp_path / "buffer")
    before = weights(model)
    model.learn_offline(5)
    assert changed(before, weights(model), "actor.")
