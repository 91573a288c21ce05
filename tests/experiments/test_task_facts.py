"""The distances that thresholds and noise were chosen by, against an analytic answer and plain loops."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import sb3_clearning.envs  # noqa: F401
from sb3_clearning.experiments import task_facts
from sb3_clearning.experiments.tables.rows import read_rows

ROOT = Path(__file__).parents[2]


def test_share_of_episodes_that_begin_within_a_threshold() -> None:
    pytest.importorskip("metaworld")
    begins = task_facts.distances(gym.make("SawyerWindow-v0"), 500)
    # Start and goal are independent and uniform on 18 cm of rail: P(|x - y| < t) = 1 - (1 - t / 0.18)^2.
    for threshold in (0.05, 0.03):
        expected = 1 - (1 - threshold / 0.18) ** 2
        assert np.mean(begins < threshold) == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 500))


def test_distance_at_the_end_is_the_policys() -> None:
    env = gym.make("ContinuousGridworld-v0", max_episode_steps=5)
    found = task_facts.distances(env, 3, lambda env: np.full(2, 0.5, np.float32))
    for episode in range(3):
        env.reset(seed=task_facts.SEED + episode)
        for _ in range(5):
            *_, info = env.step(np.full(2, 0.5, np.float32))
        assert found[episode] == info["distance"]


def test_command_writes_what_the_pages_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("metaworld")
    pytest.importorskip("dm_control")
    task_facts.main(["--quick", "--output", str(tmp_path)])
    assert not (tmp_path / "task_facts.csv").exists()  # three episodes do not replace what was measured
    rows, committed = read_rows(tmp_path / "task_facts_quick.csv"), read_rows(ROOT / "results" / "task_facts.csv")
    assert [row["name"] for row in rows] == [row["name"] for row in committed]
    assert all(row["episodes"] == "3" for row in rows)
    assert len(capsys.readouterr().out.splitlines()) >= len(rows)
