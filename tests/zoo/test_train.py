"""`rl_zoo3.train` with our algorithms: the ways of giving hyperparameters, and what a run leaves behind."""

import csv
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_clearning import CLearning, GoalEvalCallback, GoalTD3
from sb3_clearning.zoo.monitoring import GoalInfo
from tests.support.commands import TINY, Run
from tests.support.goal_envs import PassesItsGoal, PointEnv
from tests.support.small_models import small_model

RUN = Path("logs/clearning/SawyerReach-v0_1")


def monitor_rows(folder: Path) -> list[dict[str, str]]:
    with open(folder / "0.monitor.csv") as file:
        file.readline()
        return list(csv.DictReader(file))


def test_plain_command_takes_our_defaults_for_the_task(trained: Path) -> None:
    log = (trained / "train.log").read_text()
    assert "hyperparams/clearning.yml" in log
    assert "Using 'default' hyperparameters" not in log  # the task has its own entry
    saved = yaml.load((trained / RUN / "SawyerReach-v0/config.yml").read_text(), Loader=yaml.UnsafeLoader)
    assert saved["n_timesteps"] == 2e4
    assert saved["gamma"] == 0.99
    assert saved["batch_size"] == 16  # -params


def test_run_folder_holds_models_evaluations_and_the_replay_buffer(trained: Path) -> None:
    names = {path.name for path in (trained / RUN).iterdir()}
    assert {"SawyerReach-v0.zip", "best_model.zip", "rl_model_100_steps.zip", "replay_buffer.pkl", "evaluations.npz"} <= names
    model = CLearning.load(trained / RUN / "SawyerReach-v0.zip")
    assert model.num_timesteps == 300
    assert model.batch_size == 16


def test_monitor_has_success_and_final_distance(trained: Path) -> None:
    rows = monitor_rows(trained / RUN)
    assert len(rows) == 6  # 300 steps of 50 each
    for row in rows:
        success, distance = row["is_success"] == "True", float(row["distance"])
        assert success == (distance <= 0.05)
        assert -50 <= float(row["r"]) <= 0


def test_evaluations_have_successes_and_final_distances(trained: Path) -> None:
    with np.load(trained / RUN / "evaluations.npz") as evaluations:
        assert evaluations["timesteps"].tolist() == [100, 200, 300]
        assert evaluations["results"].shape == evaluations["successes"].shape == evaluations["distances"].shape == (3, 2)
        np.testing.assert_array_equal(evaluations["distances"] <= 0.05, evaluations["successes"])
        assert (evaluations["successes_any_time"] >= evaluations["successes"]).all()
        last = evaluations["distances"][-1].mean()
    log = (trained / "train.log").read_text()
    assert f"Final distance: {last:.4f}" in log
    assert log.count("final_distance") == log.count("success_any_time") == 3
    assert log.count("eval/") == 3  # the distance is in the table of that evaluation


def test_evaluations_have_success_at_any_time(tmp_path: Path) -> None:
    """Against a loop over one environment; two take steps together in the evaluation."""
    model, env, expected = small_model(PointEnv()), PassesItsGoal(), []
    model.set_logger(configure(None, []))
    observation, _ = env.reset(seed=3)
    for _ in range(6):
        said, done = [], False
        while not done:
            observation, _, _, done, info = env.step(model.predict(observation, deterministic=True)[0])
            said.append(info["is_success"])
        expected.append((said[-1], any(said)))
        observation, _ = env.reset()
    assert len(set(expected)) > 2
    for n_envs, n_episodes in ((1, 6), (2, 12)):
        vec_env = DummyVecEnv([lambda: Monitor(GoalInfo(PassesItsGoal()))] * n_envs)
        folder = tmp_path / str(n_envs)
        callback = GoalEvalCallback(vec_env, eval_freq=1, n_eval_episodes=n_episodes, seed=3, log_path=folder, verbose=0)
        callback.init_callback(model)
        callback.on_step()
        with np.load(folder / "evaluations.npz") as evaluations:
            assert evaluations["successes_any_time"].shape == (1, n_episodes)
            first = slice(0, None, n_envs)  # the first environment's episodes
            found = list(zip(evaluations["successes"][0][first], evaluations["successes_any_time"][0][first], strict=True))
        assert found == expected


