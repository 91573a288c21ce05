"""Wrong input ends in one clear line, before a run folder is made; an error of ours leaves other algorithms alone."""

import argparse
import copy
import importlib
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th

import sb3_clearning.zoo
from sb3_clearning import ResumableCheckpoint
from sb3_clearning.checks import UsageError
from sb3_clearning.runs.random_states import preserved_random_states
from sb3_clearning.zoo.manager import GoalExperimentManager
from tests.support.commands import Run
from tests.support.goal_envs import PointEnv
from tests.support.small_models import small_model

PROJECT = Path(sb3_clearning.__file__).resolve().parents[1]


def one_line(stderr: str) -> str:
    """:return: all that was printed, if it is one line"""
    (line,) = [line for line in stderr.splitlines() if line.strip()]
    return line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "Pendulum-v1"], "clearning cannot learn on Pendulum-v1."),
        (["--env", "SawyerReach-v0", "-params", "gama:0.9"], "clearning has no hyperparameter `gama`: did you mean `gamma`?"),
        (["--env", "SawyerReach-v0", "-conf", "broken.yml"], "broken.yml is not valid YAML: "),
        (["--env", "SawyerReach-v0", "-params", "gamma:2.0"], "clearning cannot use these hyperparameters. `gamma` must be"),
    ],
)
def test_wrong_input(run: Run, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "broken.yml").write_text("SawyerReach-v0:\n  gamma: [0.9\n")
    result = run("rl_zoo3.train", "--algo", "clearning", *arguments, "-f", "logs", cwd=tmp_path, fails=True)
    assert one_line(result.stderr).startswith(message)
    assert ("env_wrapper: [{sb3_clearning.envs.GoalFromObservation: " in result.stderr) == ("Pendulum-v1" in arguments)
    assert not (tmp_path / "logs").exists()


WRONG_VALUES = [
    ({"gamma": 2.0}, "`gamma` must be at least 0 and below 1, not 2.0"),
    ({"batch_size": 0}, "`batch_size` must be at least 2"),
    ({"buffer_size": 0}, "`buffer_size` must be at least 1, not 0"),
    ({"train_freq": 0}, "`train_freq` must be at least 1, not 0"),
    ({"lambda_": "x"}, "`lambda_` must be at least 0 and at most 1"),
    ({"w_clip": -1}, "`w_clip` must be above 0"),
    ({"action_noise": "blue"}, "`action_noise` must be"),
    ({"learning_rate": -1.0}, "`learning_rate` must be at least 0"),
    ({"learning_rate": "foo"}, "`learning_rate` must be a number or `lin_` and a number, not 'foo'"),
    ({"noise_type": "blue", "noise_std": 0.1}, 'Unknown noise type "blue"'),
    ({"policy": "Foo"}, "Policy Foo unknown"),
    ({"policy_kwargs": {"net_arc": [64]}}, "unexpected keyword argument 'net_arc'"),
    ({"normalize": {"foo": 1}}, "ContinuousGridworld-v0 cannot be created .* unexpected keyword argument 'foo'"),
    ({"n_envs": 0}, "`n_envs` must be at least 1, not 0"),
    ({"n_timesteps": "many"}, "invalid literal for int.*'many'"),
    ({"monitor_kwargs": 5}, "'int' object is not iterable"),
    ({"env_wrapper": "sb3_clearning.envs.Foo"}, "has no attribute 'Foo'"),
    ({"env_wrapper": {"sb3_clearning.envs.NoisyGoal": {"noise": "x"}}}, "ContinuousGridworld-v0 cannot be created"),
    ({"seed": 3}, "multiple values for keyword argument 'seed'"),
]


@pytest.mark.parametrize("study", [False, True], ids=["run", "study"])
@pytest.mark.parametrize(("hyperparams", "message"), WRONG_VALUES)
def test_wrong_values_are_found_before_a_folder_is_made(manager: Any, hyperparams: dict, message: str, study: bool) -> None:
    parts = {"search": ["tau"]} if study else {}
    wrong = manager(hyperparams={**hyperparams, **parts}, optimize_hyperparameters=study, n_timesteps=0)
    with pytest.raises(UsageError, match=message) as error:
        wrong.setup_experiment()
    assert "\n" not in str(error.value)
    assert not Path("logs").exists()


