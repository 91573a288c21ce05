"""The tables of many environments: what a cell trains with, what it counts, and what a table shows."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sb3_clearning.envs import BatchedPointMaze
from sb3_clearning.experiments import false_ends, many_envs
from sb3_clearning.experiments.tables.rows import read_rows


@pytest.mark.parametrize("n_envs", many_envs.N_ENVS)
@pytest.mark.parametrize("ratio", [1, 1 / 4, 1 / 16])
def test_updates_per_transition(n_envs: int, ratio: float) -> None:
    arguments = many_envs.update_arguments(n_envs, {1: "1", 0.25: "1/4", 0.0625: "1/16"}[ratio])
    assert arguments["gradient_steps"] / (arguments["train_freq"] * n_envs) == ratio
    for budget in many_envs.BUDGETS.values():
        for steps in budget.values():  # every evaluation comes after whole rollouts
            assert steps % (many_envs.EVALUATIONS * n_envs * arguments["train_freq"]) == 0


def test_a_cell_resumes_by_its_rows_and_counts_its_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_envs, "EPISODES", 1)
    monkeypatch.setattr(many_envs, "N_ENVS", (4,))
    monkeypatch.setattr(many_envs, "EVALUATIONS", 2)
    options = ["--quick", "--tasks", "PointUMaze-v0", "--ratios", "1/16", "--output", str(tmp_path)]
    many_envs.main(options)
    rows = read_rows(tmp_path / "many_envs_quick.csv")
    assert [(row["transitions"], row["updates"]) for row in rows] == [("512", "16"), ("1024", "48")]
    assert float(rows[1]["train_cpu_minutes"]) > float(rows[0]["train_cpu_minutes"]) > 0
    many_envs.main(options)
    assert read_rows(tmp_path / "many_envs_quick.csv") == rows


def _rows(*runs: tuple[str, int, str, int, list[float]]) -> pd.DataFrame:
    found: list[dict[str, Any]] = []
    for task, n_envs, ratio, seed, successes in runs:
        for i, success in enumerate(successes, 1):
            times = {"transitions": 1000 * i, "train_cpu_minutes": 0.5 * i, "cpu_seconds": 90.0}
            found.append({"task": task, "n_envs": n_envs, "ratio": ratio, "seed": seed, "success": success, **times})
    return pd.DataFrame(found)


def test_the_table_shows_the_first_evaluation_that_is_good_and_what_is_missing() -> None:
    maze = "PointUMaze-v0"
    rows = _rows(
        (maze, 1, "1", 200, [0.1, 0.9, 0.7, 1.0]),
        (maze, 4, "1", 200, [0.8, 0.9]),
        (maze, 4, "1", 201, [0.2, 0.5]),
        (maze, 16, "1/4", 200, [0.1, 0.3]),
    )
    lines = many_envs.table(rows)
    assert len(lines) == 2 + 3 + 2
    assert lines[2] == "| `PointUMaze-v0` | 1 | 1.00: 1.0 min, 2k | 0.70: 0.5 min, 1k (1 of 2) | – | – |"
    assert lines[3] == "| `PointUMaze-v0` | 1/4 | – | – | 0.30: – | – |"
    assert lines[4].count("–") == 4
    assert lines[-1] == "| `SawyerWindow-v0` | all | not measured yet |  |  |  |"
    assert many_envs.run_times(rows)[-1] == "| `PointUMaze-v0` | 1/4 | 2,000 | 1.5 to 1.5 |"


def test_a_table_of_whole_ratios_only_is_read_back_as_it_was(tmp_path: Path) -> None:
    _rows(("PointUMaze-v0", 1, "1", 200, [1.0])).to_csv(tmp_path / "rows.csv", index=False)
    assert "1.00: 0.5 min, 1k" in many_envs.table(pd.read_csv(tmp_path / "rows.csv"))[2]


@pytest.mark.parametrize("way", false_ends.WAYS)
def test_final_observations_are_false_in_each_way(way: str) -> None:
    def played(env: Any) -> Any:
        env.seed(0)
        env.reset()
        for _ in range(BatchedPointMaze.episode_length):
            step = env.step(np.ones((2, 2), dtype=np.float32))
        return step

    (_, _, _, true), (obs, _, _, infos) = (played(BatchedPointMaze(2)), played(false_ends.FalseEnds(BatchedPointMaze(2), way)))
    for env in range(2):
        final, first = infos[env].get("terminal_observation"), {key: value[env] for key, value in obs.items()}
        if way == "lost":
            assert final is None
            continue
        expected = true[env]["terminal_observation"] if way == "truthful" else first
        goal = (true[env]["terminal_observation"] if way in ("truthful", "undetected") else first)["desired_goal"]
        assert np.array_equal(final["desired_goal"], goal)
        for key in ("observation", "achieved_goal"):
            assert np.abs(final[key] - expected[key]).max() < (1e-4 if way == "undetected" else 1e-12)
            assert np.array_equal(final[key], first[key]) == (way in ("reset", "view"))
            assert np.shares_memory(final[key], obs[key]) == (way == "view")


def test_the_table_of_false_ends_has_a_line_for_each_way() -> None:
    rows = pd.DataFrame(
        [{"way": way, "seed": 201 - i, "success": i, "final": 0.5} for way in ("truthful", "lost") for i in (0, 1)]
    )
    lines = false_ends.table(rows)
    assert lines[2:] == [
        "| the final observation | 1.000, 0.000 | 0.500 ± 0.707 | 0.50 ± 0.00 |",
        "| nothing | 1.000, 0.000 | 0.500 ± 0.707 | 0.50 ± 0.00 |",
    ]
