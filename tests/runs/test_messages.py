"""Errors and resuming: a checkpoint is named if there is one, and the callback is asked for only if it is missing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th

from sb3_clearning import CLearning, ResumableCheckpoint, evaluate_goals
from sb3_clearning.runs.model_state import DivergedError
from tests.support.checkpointed_runs import EVERY, StopAt, learn, make_env
from tests.support.goal_envs import BrokenEnv, PointEnv
from tests.support.small_models import small_model

th.set_num_threads(1)

NO_CHECKPOINT = ["No checkpoint exists; pass `callback=ResumableCheckpoint(folder)`."]
NOT_YET = ["No checkpoint was written yet."]


def _resume(folder: Path) -> list[str]:
    return [f"Resume from the last checkpoint with `CLearning.resume({str(folder)!r}, env)`."]


def _fill(module: th.nn.Module, value: float = float("nan")) -> None:
    for parameter in module.parameters():
        parameter.data.fill_(value)


def _diverged_actor(model: CLearning, callbacks: list[Any]) -> None:
    model.learn(60, callback=[*callbacks, StopAt(40, lambda: _fill(model.actor))])


def _diverged_metric(model: CLearning, callbacks: list[Any]) -> None:
    def diverge() -> None:
        model._metrics.add({"train/critic_loss": th.tensor(float("nan"))})

    model.learn(60, callback=[*callbacks, StopAt(40, diverge)], log_interval=1)


def _diverged_offline(model: CLearning, callbacks: list[Any]) -> None:
    model.learn(30)
    model.learn_offline(20, callback=[*callbacks, StopAt(20, lambda: _fill(model.critic))])


def _bad_observation(model: CLearning, callbacks: list[Any]) -> None:
    model.set_env(BrokenEnv("observation", "step", episode=5))
    model.learn(60, callback=callbacks)


FAILURES: dict[str, tuple[Callable[[CLearning, list[Any]], None], str]] = {
    "actor": (_diverged_actor, r"^The actor returned an action that is not finite: training has diverged\. Use a lower"),
    "metric": (_diverged_metric, r"^The metric `train/critic_loss` is nan: training has diverged\. Use a lower"),
    "weights": (_diverged_offline, r"^The weights `.*` are not finite: training has diverged\. Use a lower"),
    "observation": (_bad_observation, r"^The environment returned NaN or inf.*Fix the environment"),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("with_checkpoints", [False, True])
def test_the_checkpoint_is_named_if_there_is_one(failure: str, with_checkpoints: bool, tmp_path: Path) -> None:
    fail, message = FAILURES[failure]
    callbacks = [ResumableCheckpoint(tmp_path, every=15)] if with_checkpoints else []
    with pytest.raises(ValueError, match=message) as raised:
        fail(small_model(PointEnv()), callbacks)
    assert "checkpoint" not in str(raised.value)
    assert raised.value.__notes__ == (_resume(tmp_path) if with_checkpoints else NO_CHECKPOINT)
    if with_checkpoints:
        assert CLearning.resume(tmp_path, PointEnv()).num_timesteps > 0


def test_a_diverged_model_is_not_exported(tmp_path: Path) -> None:
    def export(model: CLearning) -> list[str]:
        _fill(model.actor)
        with pytest.raises(DivergedError, match="are not finite: training has diverged") as raised:
            model.export(tmp_path / "agent")
        assert not (tmp_path / "agent").exists()
        return raised.value.__notes__

    assert export(small_model(make_env())) == [f"Nothing was saved. {NO_CHECKPOINT[0]}"]
    assert export(learn(tmp_path / "run", steps=30)) == [f"Nothing was saved. {_resume(tmp_path / 'run')[0]}"]


def test_a_checkpoint_that_was_removed_is_not_named(tmp_path: Path) -> None:
    model = learn(tmp_path, steps=30)
    for path in tmp_path.glob("checkpoint-*"):
        path.unlink()
    model.set_env(BrokenEnv("observation", "step", episode=5))
    with pytest.raises(ValueError, match="NaN or inf") as raised:
        model.learn(60)
    assert raised.value.__notes__ == NO_CHECKPOINT


def test_a_call_with_the_callback_is_not_told_to_pass_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("sb3_clearning.files.array_file.write_whole", full)
        with pytest.raises(OSError, match=r"There is no earlier one\. Free space") as raised:
            small_model(make_env()).learn(30, callback=ResumableCheckpoint(tmp_path / "full", every=EVERY))
    assert raised.value.__notes__ == NOT_YET


def test_before_training_there_is_nothing_to_resume(tmp_path: Path) -> None:
    class NoReset(PointEnv):
        def reset(self, **_: Any) -> Any:
            raise ArithmeticError("no start")

    learn(tmp_path / "run", steps=30)
    for env, folder in ((make_env(), "run"), (NoReset(), "other")):
        with pytest.raises((ValueError, ArithmeticError)) as raised:
            small_model(env).learn(30, callback=ResumableCheckpoint(tmp_path / folder))
        assert not hasattr(raised.value, "__notes__")


def test_a_session_is_free_again_after_an_error(tmp_path: Path) -> None:
    model = small_model(make_env())
    with pytest.raises(ZeroDivisionError):
        model.learn(60, callback=[ResumableCheckpoint(tmp_path, every=EVERY), StopAt(33, lambda: exec("1 // 0"))])
    assert model.session.on_env_death is None
    # The lock is released, and the same model continues in its folder.
    model.learn(30, callback=ResumableCheckpoint(tmp_path, every=EVERY), reset_num_timesteps=False)
    assert CLearning.resume(tmp_path, make_env()).num_timesteps == model.num_timesteps


def test_numpy_integers_count_steps(tmp_path: Path) -> None:
    model = small_model(PointEnv())
    model.learn(np.int64(30), callback=ResumableCheckpoint(tmp_path / "online", every=np.int64(10)))  # type: ignore[arg-type]
    model.learn_offline(np.int64(5), callback=ResumableCheckpoint(tmp_path / "offline", every=5.0))  # type: ignore[arg-type]
    assert CLearning.resume(tmp_path / "online", PointEnv()).num_timesteps == 30
    assert np.isfinite(evaluate_goals(model, PointEnv(), n_episodes=np.int64(2))["final"])  # type: ignore[arg-type]