def test_continues_from_a_saved_agent_with_its_replay_buffer(trained: Path, run: Run, tmp_path: Path) -> None:
    agent = trained / RUN / "SawyerReach-v0.zip"
    result = run(
        *["rl_zoo3.train", "--algo", "clearning", "--env", "SawyerReach-v0", "-i", agent, "-n", 100, "--eval-freq", -1],
        *["--save-replay-buffer", "-f", "more", "-params", *TINY],
        cwd=tmp_path,
    )
    assert "Loading pretrained agent" in result.stdout
    assert "Loading replay buffer" in result.stdout
    with open(tmp_path / "more/clearning/SawyerReach-v0_1/replay_buffer.pkl", "rb") as file:
        assert pickle.load(file).size() == 400  # 300 steps of the first run, 100 of this one


CONFIGURATION = """
.shared: &shared
  n_timesteps: !!float 2e2
  policy: MultiInputPolicy
  learning_starts: 50
  buffer_size: 2000
  batch_size: 16
  train_freq: 5
  policy_kwargs: "dict(net_arch=[8])"
Pendulum-v1:
  <<: *shared
  normalize: "{'norm_obs': True, 'norm_reward': False}"
  env_wrapper:
    - sb3_clearning.envs.GoalFromObservation:
        crop: [0, 1]
        distance_threshold: 0.3
FetchReach-v4:
  <<: *shared
  n_envs: 2
  noise_type: normal
  noise_std: 0.2
"""


def test_conf_file_with_env_wrapper_and_normalization(run: Run, tmp_path: Path) -> None:
    (tmp_path / "own.yml").write_text(CONFIGURATION)
    task = ["--algo", "clearning", "--env", "Pendulum-v1", "-f", "logs"]
    evaluation = ["--eval-freq", 200, "--eval-episodes", 2]
    run("rl_zoo3.train", *task, "-conf", "own.yml", *evaluation, cwd=tmp_path)
    folder = tmp_path / "logs/clearning/Pendulum-v1_1"
    assert (folder / "Pendulum-v1/vecnormalize.pkl").is_file()
    # The rewards are those of the goals that the wrapper makes, not the pendulum's own, which are no integers.
    (row,) = monitor_rows(folder)
    assert float(row["r"]) == int(float(row["r"]))
    with np.load(folder / "evaluations.npz") as evaluations:
        assert (evaluations["results"] == evaluations["results"].round()).all()
        assert evaluations["distances"].shape == (1, 2)
    enjoyed = run("rl_zoo3.enjoy", *task, "-n", 200, "--no-render", cwd=tmp_path)
    assert "Loading running average" in enjoyed.stdout
    assert "Success rate" in enjoyed.stdout


def test_subprocess_envs_with_env_kwargs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "own.yml").write_text(CONFIGURATION)
    result = run(
        *["rl_zoo3.train", "--algo", "clearning", "--env", "FetchReach-v4", "-conf", "own.yml", "--vec-env", "subproc"],
        *["--env-kwargs", "max_episode_steps:20", "--eval-freq", -1, "-f", "logs"],
        cwd=tmp_path,
    )
    assert "Applying normal noise with std 0.2" in result.stdout
    folder = tmp_path / "logs/clearning/FetchReach-v4_1"
    assert (folder / "1.monitor.csv").is_file()
    rows = monitor_rows(folder)
    assert [row["l"] for row in rows] == ["20"] * 5  # 200 steps in two envs
    assert all(float(row["distance"]) > 0 for row in rows)
    with zipfile.ZipFile(folder / "FetchReach-v4.zip") as archive:
        assert "policy.pth" in archive.namelist()


ENV_KWARGS = """
ContinuousGridworld-v0:
  n_timesteps: 40
  policy: MultiInputPolicy
  learning_starts: 100
  env_kwargs: {max_episode_steps: 7}
"""


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [({}, 7), ({"env_kwargs": {"max_episode_steps": 6}}, 6), ({"eval_env_kwargs": {"max_episode_steps": 5}}, 5)],
    ids=["file", "command line", "for evaluation"],
)
def test_evaluations_have_the_env_kwargs_of_the_file(manager: Any, arguments: dict, steps: int) -> None:
    Path("own.yml").write_text(ENV_KWARGS)
    evaluated = manager(config="own.yml", eval_freq=20, n_eval_episodes=2, **arguments)
    evaluated.learn(evaluated.setup_experiment()[0])
    with np.load("logs/clearning/ContinuousGridworld-v0_1/evaluations.npz") as evaluations:
        assert (evaluations["ep_lengths"] == steps).all()
    study = manager(config="own.yml", optimize_hyperparameters=True, n_evaluations=1, **arguments)
    study.setup_experiment()
    assert study.create_envs(1, eval_env=True).envs[0].spec.max_episode_steps == steps


