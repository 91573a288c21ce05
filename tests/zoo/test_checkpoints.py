"""`train` and studies with ResumableCheckpoint in their configuration: the same command resumes."""

import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from rl_zoo3.utils import get_callback_list

from sb3_clearning import CLearning, ResumableCheckpoint
from sb3_clearning.checks import UsageError
from tests.support.commands import Run, command, environment

CONFIGURATION = """
Pendulum-v1:
  n_timesteps: !!float 600
  policy: MultiInputPolicy
  learning_starts: 50
  buffer_size: 2000
  batch_size: 16
  learning_rate: lin_1e-3
  policy_kwargs: "dict(net_arch=[8])"
  env_wrapper:
    - sb3_clearning.envs.GoalFromObservation:
        crop: [0, 1]
  callback:
    - sb3_clearning.ResumableCheckpoint:
        folder: checkpoints
        every: 100
"""

TASK = [
    "train",
    "--algo",
    "clearning",
    "--env",
    "Pendulum-v1",
    "-conf",
    "own.yml",
    "--eval-freq",
    -1,
    "-f",
    "logs",
    "--seed",
    3,
]


def test_the_same_command_resumes_after_a_signal(run: Run, tmp_path: Path) -> None:
    for name in ("undisturbed", "stopped"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.yml").write_text(CONFIGURATION)
    run("sb3_clearning.zoo", *TASK, cwd=tmp_path / "undisturbed")

    folder = tmp_path / "stopped"
    process = subprocess.Popen(
        command("sb3_clearning.zoo", *TASK), cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 300
    while len(list(folder.glob("checkpoints/checkpoint-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM
    assert "by SIGTERM. A checkpoint is in checkpoints: resume with `CLearning.resume('checkpoints', env)`" in errors

    result = run("sb3_clearning.zoo", *TASK, cwd=folder)
    assert "Resuming from the checkpoints in checkpoints" in result.stdout
    one = CLearning.load(tmp_path / "undisturbed/logs/clearning/Pendulum-v1_1/Pendulum-v1.zip")
    other = CLearning.load(folder / "logs/clearning/Pendulum-v1_2/Pendulum-v1.zip")
    assert other.num_timesteps == 600
    assert all((a == b).all() for a, b in zip(one.policy.parameters(), other.policy.parameters(), strict=True))


def test_another_configuration_says_why_it_cannot_resume(run: Run, tmp_path: Path) -> None:
    (tmp_path / "own.yml").write_text(CONFIGURATION.replace("600", "150"))
    run("sb3_clearning.zoo", *TASK, cwd=tmp_path)
    (tmp_path / "own.yml").write_text(CONFIGURATION.replace("net_arch=[8]", "net_arch=[9]"))
    result = run("sb3_clearning.zoo", *TASK, cwd=tmp_path, fails=True)
    assert "The run in checkpoints cannot be resumed." in result.stderr
    assert "stored weights do not match these networks" in result.stderr
    assert "Traceback" not in result.stderr


def test_trials_in_several_threads_each_have_their_own_folder(manager: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"sb3_clearning.ResumableCheckpoint": {"folder": "checkpoints", "every": 7, "keep": 3}}
    study = manager(optimize_hyperparameters=True, hyperparams={"callback": entry, "search": ["tau"]})
    study.setup_experiment()
    barrier, found = threading.Barrier(2, timeout=60), {}

    def objective(self: Any, trial: Any) -> float:
        barrier.wait()  # both trials are under way
        found[trial.number] = get_callback_list({"callback": self.specified_callbacks})
        barrier.wait()
        return 0.0

    monkeypatch.setattr(type(study).__base__, "objective", objective)
    optuna.create_study().optimize(study.objective, n_trials=2, n_jobs=2)
    assert set(found) == {0, 1}
    for number, (callback,) in found.items():
        assert isinstance(callback, ResumableCheckpoint)
        assert (str(callback.folder), callback.every, callback.keep) == (f"checkpoints/trial_{number}", 7, 3)
    assert study.specified_callbacks == entry


def test_a_callback_without_a_folder(manager: Any) -> None:
    with pytest.raises(UsageError, match=r"ResumableCheckpoint.*missing 1 required positional argument: 'folder'"):
        manager(hyperparams={"callback": "sb3_clearning.ResumableCheckpoint"}).setup_experiment()
    assert not Path("logs").exists()


def test_a_study_with_checkpoints(run: Run, tmp_path: Path) -> None:
    (tmp_path / "own.yml").write_text(CONFIGURATION.replace("600", "150").replace("  learning_rate: lin_1e-3\n", ""))
    study = ["-optimize", "--n-trials", 2, "--n-evaluations", 1, "--sampler", "random", "--pruner", "none", "--no-optim-plots"]
    run("sb3_clearning.zoo", *TASK, *study, cwd=tmp_path)
    folders = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert folders == ["trial_0", "trial_1"]
    assert all(list((tmp_path / "checkpoints" / name).glob("checkpoint-*")) for name in folders)
