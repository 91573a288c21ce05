"""
Learning from data alone: mazes walked by a noisy controller, Sawyer's drawer and window moved by metaworld's controllers in
half of the episodes, and random actions of FetchReach.

``python -m sb3_clearning.experiments offline`` writes results/offline.csv and results/offline.md. The data is made from
the run's seed. "navigate" are long walks, "stitch" short trips that have to be put together. On two of the tasks the method
"clearning" continues online.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import torch as th

from sb3_clearning import CLearning, evaluate_goals
from sb3_clearning.clearning.updater import ClassifierUpdater
from sb3_clearning.common.collect import collect
from sb3_clearning.common.evaluation import N_ENVS_OF_TABLES
from sb3_clearning.experiments.offline_data import make_maze, make_robotics, make_sawyer, maze_data, sawyer_data
from sb3_clearning.experiments.tables.rows import Rows, markdown, spread, write_report
from sb3_clearning.experiments.tables.sweep import RESULTS, command_line, sweep
from sb3_clearning.replay.batch import GoalBatch
from sb3_clearning.replay.experience import Experience

#: The gradient steps of offline learning.
N_UPDATES = 10_000
#: Where learning continues online: for how many steps, and the steps between two evaluations.
ONLINE_STEPS, ONLINE_EVERY = 10_000, 1_000
#: Of advantage-weighted regression.
TEMPERATURE, LARGEST_WEIGHT = 1 / 3, 100.0
MEASURED = ("success", "success_any_time", "initial", "final", "minimum")
FIELDS = ("task", "method", "seed", "updates", "online_steps", *MEASURED)


class _CloningUpdater(ClassifierUpdater):
    def update_critic(self, batch: GoalBatch) -> None:
        """No classifier is needed."""

    def update_actor(self, batch: GoalBatch) -> None:
        actions, _ = self.model.policy.actions_and_pre_tanh(batch.observations)
        self.descend_actor(self.cloning_loss(batch, actions))


class GoalConditionedCloning(CLearning):
    """Behavior cloning alone: the data's action for a goal that it reached later."""

    updater_class = _CloningUpdater

    def relabelling(self) -> dict[str, float]:
        """:return: For each kind of goal its share of a batch"""
        return {"future": 1.0}


class _AdvantageWeightedUpdater(ClassifierUpdater):
    def update_actor(self, batch: GoalBatch) -> None:
        """Clone the data's actions, those most that the classifiers prefer to the actor's."""
        actions, _ = self.model.policy.actions_and_pre_tanh(batch.observations)
        with th.no_grad():
            ratios = [self.model.critic(batch.observations, one).amin(dim=0) for one in (batch.actions, actions)]
            weights = ((ratios[0] - ratios[1]) / TEMPERATURE).exp().clamp(max=LARGEST_WEIGHT)
        self.descend_actor((weights * (actions - batch.actions).square().mean(dim=1)).mean())


class AdvantageWeighted(CLearning):
    """
    Advantage-weighted regression: cloning with the weights :math:`e^{A/T}`, where A is the log ratio of the data's action
    less that of the actor's.
    """

    updater_class = _AdvantageWeightedUpdater


class Task(NamedTuple):
    """
    A dataset and the environment to evaluate in.

    :param data: Makes the dataset from a seed
    :param arguments: Arguments of every method
    :param success: What counts: at any time in the mazes, as in OGBench, where success ends the episode; else at the end
    :param online: Whether learning continues online
    """

    data: Callable[[int], Experience]
    make_env: Callable[[], gym.Env]
    arguments: dict[str, Any]
    seeds: int = 3
    success: str = "success"
    online: bool = False


def _maze_task(size: str, kind: str, n_steps: int, gamma: float, max_steps: int, online: bool = False) -> Task:
    make_env = partial(make_maze, size, reset_target=False, max_episode_steps=max_steps)
    return Task(lambda seed: maze_data(size, kind, n_steps, seed), make_env, {"gamma": gamma}, 5, "success_any_time", online)


def _sawyer_task(task: str, n_steps: int) -> Task:
    return Task(lambda seed: sawyer_data(task, n_steps, seed), partial(make_sawyer, task), {"gamma": 0.99})


TASKS = {
    "umaze-navigate": _maze_task("UMaze", "navigate", 50_000, 0.99, 300, online=True),
    "umaze-stitch": _maze_task("UMaze", "stitch", 50_000, 0.99, 300),
    "medium-navigate": _maze_task("Medium", "navigate", 100_000, 0.99, 600),
    "medium-stitch": _maze_task("Medium", "stitch", 100_000, 0.99, 600),
    "large-navigate": _maze_task("Large", "navigate", 200_000, 0.995, 1000),
    "large-stitch": _maze_task("Large", "stitch", 200_000, 0.995, 1000),
    "drawer-mixed": _sawyer_task("Drawer", 60_000),
    "window-mixed": _sawyer_task("Window", 60_000),
    "fetch-reach-random": Task(
        lambda seed: collect("random", make_robotics("FetchReach-v4"), 10_000, seed=seed),
        partial(make_robotics, "FetchReach-v4"),
        {"gamma": 0.95},
        online=True,
    ),
}
METHODS: dict[str, tuple[type[CLearning], dict[str, Any]]] = {
    "clearning": (CLearning, {}),
    "without cloning": (CLearning, {"bc_coef": 0.0}),
    "cloning alone": (GoalConditionedCloning, {}),
    "advantage-weighted": (AdvantageWeighted, {}),
    "Monte Carlo": (CLearning, {"lambda_": 0.0}),
    "one step": (CLearning, {"n_steps": 1, "lambda_": 1.0}),
}


