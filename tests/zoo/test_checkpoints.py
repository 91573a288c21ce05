"""`train` and studies with ResumableCheckpoint in their configuration: the same command goes on."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from sb3_clearning import CLearning
from sb3_clearning.runs.checkpoint import ResumableCheckpoint
from sb3_clearning.zoo.checkpoints import callbacks_of_the_trial, checkpoint_to_go_on_from, trial_folders
from sb3_clearning.zoo.input_error import InputError
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


def test_the_same_command_goes_on_after_a_signal(run: Run, tmp_path: Path) -> None:
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
    assert "Going on from the checkpoints in checkpoints" in result.stdout
    one = CLearning.load(tmp_path / "undisturbed/logs/clearning/Pendulum-v1_1/Pendulum-v1.zip")
    other = CLearning.load(folder / "logs/clearning/Pendulum-v1_2/Pendulum-v1.zip")
    assert other.num_timesteps == 600
    assert all((a == b).all() for a, b in zip(one.policy.parameters(), other.policy.parameters(), strict=True))


def test_another_configuration_says_why_it_can_not_go_on(run: Run, tmp_path: Path) -> None:
    (tmp_path / "own.yml").write_text(CONFIGURATION.replace("600", "150"))
    run("sb3_clearning.zoo", *TASK, cwd=tmp_path)
    (tmp_path / "own.yml").write_text(CONFIGURATION.replace("net_arch=[8]", "net_arch=[9]"))
    result = run("sb3_clearning.zoo", *TASK, cwd=tmp_path, fails=True)
    assert "The run in checkpoints can not go on." in result.stderr
    assert "stored weights do not match these networks" in result.stderr
    assert "Traceback" not in result.stderr


def test_every_trial_has_a_folder_of_its_own(tmp_path: Path) -> None:
    def original(hyperparams: dict) -> list:
        return [ResumableCheckpoint(tmp_path, every=7, keep=3)]

    with trial_folders(4):
        (callback,) = callbacks_of_the_trial(original, {})
        assert isinstance(callback, ResumableCheckpoint)
        assert (callback.folder, callback.every, callback.keep) == (tmp_path / "trial_4", 7, 3)
    (callback,) = callbacks_of_the_trial(original, {})
    assert isinstance(callback, ResumableCheckpoint)
    assert callback.folder == tmp_path
    assert checkpoint_to_go_on_from([callback]) is None


def test_a_callback_without_a_folder() -> None:
    def original(hyperparams: dict) -> list:
        return [ResumableCheckpoint()]  # type: ignore[call-arg]

    with pytest.raises(InputError, match="needs a `folder`, and takes `every` and `keep`"):
        callbacks_of_the_trial(original, {"callback": "sb3_clearning.ResumableCheckpoint"})
    with pytest.raises(TypeError):
        callbacks_of_the_trial(original, {"callback": "another"})


def test_a_study_with_checkpoints(run: Run, tmp_path: Path) -> None:
    (tmp_path / "own.yml").write_text(CONFIGURATION.replace("600", "150").replace("  learning_rate: lin_1e-3\n", ""))
    study = ["-optimize", "--n-trials", 2, "--n-evaluations", 1, "--sampler", "random", "--pruner", "none", "--no-optim-plots"]
    run("sb3_clearning.zoo", *TASK, *study, cwd=tmp_path)
    folders = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert folders == ["trial_0", "trial_1"]
    assert all(list((tmp_path / "checkpoints" / name).glob("checkpoint-*")) for name in folders)