def test_baseline_takes_a_relabelling_ratio_from_the_command_line(run: Run, tmp_path: Path) -> None:
    run(
        *["rl_zoo3.train", "--algo", "goal_td3", "--env", "PointUMaze-v0", "-conf", "maze_relabel_ratio.yml", "-n", 305],
        *["--eval-freq", -1, "-f", "logs", "-params", *TINY, "relabel:dict(next=1-0.75, random=0.75)"],
        cwd=tmp_path,
    )
    model = GoalTD3.load(tmp_path / "logs/goal_td3/PointUMaze-v0_1/PointUMaze-v0.zip")
    assert model.relabelling() == {"next": 0.25, "random": 0.75}
    assert model.num_timesteps == 305
    assert len(monitor_rows(tmp_path / "logs/goal_td3/PointUMaze-v0_1")) == 1
    enjoyed = run(
        *["rl_zoo3.enjoy", "--algo", "goal_td3", "--env", "PointUMaze-v0", "-f", "logs", "-n", 300, "--no-render"],
        cwd=tmp_path,
    )
    assert "1 Episodes" in enjoyed.stdout


CONFIGURATIONS = Path(__file__).parents[2] / "zoo_configs"
PAPER = ("paper.yml", "paper_td3_next_state.yml")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "algorithm", "env_id"),
    [
        ("maze_goal_ratio.yml", "clearning", "PointUMaze-v0"),
        ("maze_relabel_ratio.yml", "goal_td3", "PointMaze_UMaze-v3"),
        ("paper.yml", "clearning", "AdroitHand-v0"),
        ("paper_td3_next_state.yml", "goal_td3", "AdroitHand-v0"),
        ("study_maze.yml", "clearning", "PointUMaze-v0"),
        ("study_own_env.yml", "clearning", "Pendulum-v1"),
        ("study_sawyer.yml", "clearning", "SawyerReach-v0"),
    ],
)
def test_every_configuration_runs(run: Run, tmp_path: Path, name: str, algorithm: str, env_id: str) -> None:
    entry = yaml.safe_load((CONFIGURATIONS / name).read_text())
    entry = entry.get(env_id, entry["default"])
    task = ["rl_zoo3.train", "--algo", algorithm, "--env", env_id, "-conf", CONFIGURATIONS / name, "-n", 305, "-f", "logs"]
    run(*task, "--eval-freq", -1, "-params", *TINY, cwd=tmp_path)
    saved = tmp_path / f"logs/{algorithm}/{env_id}_1/{env_id}.zip"
    model = CLearning.load(saved) if algorithm == "clearning" else GoalTD3.load(saved)
    assert model.num_timesteps == 305
    assert model.gamma == entry.get("gamma", 0.99)
    if "search" in entry:
        study = ["-optimize", "--n-trials", 1, "--n-evaluations", 1, "--eval-episodes", 1, "--no-optim-plots"]
        result = run(*task, *study, "-params", *TINY, cwd=tmp_path)
        assert "Number of finished trials:  1" in result.stdout


def test_the_papers_baseline_has_the_settings_of_its_c_learning() -> None:
    ours, baseline = (yaml.safe_load((CONFIGURATIONS / name).read_text())["default"] for name in PAPER)
    # eval, as rl-zoo3 does.
    ours["policy_kwargs"], baseline["policy_kwargs"] = eval(ours["policy_kwargs"]), eval(baseline["policy_kwargs"])
    assert ours.pop("w_clip")
    assert ours.pop("lambda_")
    assert ours.pop("actor_loss") == "log_prob"
    assert ours["policy_kwargs"].pop("stochastic_actor")  # TD3's is deterministic
    assert baseline.pop("relabel") == "next"
    assert baseline == ours


def test_every_configuration_is_tried() -> None:
    marks = test_every_configuration_runs.pytestmark  # type: ignore[attr-defined]
    (names,) = ({row[0] for row in mark.args[1]} for mark in marks if mark.name == "parametrize")
    assert names == {path.name for path in CONFIGURATIONS.glob("*.yml")}


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ["PointMaze_UMaze-v3", "AntMaze_UMaze-v5", "FetchPush-v4", "PointUMaze-v0", "JacoReach-v0"])
def test_other_envs_log_success_too(run: Run, tmp_path: Path, env_id: str) -> None:
    run(
        *["rl_zoo3.train", "--algo", "clearning", "--env", env_id, "-n", 705, "--eval-freq", -1, "-f", "logs"],
        *["-params", *TINY, "train_freq:50"],
        cwd=tmp_path,
    )
    rows = monitor_rows(tmp_path / f"logs/clearning/{env_id}_1")
    assert rows
    assert all(row["is_success"] in ("True", "False", "0.0", "1.0") and float(row["distance"]) > 0 for row in rows)
