"""Weights & Biases' own SB3 callback, offline: nothing is sent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sb3_clearning import CLearning
from tests.support.pages import ROOT

SCRIPT = """
import wandb
from wandb.integration.sb3 import WandbCallback

from tests.support.goal_envs import PointEnv
from tests.support.small_models import small_model

run = wandb.init(project="goals", sync_tensorboard=True)
model = small_model(PointEnv(), tensorboard_log="tensorboard")
model.learn(100, callback=WandbCallback(model_save_path="models", gradient_save_freq=10), log_interval=2)
run.finish()
"""


@pytest.mark.slow
def test_callback_runs_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    environment = {
        **os.environ,
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", SCRIPT]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
    (record,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    logged = record.read_bytes()
    # From TensorBoard's file; from hooks on the parameters, which the fast updater would not call; from the constructor.
    for name in ("rollout/distance_final", "rollout/success_rate", "gradients/actor", "lambda_"):
        assert name.encode() in logged, name
    assert CLearning.load(tmp_path / "models" / "model.zip").num_timesteps == 100
