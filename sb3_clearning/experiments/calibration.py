"""
Do predicted probabilities agree with what happens? Events (regions of the world) are predicted for states of held-out
rollouts, and looked up at a random later time of the rollout. On the gridworld, and on the U-maze with a trained agent's
rollouts.

``python -m sb3_clearning.experiments calibration`` writes results/calibration.csv, .md and .png.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sb3_clearning.envs.gridworld import cell_of
from sb3_clearning.experiments.gridworld_data import cell_number, make_seed
from sb3_clearning.experiments.tables.rows import Rows, spread, write_report
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


class Task(NamedTuple):
    """
    Data to learn from and to test on.

    :param train: What is learned from
    :param test: Held-out rollouts of the same policy
    :param policy: The policy; None: the data's own
    :param events: Regions, as functions of goals
    """

    train: Experience
    test: Experience
    policy: Any
    events: list[Callable[[np.ndarray], np.ndarray]]


def gridworld_task(seed: int, quick: bool) -> Task:
    """:return: Rollouts of a random tabular policy; the events are the rows, columns, halves and some blocks of the world"""
    train, test = (make_seed(seed, False, n_trajectories=n) for n in (100, 400))

    def experience(data: Any, skip: int) -> Experience:
        arrays = {"observations": data.observations, "actions": data.actions, "next_observations": data.next_observations,
                  "truncations": data.ends}  # fmt: skip
        return read_dataset({key: value[skip:] for key, value in arrays.items()})

    def within(low: tuple[int, int], high: tuple[int, int]) -> Callable[[np.ndarray], np.ndarray]:
        return lambda goals: np.asarray(((cell_of(goals) >= low) & (cell_of(goals) <= high)).all(axis=1))

    regions = [((i, 0), (i, 4)) for i in range(5)] + [((0, j), (4, j)) for j in range(5)]
    regions += [((0, 0), (4, 1)), ((0, 2), (4, 4)), ((0, 0), (1, 4)), ((2, 0), (4, 4)), ((1, 1), (3, 3)), ((0, 0), (2, 2))]
    # Both data sets are draws of the same policy.
    policy = TablePolicy(train.evaluated, cell_number)
    return Task(experience(train, 0), experience(test, 0), policy, [within(low, high) for low, high in regions])


def maze_rollouts(model: Any, n_episodes: int, seed: int, n_envs: int = 10) -> Experience:
    """:return: Rollouts of a trained agent, with exploration noise of 0.2 on every action"""
    import gymnasium as gym

    rng = np.random.default_rng(seed)
    envs = [gym.make("sb3_clearning.envs:PointUMaze-v0") for _ in range(n_envs)]
    columns: list[list[Any]] = [[], [], [], []]
    for first in range(0, n_episodes, n_envs):
        observations = [env.reset(seed=seed + first + index)[0] for index, env in enumerate(envs)]
        paths: list[list[Any]] = [[] for _ in envs]
        for _ in range(300):
            batch = {key: np.stack([obs[key] for obs in observations]) for key in observations[0]}
            actions = np.clip(model.predict(batch, deterministic=True)[0] + rng.normal(0, 0.2, (n_envs, 2)), -1, 1)
            steps = [env.step(action.astype(np.float32)) for env, action in zip(envs, actions, strict=True)]
            for path, obs, action, step in zip(paths, observations, actions, steps, strict=True):
                path.append((obs, action, step[0]))
            observations = [step[0] for step in steps]
        for path in paths:
            for t, (obs, action, following) in enumerate(path):
                for column, value in zip(columns, (obs, action, following, t == len(path) - 1), strict=True):
                    column.append(value)
    for env in envs:
        env.close()
    states, following = (
        {key: np.stack([obs[key] for obs in column]) for key in column[0]} for column in (columns[0], columns[2])
    )
    arrays = {"observations": states, "actions": np.array(columns[1], dtype=np.float32), "next_observations": following,
              "truncations": np.array(columns[3])}  # fmt: skip
    return read_dataset(arrays)


def maze_task(seed: int, quick: bool) -> Task:
    """
    :param quick: Whether the agent is barely trained and the data small
    :return: Rollouts of an agent that is trained for a few thousand steps; the events are parts of the maze
    """
    import gymnasium as gym

    import sb3_clearning.envs  # noqa: F401 (registers the maze)
    from sb3_clearning import CLearning

    env = gym.make("sb3_clearning.envs:PointUMaze-v0")
    model = CLearning("MultiInputPolicy", env, seed=seed, device="cpu").learn(1100 if quick else 5000)
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
    found = {row["method"] for row in rows if (row["task"], row["seed"]) == tuple(map(str, setting))}
    return found >= set(METHODS)


def calibration_errors(rows: Rows, task: str, method: str) -> list[float]:
    """:return: The expected calibration error of each seed"""
    found = {row["seed"]: float(row["ece"]) for row in rows if (row["task"], row["method"]) == (task, method)}
    return list(found.values())


def pooled(rows: Rows, task: str, method: str) -> Reliability:
    """:return: The reliability over all seeds' predictions"""
    mine = [row for row in rows if (row["task"], row["method"]) == (task, method)]
    predicted, frequency, count = (np.array([float(row[key]) for row in mine]) for key in ("predicted", "frequency", "count"))
    bins = np.minimum((predicted * N_BINS).astype(int), N_BINS - 1)
    kept = np.unique(bins)
    means = [np.array([np.average(values[bins == number], weights=count[bins == number]) for number in kept])
             for values in (predicted, frequency)]  # fmt: skip
    return Reliability(means[0], means[1], np.array([count[bins == number].sum() for number in kept]))


