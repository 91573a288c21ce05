"""The agent that learns nothing, against a loop over the environment."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from sb3_clearning.experiments.suite.run import make_env
from suite.tiny import CONFIG, tiny_runs, undisturbed


def test_zero_actions_are_what_is_evaluated(tmp_path: Path) -> None:
    config = tmp_path / "zero.yml"
    matrix = [{"tasks": ["Tiny"], "methods": ["zero_actions"], "seeds": 1, "steps": 60}]
    config.write_text(yaml.safe_dump({**CONFIG, "matrices": {"tiny": matrix}}))
    (run,) = tiny_runs(config)
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
