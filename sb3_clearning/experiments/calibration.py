"""
Do predicted probabilities agree with what happens? Events (regions of the world) are predicted for states of held-out
rollouts, and looked up at a random later time of the rollout. On the gridworld, and on the U-maze with a trained agent's
rollouts.

``python -m sb3_clearning.experiments calibration`` writes results/calibration.csv, .md and .png.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_clearning import CLearning, collect
from sb3_clearning.envs.gridworld import cell_of
from sb3_clearning.experiments.gridworld_data import GridSeed, cell_number, make_seed
from sb3_clearning.experiments.tables.page import WIDTH
from sb3_clearning.experiments.tables.rows import Rows, has_rows, markdown, spread
from sb3_clearning.experiments.tables.statistics import by_seed
from sb3_clearning.experiments.tables.sweep import SweepCommand
from sb3_clearning.prediction.calibration import Reliability, reliability
from sb3_clearning.prediction.estimator import FutureStateEstimator
from sb3_clearning.prediction.next_actions import TablePolicy
from sb3_clearning.prediction.plots import plot_reliability
from sb3_clearning.prediction.queries import N_CANDIDATES
from sb3_clearning.replay.datasets import read_dataset
from sb3_clearning.replay.experience import Experience, take
from sb3_clearning.replay.geometric import future_rows

FIELDS = ("task", "method", "gamma", "seed", "bin", "predicted", "frequency", "count", "ece")
GAMMA = {"gridworld": 0.9, "maze": 0.95}
METHODS = ("mc", "td")
N_BINS = 10
MAZE = "sb3_clearning.envs:PointUMaze-v0"


class Task(NamedTuple):
    """Data to learn from, held-out rollouts of the same policy (None: the data's own), and events as functions of goals."""

    train: Experience
    test: Experience
    policy: Any
    events: list[Callable[[np.ndarray], np.ndarray]]


def gridworld_task(seed: int, quick: bool) -> Task:
    """:return: Rollouts of a random tabular policy; the events are the rows, columns, halves and some blocks of the world"""
    train, test = (make_seed(seed, False, n_trajectories=n) for n in (100, 400))

    def experience(data: GridSeed) -> Experience:
        names = ("observations", "actions", "next_observations")
        return read_dataset({**{name: getattr(data, name) for name in names}, "truncations": data.ends})

    def within(low: tuple[int, int], high: tuple[int, int]) -> Callable[[np.ndarray], np.ndarray]:
        return lambda goals: np.asarray(((cell_of(goals) >= low) & (cell_of(goals) <= high)).all(axis=1))

    regions = [((i, 0), (i, 4)) for i in range(5)] + [((0, j), (4, j)) for j in range(5)]
    regions += [((0, 0), (4, 1)), ((0, 2), (4, 4)), ((0, 0), (1, 4)), ((2, 0), (4, 4)), ((1, 1), (3, 3)), ((0, 0), (2, 2))]
    # Both data sets are draws of the same policy.
    policy = TablePolicy(train.evaluated, cell_number)
    return Task(experience(train), experience(test), policy, [within(low, high) for low, high in regions])


def maze_rollouts(model: Any, n_episodes: int, seed: int) -> Experience:
    """:return: Rollouts of a trained agent, with exploration noise of 0.2 on every action"""
    rng = np.random.default_rng(seed)
    envs = DummyVecEnv([lambda: gym.make(MAZE)] * 10)

    def noisy(observations: dict[str, np.ndarray]) -> np.ndarray:
        actions, _ = model.predict(observations, deterministic=True)
        return np.clip(actions + rng.normal(0, 0.2, actions.shape), -1, 1).astype(np.float32)

    rollouts = collect(noisy, envs, 300 * n_episodes, seed=seed)
    envs.close()
    return rollouts


def maze_task(seed: int, quick: bool) -> Task:
    """:return: Rollouts of an agent that is trained for a few thousand steps; the events are parts of the maze"""
    model = CLearning("MultiInputPolicy", gym.make(MAZE), seed=seed, device="cpu").learn(1100 if quick else 5000)
    n = 10 if quick else 100
    train, test = maze_rollouts(model, n, 10_000 + 1000 * seed), maze_rollouts(model, n // 2, 500_000 + 1000 * seed)

    def beyond(axis: int, limit: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda goals: goals[:, axis] > limit

    def block(x: float, y: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda goals: (np.abs(goals - np.array([x, y])) < 0.5).all(axis=1)

    events = [beyond(axis, limit) for axis in (0, 1) for limit in (-0.75, -0.25, 0.25, 0.75)]
    events += [block(x, y) for x in (-1.0, 0.0, 1.0) for y in (-1.0, 1.0)] + [block(1.0, 0.0)]
    return Task(train, test, None, events)


TASKS = {"gridworld": gridworld_task, "maze": maze_task}


def predictions(task: Task, estimator: FutureStateEstimator, gamma: float, seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """
    :param n: Number of states; those less than 5 / (1 - gamma) steps from the end are excluded: their future is cut off
    :return: Predicted probabilities and whether it happened, ``(n * events,)`` each
    """
    rng = np.random.default_rng(seed)
    last = task.test.last()
    left = last - np.arange(len(last)) + 1
    rows = rng.choice(np.flatnonzero(left >= min(5 / (1 - gamma), left.max() / 2)), n)
    later = future_rows(rows, last, task.test.terminations, gamma, False, rng.random(n))
    states, actions = take(task.test.observations, rows), task.test.actions[rows]
    following = task.test.next_observations
    achieved = np.asarray(following["achieved_goal"] if isinstance(following, dict) else following)[later]
    # `estimator.probability` would compute the weights again for every event.
    candidates = estimator._candidates(None)[:N_CANDIDATES]  # noqa: SLF001
    weights, _ = estimator._weights(states, actions, candidates)  # noqa: SLF001
    goals = estimator._goals.decode(candidates)  # noqa: SLF001
    inside = np.stack([event(goals) for event in task.events]).astype(float)
    happened = np.stack([event(achieved) for event in task.events])
    return np.clip(inside @ weights.T, 0, 1).ravel(), happened.ravel()


def measure(setting: tuple[str, int], quick: bool) -> Iterator[dict[str, Any]]:
    """:return: A row for each method and bin"""
    name, seed = setting
    task, gamma = TASKS[name](seed, quick), GAMMA[name]
    for method in METHODS:
        estimator = FutureStateEstimator(
            gamma, hidden=(128, 128), learning_rate=_falling_rate, w_clip=1 / (1 - gamma), seed=seed
        )
        policy = task.policy if method == "td" else None
        estimator.fit(task.train, policy=policy, method=method, steps=200 if quick else 4000, n_steps=1)
        found = reliability(*predictions(task, estimator, gamma, seed, 300 if quick else 1500), N_BINS)
        base = {"task": name, "method": method, "gamma": gamma, "seed": seed}
        for number, (predicted, frequency, count) in enumerate(zip(*found, strict=True)):
            numbers = {"predicted": predicted, "frequency": frequency, "ece": found.expected_calibration_error}
            rounded = {key: round(float(value), 5) for key, value in numbers.items()}
            yield {**base, "bin": number, **rounded, "count": int(count)}


def _falling_rate(remaining: float) -> float:
    return 1e-3 * remaining + 1e-5


def is_done(setting: tuple[str, int], rows: Rows) -> bool:
    """:return: Whether the table has the rows of all methods"""
    return has_rows(rows, ("task", "seed", "method"), [(*setting, method) for method in METHODS])


def calibration_errors(rows: pd.DataFrame, task: str, method: str) -> pd.Series:
    """:return: The expected calibration error of each seed"""
    return by_seed(rows, "ece", task=task, method=method)


def pooled(rows: pd.DataFrame, task: str, method: str) -> Reliability:
    """:return: The reliability over all seeds' predictions"""
    mine = rows[(rows["task"] == task) & (rows["method"] == method)]
    bins = np.minimum((mine["predicted"] * N_BINS).astype(int), N_BINS - 1)
    groups = [group for _, group in mine.groupby(bins)]
    means = [
        np.array([np.average(group[name], weights=group["count"]) for group in groups]) for name in ("predicted", "frequency")
    ]
    return Reliability(means[0], means[1], np.array([group["count"].sum() for group in groups]))


def table(rows: pd.DataFrame) -> list[str]:
    """:return: The table of the report"""
    lines = []
    for task, method in dict.fromkeys(zip(rows["task"], rows["method"], strict=True)):
        errors, all_seeds = calibration_errors(rows, task, method), pooled(rows, task, method)
        gap = np.abs(all_seeds.predicted - all_seeds.frequency).max()
        middle = all_seeds.n[(all_seeds.predicted > 0.1) & (all_seeds.predicted < 0.9)].sum() / all_seeds.n.sum()
        numbers = [len(errors), spread(errors, 4), f"{errors.max():.4f}", f"{gap:.2f}", f"{middle:.2f}"]
        lines.append([task, GAMMA[task], method, *numbers])
    header = ["task", "γ", "method", "seeds", "expected calibration error", "worst seed", "largest gap", "middle"]
    return markdown(header, lines)


def plot(rows: pd.DataFrame) -> Figure:
    """:return: The picture"""
    tasks = list(dict.fromkeys(rows["task"]))
    figure = Figure(figsize=(WIDTH, 3.6 * len(tasks)), layout="constrained")
    for axes, task in zip(np.atleast_1d(figure.subplots(len(tasks), 1)), tasks, strict=True):
        for method in dict.fromkeys(rows["method"][rows["task"] == task]):
            plot_reliability(axes, pooled(rows, task, method), f"{method.upper()}, all seeds")
        axes.set(title=f"{task}, γ = {GAMMA[task]}")
    return figure


TEXT = (
    "Expected calibration error over ten bins of predicted probability, against what happened at a random later time in "
    "held-out rollouts; mean ± standard deviation over seeds. *Largest gap*: of a bin, all seeds together. *Middle*: the "
    "share of predictions between 0.1 and 0.9."
)


def main(argv: list[str]) -> None:
    """Run the command."""
    command = SweepCommand("calibration", __doc__, "Are the probabilities right?", TEXT, seeds=3, quick_seeds=1)
    command.parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    options = command.parse(argv)
    settings = [(task, seed) for task in options.tasks for seed in range(options.seeds)]
    command.run(options, FIELDS, settings, is_done, partial(measure, quick=options.quick), table, plot)