def write_table(rows: Rows, path: Path) -> None:
    """Write the Markdown report."""
    text = (
        "Made by `python -m sb3_clearning.experiments calibration`. Expected calibration error over ten bins of predicted "
        "probability, against what happened at a random later time in held-out rollouts; mean ± standard deviation over "
        "seeds. *Largest gap*: of a bin, all seeds together. *Middle*: the share of predictions between 0.1 and 0.9."
    )
    lines = [
        "",
        "| task | γ | method | seeds | expected calibration error | worst seed | largest gap | middle |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task, method in dict.fromkeys((row["task"], row["method"]) for row in rows):
        errors = calibration_errors(rows, task, method)
        all_seeds = pooled(rows, task, method)
        gap = np.abs(all_seeds.predicted - all_seeds.frequency).max()
        middle = all_seeds.n[(all_seeds.predicted > 0.1) & (all_seeds.predicted < 0.9)].sum() / all_seeds.n.sum()
        lines.append(
            f"| {task} | {GAMMA[task]} | {method} | {len(errors)} | {spread(errors, 4)} | {max(errors):.4f} | {gap:.2f} | "
            f"{middle:.2f} |"
        )
    write_report(path, "Are the probabilities right?", text, lines, rows)


def plot(rows: Rows, path: Path) -> None:
    """Draw the picture."""
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys(row["task"] for row in rows))
    figure = Figure(figsize=(4.5 * len(tasks), 4.2), layout="constrained")
    for axes, task in zip(np.atleast_1d(figure.subplots(1, len(tasks))), tasks, strict=True):
        for method in dict.fromkeys(row["method"] for row in rows if row["task"] == task):
            plot_reliability(axes, pooled(rows, task, method), f"{method.upper()}, all seeds")
        axes.set(title=f"{task}, γ = {GAMMA[task]}")
    figure.savefig(path, dpi=130)


def main(argv: list[str]) -> None:
    """Run the command."""
    command = SweepCommand("calibration", __doc__, seeds=3, quick_seeds=1)
    command.parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    options = command.parse(argv)
    settings = [(task, seed) for task in options.tasks for seed in range(options.seeds)]
    command.run(options, FIELDS, settings, is_done, partial(measure, quick=options.quick), write_table, plot)
