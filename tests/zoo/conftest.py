"""rl-zoo3's real commands in processes of their own: the startup hook has to reach them, as it has to reach a user's."""

import argparse
import subprocess
from pathlib import Path
from typing import Any

import pytest

import sb3_clearning.zoo
from tests.support.commands import TINY, Run, command, environment


@pytest.fixture(scope="session")
def run() -> Run:
    def run_command(module: str, *arguments: object, cwd: Path, fails: bool = False, **variables: str) -> object:
        result = subprocess.run(
            command(module, *arguments), cwd=cwd, env=environment(**variables), capture_output=True, text=True, timeout=900
        )
        assert (result.returncode != 0) == fails, f"{result.stdout[-3000:]}\n{result.stderr[-5000:]}"
        return result

    return run_command  # type: ignore[return-value]


@pytest.fixture(scope="session")
def trained(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which SawyerReach-v0 was trained, with `logs/`, a checkpoint, evaluations and a replay buffer."""
    folder = tmp_path_factory.mktemp("trained")
    options = ["-n", 300, "--eval-freq", 100, "--eval-episodes", 2, "--save-freq", 100, "--save-replay-buffer", "-f", "logs"]
    result = run("rl_zoo3.train", "--algo", "clearning", "--env", "SawyerReach-v0", *options, "-params", *TINY, cwd=folder)
    (folder / "train.log").write_text(result.stdout)
    return folder


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes rl-zoo3's ExperimentManager with our extensions, as `train` does, in this process."""
    sb3_clearning.zoo.register()
    from rl_zoo3.exp_manager import ExperimentManager

    monkeypatch.chdir(tmp_path)
    defaults: dict[str, Any] = {
        "args": argparse.Namespace(),
        "algo": "clearning",
        "env_id": "ContinuousGridworld-v0",
        "log_folder": "logs",
        "n_timesteps": 60,
        "eval_freq": -1,
        "log_interval": -1,
    }
    return lambda **options: ExperimentManager(**{**defaults, **options})
