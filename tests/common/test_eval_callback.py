"""Evaluation during training."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_clearning import CLearning, GoalEvalCallback, evaluate_goals
from sb3_clearning.common.evaluation import RESULT_KEYS
from tests.support.goal_envs import PassesItsGoal, PointEnv
from tests.support.small_models import same, small_model, weights


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "evaluations.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("kind", ["env", "function", "vec_env"])
def test_each_evaluation_is_that_of_evaluate_goals(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def make() -> Any:
        if kind == "vec_env":
            return VecNormalize(DummyVecEnv([PointEnv] * 2))
        return PointEnv if kind == "function" else PointEnv()

    env: Any = VecNormalize(DummyVecEnv([PointEnv])) if kind == "vec_env" else PointEnv()
    model = small_model(env, learning_starts=100)  # so that no update follows the last evaluation
    model.set_logger(configure(str(tmp_path), ["csv"]))
    n_envs = 3 if kind == "function" else 1
    callback = GoalEvalCallback(make(), eval_freq=20, n_eval_episodes=4, n_envs=n_envs, log_path=tmp_path)
    model.learn(40, callback=callback, log_interval=1000)
    found = evaluate_goals(model, make(), n_episodes=4, n_envs=n_envs)
    assert [row["timesteps"] for row in rows_of(tmp_path)] == ["20", "40"]
    last = {name: float(value) for name, value in rows_of(tmp_path)[-1].items()}
    assert {name: last[name] for name in found} == pytest.approx(found, nan_ok=True)
    assert (last["mean_ep_length"], last["mean_reward"]) == (10.0, 0.0)
    logged = list(csv.DictReader((tmp_path / "progress.csv").open()))[-1]
    assert float(logged["eval/success_rate"]) == pytest.approx(found["success"])
    assert found["minimum"] < found["average"]
    for key in ("final", "minimum", "average"):
        assert float(logged[f"eval/{key}_distance"]) == pytest.approx(found[key])
    distances = f"Final distance: {found['final']:.4f}, minimum: {found['minimum']:.4f}, average: {found['average']:.4f}"
    assert f"Success rate: {100 * found['success']:.2f}%, {distances}" in capsys.readouterr().out
    with np.load(tmp_path / "evaluations.npz") as arrays:
        assert arrays["distances"].shape == arrays["results"].shape == arrays["successes_any_time"].shape == (2, 4)
        assert arrays["distances"][-1].mean() == pytest.approx(found["final"])


def test_training_is_the_same_with_evaluations() -> None:
    plain = small_model(PointEnv()).learn(60)
    evaluated = small_model(PointEnv())
    evaluated.learn(60, callback=GoalEvalCallback(PointEnv(), eval_freq=7, n_eval_episodes=2, verbose=0))
    assert same(weights(plain), weights(evaluated))


class Result(dict[str, float]):
    """An evaluation's means, without the episodes."""

    rewards, lengths = [0.0], [1]

    def result(self) -> dict[str, float]:
        return self


def test_the_best_model_is_by_success_then_by_distance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = iter([(0.5, 0.3), (0.5, 0.4), (0.5, 0.2), (0.4, 0.1), (0.75, 0.5), (0.75, 0.5)])

    def run(*_: Any) -> Result:
        success, final = next(given)
        return Result({**dict.fromkeys(RESULT_KEYS, 0.0), "success": success, "final": final})

    monkeypatch.setattr("sb3_clearning.common.eval_callback.run_episodes", run)
    callback = GoalEvalCallback(PointEnv(), eval_freq=1, best_model_save_path=tmp_path / "best", verbose=0)
    model, saved = small_model(PointEnv()), []
    save = model.save
    monkeypatch.setattr(model, "save", lambda path: saved.append(model.num_timesteps) or save(path))  # type: ignore[func-returns-value]
    model.learn(6, callback=callback)
    assert saved == [1, 3, 5]
    assert callback.best is not None
    assert (callback.best["timesteps"], callback.best["success"]) == (5, 0.75)
    assert CLearning.load(tmp_path / "best" / "best_model").num_timesteps == 5


def test_training_ends_at_a_success_rate() -> None:
    model = small_model(PassesItsGoal())
    rate = evaluate_goals(model, PassesItsGoal(), n_episodes=12)["success"]  # does not depend on the policy
    assert 0 < rate < 1
    for wanted, steps in ((rate, 5), (rate + 0.01, 20)):
        model = small_model(PassesItsGoal())
        model.learn(20, callback=GoalEvalCallback(PassesItsGoal(), 5, n_eval_episodes=12, stop_at_success=wanted, verbose=0))
        assert model.num_timesteps == steps
    stop = GoalEvalCallback(PassesItsGoal(None), 5, n_eval_episodes=1, stop_at_success=0.5, verbose=0)
    with pytest.raises(ValueError, match="`stop_at_success` needs"), pytest.warns(UserWarning, match="`success` is NaN"):
        small_model(PassesItsGoal(None)).learn(20, callback=stop)


def test_without_success_the_distance_decides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callback = GoalEvalCallback(PassesItsGoal(None), eval_freq=10, n_eval_episodes=3, log_path=tmp_path)
    with pytest.warns(UserWarning, match="`success` is NaN"):
        small_model(PassesItsGoal(None)).learn(40, callback=callback)
    final = [float(row["final"]) for row in rows_of(tmp_path)]
    assert callback.best is not None
    assert callback.best["final"] == pytest.approx(min(final))
    assert "Success rate" not in capsys.readouterr().out


def test_a_run_that_continues_keeps_its_table_and_its_best(tmp_path: Path) -> None:
    model = small_model(PointEnv())
    first = GoalEvalCallback(PointEnv(), eval_freq=10, n_eval_episodes=2, log_path=tmp_path, verbose=0)
    model.learn(30, callback=first)
    model.save(tmp_path / "model.zip")
    loaded = CLearning.load(tmp_path / "model.zip", env=PointEnv())
    second = GoalEvalCallback(PointEnv(), eval_freq=10, n_eval_episodes=2, log_path=tmp_path, verbose=0)
    loaded.learn(10, callback=second, reset_num_timesteps=False)
    assert [row["timesteps"] for row in rows_of(tmp_path)] == ["10", "20", "30", "40"]
    assert first.best is not None
    assert second.best is not None
    assert (second.best["success"], -second.best["final"]) >= (first.best["success"], -first.best["final"])
    for kept, written in zip(second.evaluations[:3], first.evaluations, strict=True):
        assert kept == pytest.approx(written, rel=0, abs=0, nan_ok=True)


@pytest.mark.parametrize("env", [DummyVecEnv([PointEnv]), PointEnv()], ids=["VecEnv", "env"])
def test_the_training_environment_is_refused(env: Any) -> None:
    model = small_model(env)
    with pytest.raises(ValueError, match="GoalEvalCallback needs another one"):
        model.learn(5, callback=GoalEvalCallback(env, eval_freq=1))


def test_a_foreign_table_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "evaluations.csv").write_text("a,b\n1,2\n")
    model = small_model(PointEnv()).learn(15)
    with pytest.raises(ValueError, match="is not a table of evaluations"):
        model.learn(5, reset_num_timesteps=False, callback=GoalEvalCallback(PointEnv(), 5, log_path=tmp_path))
    assert (tmp_path / "evaluations.csv").read_text() == "a,b\n1,2\n"
