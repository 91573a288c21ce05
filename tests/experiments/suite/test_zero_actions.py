"""The agent that learns nothing, against a loop over the environment."""

from pathlib import Path

import numpy as np
import pytest

from sb3_clearning.experiments.suite.config import make_env
from tests.support.tiny_suite import tiny_runs, undisturbed, write_config


def test_zero_actions_are_what_is_evaluated(tmp_path: Path) -> None:
    (run,) = tiny_runs(write_config(tmp_path, {"zero_actions": 60}))
    rows = undisturbed([run], tmp_path / "out")
    assert [int(row["step"]) for row in rows] == [30, 60]
    env, finals = make_env(run), []
    for episode in range(run.episodes):
        env.reset(seed=run.evaluation_seed + episode)
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(np.zeros(2, dtype=np.float32))
            over = terminated or truncated
        finals.append(info["distance"])
    assert [float(row["final"]) for row in rows] == pytest.approx([np.mean(finals)] * 2, abs=1e-4)