class Run(NamedTuple):
    """A cell of the table and its seed, of the data and of training."""

    task: str
    method: str
    seed: int


def _goes_online(run: Run) -> bool:
    return TASKS[run.task].online and run.method == "clearning"


def is_done(run: Run, rows: Rows) -> bool:
    """:return: Whether the table has the run's last row"""
    last = (str(N_UPDATES), str(ONLINE_STEPS if _goes_online(run) else 0))
    wanted = (run.task, run.method, str(run.seed), *last)
    return any(tuple(row[name] for name in FIELDS[:5]) == wanted for row in rows)


@lru_cache(maxsize=1)  # the methods of a task come one after the other
def _data(task: str, seed: int) -> Experience:
    return TASKS[task].data(seed)


def work(run: Run) -> Iterable[dict[str, Any]]:
    """:return: The run's rows"""
    task, (algorithm, arguments) = TASKS[run.task], METHODS[run.method]
    data = _data(run.task, run.seed)
    model = algorithm.from_spaces(
        data.observation_space,
        data.action_space,
        buffer_size=len(data) + (ONLINE_STEPS if _goes_online(run) else 0),
        seed=run.seed,
        device="cpu",
        **{**task.arguments, **arguments},
    )
    model.replay_buffer.load_dataset(data)

    def evaluated(online_steps: int) -> dict[str, Any]:
        measured = evaluate_goals(model, task.make_env, n_envs=N_ENVS_OF_TABLES)
        found = {key: round(measured[key], 5) for key in MEASURED}
        return {**run._asdict(), "updates": N_UPDATES, "online_steps": online_steps, **found}

    model.learn_offline(N_UPDATES)
    yield evaluated(0)
    if _goes_online(run):
        model.set_env(task.make_env())
        rows: list[dict[str, Any]] = []

        def evaluate_online(local: dict[str, Any], _: dict[str, Any]) -> bool:
            if model.num_timesteps % ONLINE_EVERY == 0:
                rows.append(evaluated(model.num_timesteps))
            return True

        model.learn(ONLINE_STEPS, callback=evaluate_online)
        yield from rows


def _success(rows: Rows, task: str, method: str, online_steps: int = 0, measure: str | None = None) -> list[float]:
    """:return: The success of each seed after offline learning and, if any, steps online; ``measure`` None: what counts"""
    wanted = (task, method, str(N_UPDATES), str(online_steps))
    names = ("task", "method", "updates", "online_steps")
    return [float(row[measure or TASKS[task].success]) for row in rows if tuple(row[name] for name in names) == wanted]


def table(rows: Rows, other: bool = False) -> list[str]:
    """
    :param other: Whether to show the measure of success that does not count: at the end in the mazes, else at any time
    :return: Success after offline learning, in Markdown: a row per task, a column per method
    """
    lines = []
    for task in TASKS:
        measure = next(name for name in MEASURED[:2] if (name != TASKS[task].success) == other)
        found = [_success(rows, task, method, measure=measure) for method in METHODS]
        lines.append([task, *(f"{spread(values, 2)} ({len(values)})" if values else "missing" for values in found)])
    return markdown(["data", *METHODS], lines)


def online_table(rows: Rows) -> list[str]:
    """:return: What becomes of the offline success online, in Markdown: a row per task and seed"""
    lines = []
    for task in (name for name, task in TASKS.items() if task.online):
        for seed in dict.fromkeys(row["seed"] for row in rows if row["task"] == task):
            own = [row for row in rows if row["seed"] == seed]
            curve = [_success(own, task, "clearning", steps) for steps in range(0, ONLINE_STEPS + 1, ONLINE_EVERY)]
            if all(curve):
                offline, *online = (values[0] for values in curve)
                share = f"{min(online) / offline:.2f}" if offline else "-"
                lines.append([task, seed, f"{offline:.2f}", f"{min(online):.2f}", share, f"{online[-1]:.2f}"])
    return markdown(["data", "seed", "offline", "lowest online", "of its offline level", "at the end"], lines)


def main(argv: Sequence[str]) -> None:
    """Run the command."""
    parser = command_line("offline", __doc__)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=int, help="number of seeds, of data and training (default: five in mazes, else three)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where offline.csv and offline.md are written")
    options = parser.parse_args(argv)
    seeds = {task: options.seeds or TASKS[task].seeds for task in options.tasks}
    runs = [
        Run(task, method, seed)
        for seed in range(max(seeds.values()))
        for task in options.tasks
        for method in options.methods
        if seed < seeds[task]
    ]
    path = options.output / "offline.csv"
    rows = sweep(path, FIELDS, runs, is_done, work, options.jobs)
    text = (
        "Made by `python -m sb3_clearning.experiments offline`. Success within 50 evaluation episodes after "
        f"{N_UPDATES:,} updates: at any time in the mazes, else at the end. Mean ± standard deviation over seeds of "
        f"data and training, with their number. Then {ONLINE_STEPS:,} steps online, evaluated every {ONLINE_EVERY:,}."
    )
    other = ["## The other measure", "", "Success at the end in the mazes, else at any time.", "", *table(rows, other=True)]
    lines = ["", *table(rows), "", *other, "", "## Offline, then online", "", *online_table(rows)]
    write_report(path.with_suffix(".md"), "Learning from data alone", text, lines, rows)
    print(path.with_suffix(".md").read_text())
