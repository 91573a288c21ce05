"""The offline experiment: its data is what it says, and its command writes a table."""

from pathlib import Path

import numpy as np
import pytest
import torch as th

from sb3_clearning.common.collect import collect
from sb3_clearning.experiments import offline
from sb3_clearning.experiments.offline_data import (
    STITCH_CELLS,
    STITCH_STEPS,
    Maze,
    SlideController,
    WaypointController,
    make_maze,
    make_sawyer,
    maze_data,
    sawyer_data,
)
from sb3_clearning.experiments.tables.rows import read_rows
from tests.support.offline_models import offline_model


def test_advantages_weight_the_datas_actions() -> None:
    model = offline_model(offline.AdvantageWeighted)
    assert isinstance(model, offline.AdvantageWeighted)
    model.learn_offline(20)
    batch = model.replay_buffer.sample_goals(16, model.relabelling(), model.gamma, env=None)[0]
    actor = [*model.actor.parameters()]
    loss, seen = th.zeros(()), []
    for i in range(16):
        obs = {key: value[i : i + 1] for key, value in batch.observations.items()}
        action, data = model.actor(obs)[0], batch.actions[i : i + 1]
        logits = [model.critic(obs, one).detach() for one in (data, action[None].detach())]
        advantage = min(map(float, logits[0])) - min(map(float, logits[1]))
        seen.append(min(float(np.exp(3 * advantage)), 100.0))
        loss = loss + seen[-1] * ((action - data[0]) ** 2).mean() / 16
    assert np.ptp(seen) > 0.1
    expected = th.autograd.grad(loss, actor)
    model._updater.update_actor(batch)
    for parameter, gradient in zip(actor, expected, strict=True):
        th.testing.assert_close(parameter.grad, gradient, atol=1e-6, rtol=1e-4)


@pytest.fixture(scope="module")
def maze() -> Maze:
    return Maze(make_maze("Medium"))


def test_ways_are_the_shortest(maze: Maze) -> None:
    # Floyd and Warshall's algorithm
    index = {cell: i for i, cell in enumerate(maze.free)}
    far = np.full((len(index), len(index)), np.inf)
    for (row, column), i in index.items():
        far[i, i] = 0
        for neighbor in ((row, column + 1), (row + 1, column)):
            if neighbor in index:
                far[i, index[neighbor]] = far[index[neighbor], i] = 1
    for k in range(len(index)):
        far = np.minimum(far, far[:, k : k + 1] + far[k : k + 1])
    for start in maze.free[::3]:
        assert all(far[index[start], index[cell]] == length for cell, length in maze.distances(start).items())
        for goal in maze.free[::4]:
            if goal != start:
                step = maze.step_towards(start, goal)
                assert far[index[start], index[step]] == 1
                assert far[index[step], index[goal]] == far[index[start], index[goal]] - 1


def test_the_controller_reaches_its_goals() -> None:
    env = make_maze("Medium", reset_target=False, max_episode_steps=400)
    policy = WaypointController(Maze(env))
    for seed in range(5):
        obs, _ = env.reset(seed=seed)
        reached = False
        for _ in range(400):
            action = policy({key: value[None] for key, value in obs.items()})[0]
            obs, _, _, _, info = env.step(action)
            reached |= bool(info["success"])
        assert reached


def test_stitch_shows_short_trips_only(maze: Maze) -> None:
    data = maze_data("Medium", "stitch", 10 * STITCH_STEPS, seed=0)
    assert isinstance(data.observations, dict)
    assert isinstance(data.next_observations, dict)
    last = np.flatnonzero(data.ends)
    assert np.array_equal(np.diff(last), np.full(9, STITCH_STEPS))
    lengths = []
    for first, end in zip(last - STITCH_STEPS + 1, last, strict=True):
        start, goal = (maze.cell(data.observations[key][first]) for key in ("achieved_goal", "desired_goal"))
        assert 1 <= maze.distances(start)[goal] <= STITCH_CELLS
        lengths.append(maze.distances(start)[maze.cell(data.next_observations["achieved_goal"][end])])
    assert 1 <= max(lengths) <= STITCH_CELLS + 1
    again = maze_data("Medium", "stitch", 100, seed=0)
    assert np.array_equal(again.actions, data.actions[:100])
    assert not np.array_equal(maze_data("Medium", "stitch", 100, seed=1).actions, again.actions)