@pytest.mark.parametrize("name", ["env_kwargs", "eval_env_kwargs"])
def test_wrong_arguments_of_the_env(manager: Any, name: str) -> None:
    with pytest.raises(UsageError, match=r"ContinuousGridworld-v0 cannot be created .* unexpected keyword argument 'foo'"):
        manager(**{name: {"foo": 1}}).setup_experiment()
    assert not Path("logs").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("default:\n", "own.yml must map env ids"),
        ("default: {n_timesteps: 100}\n", "own.yml has no `policy` for ContinuousGridworld-v0"),
        ("default: {policy: MultiInputPolicy}\n", "own.yml has no `n_timesteps` for ContinuousGridworld-v0"),
        ("Other-v0: {policy: MultiInputPolicy}\n", "Hyperparameters not found for clearning-ContinuousGridworld-v0"),
    ],
)
@pytest.mark.parametrize("custom", [None, {"gamma": 0.9}], ids=["plain", "params"])
def test_files_that_lack_something(manager: Any, text: str, message: str, custom: dict | None) -> None:
    Path("own.yml").write_text(text)
    with pytest.raises(UsageError, match=message):
        manager(config="own.yml", n_timesteps=0, hyperparams=custom).setup_experiment()
    assert not Path("logs").exists()


@pytest.mark.parametrize(
    "config", ["logs/paper.yml", "/nowhere/paper.yml", "../paper.yml", "hyperparams/paper.yml", "papr.yml"]
)
def test_a_path_to_nowhere_is_not_taken_for_a_file_of_ours(manager: Any, config: str) -> None:
    with pytest.raises(
        UsageError, match=f"There is no configuration {config} for clearning. Files of sb3_clearning: clearning"
    ):
        manager(config=config).setup_experiment()
    assert not Path("logs").exists()


@pytest.mark.parametrize("config", ["paper.yml", "./paper.yml", "zoo_configs/paper.yml", "hyperparams/clearning.yml", None])
def test_our_files_are_found_by_their_names(manager: Any, config: str | None) -> None:
    found = manager(config=config)
    found.read_hyperparameters()
    path = Path(found.config)
    assert path.is_file()
    assert path.relative_to(PROJECT) in (Path("zoo_configs/paper.yml"), Path("hyperparams/clearning.yml"))
    assert path.name == Path(config or "clearning.yml").name


def test_a_wrapper_that_does_not_fit_the_env(manager: Any) -> None:
    wrapper = {"sb3_clearning.envs.GoalFromObservation": {"crop": [0, 9]}}
    wrong = manager(env_id="Pendulum-v1", hyperparams={"env_wrapper": wrapper})
    with pytest.raises(UsageError, match=r"Pendulum-v1 cannot be created .* crop=\[0, 9\] is out of range"):
        wrong.setup_experiment()
    assert not Path("logs").exists()


def test_an_agent_of_another_env(manager: Any) -> None:
    small_model(PointEnv()).save("agent.zip")
    with pytest.raises(UsageError, match=r"these hyperparameters and agent\.zip\. Observation spaces do not match"):
        manager(trained_agent="agent.zip").setup_experiment()
    assert not Path("logs").exists()


def test_an_agent_and_a_run_to_resume(manager: Any) -> None:
    small_model(PointEnv()).learn(30, callback=ResumableCheckpoint("checkpoints", every=10)).save("agent.zip")
    callback = {"sb3_clearning.ResumableCheckpoint": {"folder": "checkpoints"}}
    with pytest.raises(UsageError, match="checkpoints already holds a run: omit `-i`"):
        manager(trained_agent="agent.zip", hyperparams={"callback": callback}).setup_experiment()
    assert not Path("logs").exists()


def test_a_study_draws_what_would_be_wrong(manager: Any) -> None:
    manager(optimize_hyperparameters=True, hyperparams={"gamma": 2.0, "search": ["gamma"]}).setup_experiment()


