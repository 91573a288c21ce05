"""Agents and films from finished runs."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th

import sb3_clearning.envs  # noqa: F401
from sb3_clearning import CLearning, ResumableCheckpoint
from sb3_clearning.experiments import agents
from sb3_clearning.experiments.suite.config import Run
from sb3_clearning.experiments.suite.run_folder import CHECKPOINTS, ROWS, write_description
from sb3_clearning.experiments.tables.rows import read_rows, write_rows

TASK = "ContinuousGridworld-v0"
ARGUMENTS = {"learning_starts": 10, "buffer_size": 100, "batch_size": 8, "policy_kwargs": {"net_arch": [8]}}


def finished_run(
    suite: Path, seed: int, success: float, final: float, steps: int = 20, done: int = 20, task: str = TASK
) -> CLearning:
    run = Run(task, "clearning", seed, steps, "sb3_clearning:CLearning", ARGUMENTS, TASK, {"max_episode_steps": 7}, 20, 2, 1.0)
    folder = suite / "runs" / run.name
    write_description(run, folder)
    model = CLearning("MultiInputPolicy", gym.make(TASK, max_episode_steps=7), seed=seed, **ARGUMENTS)  # type: ignore[arg-type]
    model.learn(done, callback=ResumableCheckpoint(folder / CHECKPOINTS, every=run.evaluate_every))
    row = {"task": task, "seed": seed, "step": done, "success": success, "initial": 1.0, "final": final, "minimum": 0.0}
    row |= {"commit": "abc", "versions": "torch=2"}
    write_rows(folder / ROWS, [row], list(row))
    return model


def test_best_finished_run_is_taken(tmp_path: Path) -> None:
    finished_run(tmp_path, 0, success=0.5, final=0.2)
    best = finished_run(tmp_path, 1, success=0.8, final=0.4)
    finished_run(tmp_path, 2, success=0.8, final=0.5)
    finished_run(tmp_path, 3, success=1.0, final=0.1, steps=40)  # not at its end
    found = agents.best_runs(tmp_path)
    assert {task: folder.name for task, folder in found.items()} == {TASK: "seed_1"}

    table = tmp_path / "agents.csv"
    other = {**dict.fromkeys(agents.FIELDS, "1"), "task": "Another-v0"}
    write_rows(table, [other, {**other, "task": TASK}], agents.FIELDS)  # the task's own row is replaced
    options = {"suite": tmp_path, "agents": tmp_path / "agents", "films": tmp_path, "episodes": 1, "table": table}
    agents.main([text for name, value in options.items() for text in (f"--{name}", str(value))])
    assert [(row["task"], row["seed"], row["success"]) for row in read_rows(table)] == [
        ("Another-v0", "1", "1"),
        (TASK, "1", "0.8"),
    ]
    folder = tmp_path / "agents" / "clearning" / f"{TASK}_1"
    loaded = CLearning.load(folder / f"{TASK}.zip", env=gym.make(TASK))
    observation, _ = gym.make(TASK).reset(seed=0)
    np.testing.assert_array_equal(loaded.predict(observation)[0], best.predict(observation)[0])
    before = [parameter.clone() for parameter in loaded.critic_target.parameters()]
    assert all(th.equal(one, other) for one, other in zip(before, loaded.critic.parameters(), strict=True))
    loaded.learn(15, reset_num_timesteps=False)  # without its moments it still trains, with targets apart from the networks
    assert not any(
        th.equal(one, other) for one, other in zip(loaded.critic_target.parameters(), loaded.critic.parameters(), strict=True)
    )
    about = (folder / TASK / "config.yml").read_text()
    assert "seed 1, success 0.80" in about
    assert "--seeds 1 --steps 20" in about
    assert agents.env_kwargs_of(folder, TASK) == {"max_episode_steps": 7}


def test_task_that_is_no_environment_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished_run(tmp_path, 0, success=1.0, final=0.1, task="AGridworldVariant")  # it comes before the other one
    finished_run(tmp_path, 0, success=0.5, final=0.2)
    folders = {name: tmp_path / name for name in ("agents", "films", "table")}
    arguments = [text for name, value in folders.items() for text in (f"--{name}", str(value))]
    agents.main(["--suite", str(tmp_path), *arguments, "--episodes", "1"])
    assert "AGridworldVariant is a variant of ContinuousGridworld-v0" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "agents" / "clearning").iterdir()] == [f"{TASK}_1"]
    assert [path.name for path in (tmp_path / "films").iterdir()] == [f"{TASK}.gif"]
    assert [row["task"] for row in read_rows(tmp_path / "table")] == [TASK]


def test_film_has_the_pictures_of_the_episodes(tmp_path: Path) -> None:
    Image = pytest.importorskip("PIL.Image")
    model = CLearning("MultiInputPolicy", gym.make(TASK), **ARGUMENTS)  # type: ignore[arg-type]
    env = gym.make(TASK, render_mode="rgb_array", max_episode_steps=7)
    pictures = agents.pictures_of(model, env, [0, 1])
    assert len(pictures) == 2 * (8 + 5)
    agents.write_film(pictures, tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames > 2  # equal pictures that follow each other are one with a longer time
        assert film.size == (agents.SIZE, agents.SIZE)
    assert [path.name for path in tmp_path.iterdir()] == ["film.gif"]


def test_of_a_long_episode_only_some_pictures_are_drawn() -> None:
    model = CLearning("MultiInputPolicy", gym.make(TASK), **ARGUMENTS)  # type: ignore[arg-type]
    env = gym.make(TASK, render_mode="rgb_array", max_episode_steps=200)
    drawn = 0

    class Counted(gym.Wrapper):
        def render(self) -> Any:
            nonlocal drawn
            drawn += 1
            return super().render()

    pictures = agents.pictures_of(model, Counted(env), [0])
    assert drawn == agents.PICTURES
    assert len(pictures) == agents.PICTURES + 5
    np.testing.assert_array_equal(pictures[-1], pictures[-6])  # the end is shown for a while


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no finished run"):
        agents.main(["--suite", str(tmp_path)])
    with pytest.raises(SystemExit, match="no agents"):
        agents.main(["--agents", str(tmp_path)])