def test_navigate_shows_long_walks(maze: Maze) -> None:
    data = maze_data("Medium", "navigate", 500, seed=0)
    assert isinstance(data.observations, dict)
    goals = {maze.cell(goal) for goal in data.observations["desired_goal"]}
    assert len(goals) > 2
    far = maze.distances(maze.cell(data.observations["achieved_goal"][0]))
    assert max(far[maze.cell(place)] for place in data.observations["achieved_goal"]) > STITCH_CELLS + 1


@pytest.mark.parametrize(("task", "axis"), [("Drawer", 4), ("Window", 3)])
def test_scripted_episodes_move_the_object_to_its_goal(task: str, axis: int) -> None:
    env, policy = make_sawyer(task), SlideController(task, random_fraction=0)
    for seed in range(6):
        obs, _ = env.reset(seed=seed)
        start, reached = obs["observation"][axis], False
        moved = 0.0
        for t in range(150):
            batch = {key: value[None] for key, value in obs.items()}
            action = policy.predict(batch, None, np.array([t == 0]), False)[0][0]
            obs, _, _, _, info = env.step(action)
            reached |= bool(info["is_success"])
            moved = max(moved, abs(obs["observation"][axis] - start))
        assert reached
        # Within the success threshold of 3 cm, or nearer: it was pushed all the way.
        assert moved > abs(obs["desired_goal"][axis] - start) - 0.03


def test_half_of_sawyers_episodes_are_random() -> None:
    data, env = sawyer_data("Drawer", 16 * 150, seed=0), make_sawyer("Drawer")
    scripted, random = (collect(SlideController("Drawer", random_fraction=f), env, 16 * 150, seed=0) for f in (0.0, 1.0))
    # The controllers hold the gripper open or closed, with noise.
    is_random = np.abs(data.actions[:, 3].reshape(16, 150)[:, :5]).mean(axis=1) < 0.75
    assert 4 <= is_random.sum() <= 12
    moves = []
    for found in (scripted, random):
        assert isinstance(found.observations, dict)
        moves.append(np.ptp(found.observations["observation"][:, 4].reshape(16, 150), axis=1).mean())
    assert moves[0] > 3 * moves[1]
    assert np.abs(np.mean(random.actions, axis=0)).max() < 0.05
    assert np.abs(np.std(random.actions, axis=0) - 3**-0.5).max() < 0.03
    assert np.array_equal(sawyer_data("Drawer", 200, seed=0).actions, data.actions[:200])
    assert not np.array_equal(sawyer_data("Drawer", 200, seed=1).actions, data.actions[:200])


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(offline, "N_UPDATES", 10)
    monkeypatch.setattr(offline, "ONLINE_STEPS", 6)
    monkeypatch.setattr(offline, "ONLINE_EVERY", 3)
    monkeypatch.setattr(offline, "TASKS", {"small": offline._maze_task("UMaze", "stitch", 300, 0.9, 10, online=True)})
    command = ["--tasks", "small", "--seeds", "1", "--output", str(tmp_path), "--methods", "clearning", "cloning alone"]
    offline.main(command)
    rows = read_rows(tmp_path / "offline.csv")
    assert [(row["method"], row["updates"], row["online_steps"]) for row in rows] == [
        *(("clearning", "10", steps) for steps in ("0", "3", "6")),
        ("cloning alone", "10", "0"),
    ]
    assert "| small | " in (tmp_path / "offline.md").read_text()
    assert "missing" in (tmp_path / "offline.md").read_text()
    capsys.readouterr()
    offline.main(command)
    assert "2 of 2 settings are in" in capsys.readouterr().out
    assert len(read_rows(tmp_path / "offline.csv")) == 4


def test_the_online_table_shows_the_lowest_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "ONLINE_STEPS", 2000)
    curves = {"0": ("0.8", "0.6", "0.9"), "1": ("0.5", "0.7", "0.7")}
    rows = [
        {"task": "fetch-reach-random", "method": "clearning", "seed": seed, "updates": "10000", "success": success}
        | {"online_steps": str(1000 * i), "success_any_time": "1"}
        for seed, curve in curves.items()
        for i, success in enumerate(curve)
    ]
    found = offline.online_table(rows)[2:]
    assert found == [
        "| fetch-reach-random | 0 | 0.80 | 0.60 | 0.75 | 0.90 |",
        "| fetch-reach-random | 1 | 0.50 | 0.70 | 1.40 | 0.70 |",
    ]
    assert "| fetch-reach-random | 0.65 ± 0.21 (2) | missing |" in "\n".join(offline.table(rows))
    assert "| fetch-reach-random | 1.00 ± 0.00 (2) | missing |" in "\n".join(offline.table(rows, other=True))