@pytest.mark.parametrize(
    "hyperparams",
    [
        {"normalize": True, "learning_rate": "lin_0.001"},
        {"noise_type": "normal", "noise_std": 0.2, "n_envs": 2},
        {"policy": "sb3_clearning.CLearningPolicy", "policy_kwargs": {"net_arch": [8], "stochastic_actor": True}},
        {"vec_env_wrapper": "stable_baselines3.common.vec_env.VecMonitor"},
    ],
)
@pytest.mark.parametrize("vec_env_type", ["dummy", "subproc"])
def test_nothing_of_a_run_changes_where_all_is_right(
    manager: Any, hyperparams: dict, vec_env_type: str, capsys: pytest.CaptureFixture[str]
) -> None:
    right = manager(hyperparams=hyperparams, vec_env_type=vec_env_type)
    unprocessed, _ = right.read_hyperparameters()
    th.manual_seed(5)
    expected = (random.getstate(), str(np.random.get_state()), th.get_rng_state().tolist())
    processed = right._preprocess_hyperparams(unprocessed)[0]
    assert (random.getstate(), str(np.random.get_state()), th.get_rng_state().tolist()) == expected
    assert processed.get("noise_type") == hyperparams.get("noise_type")  # rl-zoo3 makes the noise of it later
    assert processed.get("policy_kwargs") == hyperparams.get("policy_kwargs")
    assert "buffer_size" not in processed
    assert right.vec_env_class.__name__ == {"dummy": "DummyVecEnv", "subproc": "SubprocVecEnv"}[vec_env_type]
    assert right.verbose == 1
    assert "Applying" not in capsys.readouterr().out


def test_random_states_are_given_back_after_an_error() -> None:
    def draw_and_fail() -> None:
        with preserved_random_states():
            raise ValueError(f"{random.random()}, {np.random.rand()}, {th.rand(1)}")

    expected = (random.getstate(), str(np.random.get_state()), th.get_rng_state().tolist())
    with pytest.raises(ValueError, match="tensor"):
        draw_and_fail()
    assert (random.getstate(), str(np.random.get_state()), th.get_rng_state().tolist()) == expected


def test_an_import_error_of_ours_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sb3_clearning.goal_td3.goal_td3", None)
    monkeypatch.delitem(sys.modules, "sb3_clearning.zoo.algorithms")
    with pytest.raises(ImportError, match=r"goal_td3\.goal_td3"):
        importlib.import_module("sb3_clearning.zoo.algorithms")


def test_only_our_algorithms_have_our_manager(manager: Any) -> None:
    from rl_zoo3.exp_manager import ExperimentManager

    class Own(ExperimentManager):
        """A user's subclass."""

    arguments: dict[str, Any] = {"args": argparse.Namespace(), "env_id": "CartPole-v1", "log_folder": "logs"}
    assert type(ExperimentManager(algo="ppo", **arguments)) is ExperimentManager
    assert type(Own(algo="ppo", **arguments)) is Own
    for algo in ("clearning", "goal_td3"):
        assert type(ExperimentManager(arguments["args"], algo, "CartPole-v1", "logs")) is GoalExperimentManager
    sb3_clearning.zoo.register()  # a second time
    assert type(copy.copy(manager())) is GoalExperimentManager


def test_an_error_of_ours_does_not_break_other_algorithms(run: Run, tmp_path: Path) -> None:
    # In front of the installed package on the path of `python -m`: the current folder.
    (tmp_path / "sb3_clearning").mkdir()
    (tmp_path / "sb3_clearning/__init__.py").write_text("raise RuntimeError('broken')")
    steps = ["-n", 64, "--eval-freq", -1, "-params", "n_steps:8", "batch_size:8", "n_envs:1"]
    result = run("rl_zoo3.train", "--algo", "ppo", "--env", "CartPole-v1", *steps, cwd=tmp_path)
    assert "Saving to" in result.stdout
    assert "sb3_clearning could not add its algorithms to rl_zoo3.utils (RuntimeError: broken)" in result.stderr


@pytest.mark.parametrize("search", ["None", "['gamma']"], ids=["everything", "gamma"])
def test_a_search_says_what_of_the_command_line_it_draws_itself(run: Run, search: str, tmp_path: Path) -> None:
    task = ["--algo", "clearning", "--env", "ContinuousGridworld-v0", "-f", "logs", "-n", 100]
    study = ["-optimize", "--n-trials", 1, "--n-evaluations", 1, "--eval-episodes", 1, "--num-threads", 1]
    given = ["-params", "batch_size:32", "learning_starts:20", f"search:{search}"]
    result = run("rl_zoo3.train", *task, *study, *given, cwd=tmp_path)
    assert ("-params has no effect on batch_size: the trials draw their own" in result.stdout) == (search == "None")
