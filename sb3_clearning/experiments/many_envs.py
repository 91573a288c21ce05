"""
How many updates for how much data? CLearning with 1 to 64 environments, and with 1, 1/4 and 1/16 updates per transition.

``python -m sb3_clearning.experiments many_envs`` writes results/many_envs.csv (a row per evaluation; those of a run come when
it is complete) and .md. A run takes one to five minutes of one core: the budgets are such that all ratios take about as long.
Training seeds and evaluation episodes are those of trials.
"""

import time
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import pandas as pd
from stable_baselines3.common.env_util import make_vec_env

import sb3_clearning.envs  # noqa: F401
from sb3_clearning import CLearning
from sb3_clearning.common.evaluation import N_ENVS_OF_TABLES, evaluate_goals
from sb3_clearning.experiments.tables.rows import Rows, has_rows, markdown
from sb3_clearning.experiments.tables.sweep import SweepCommand

FIRST_SEED, EVALUATION_SEED, EPISODES, EVALUATIONS = 200, 2_000_000, 30, 8
N_ENVS = (1, 4, 16, 64)
#: Transitions of a run by its updates per transition. All are multiples of ``64 * EVALUATIONS``.
MAZE_BUDGET = {"1": 10_240, "1/4": 35_840, "1/16": 89_600}
SAWYER_BUDGET = {"1": 30_720, "1/4": 102_400, "1/16": 256_000}
BUDGETS = {"PointUMaze-v0": MAZE_BUDGET, "SawyerDrawer-v0": SAWYER_BUDGET, "SawyerWindow-v0": SAWYER_BUDGET}
#: The warm-ups of the suite.
LEARNING_STARTS = {"PointUMaze-v0": 1_000, "SawyerDrawer-v0": 10_000, "SawyerWindow-v0": 10_000}
REACHED = 0.8
FIELDS = ("task", "n_envs", "ratio", "seed", "transitions", "updates", "train_cpu_minutes", "success", "final")
QUICK_BUDGET = 1_024


class Cell(NamedTuple):
    """A run: updates per transition as a fraction, and the number of transitions."""

    task: str
    n_envs: int
    ratio: str
    seed: int
    budget: int


def update_arguments(n_envs: int, ratio: str) -> dict[str, Any]:
    """:return: ``train_freq`` and ``gradient_steps`` with so many updates per transition"""
    updates = n_envs * Fraction(ratio)  # after a step of all environments
    return {"train_freq": updates.denominator, "gradient_steps": updates.numerator}


def measure(cell: Cell) -> Iterator[dict[str, Any]]:
    """:return: The rows of one run, one for each evaluation"""
    start = min(LEARNING_STARTS[cell.task], cell.budget // 4)
    model = CLearning(
        "MultiInputPolicy",
        make_vec_env(cell.task, cell.n_envs, cell.seed),
        learning_starts=start,
        seed=cell.seed,
        device="cpu",
        **update_arguments(cell.n_envs, cell.ratio),
    )
    spent = 0.0
    for _ in range(EVALUATIONS):
        before = time.process_time()
        model.learn(cell.budget // EVALUATIONS, reset_num_timesteps=False)
        spent += time.process_time() - before
        found = evaluate_goals(model, partial(gym.make, cell.task), EPISODES, EVALUATION_SEED, N_ENVS_OF_TABLES)
        transitions, updates = model.progress
        yield {
            **{"task": cell.task, "n_envs": cell.n_envs, "ratio": cell.ratio, "seed": cell.seed},
            **{"transitions": transitions, "updates": updates, "train_cpu_minutes": round(spent / 60, 3)},
            **{key: round(found[key], 4) for key in ("success", "final")},
        }


def is_done(cell: Cell, rows: Rows) -> bool:
    """:return: Whether the run is in the table"""
    return has_rows(rows, ("task", "n_envs", "ratio", "seed", "transitions"), [cell])


def summary(runs: pd.DataFrame) -> str:
    """:return: Success at the end, and minutes and transitions until ``REACHED``, means over seeds; a dash without runs"""
    if runs.empty:
        return "–"
    ends, firsts = [], []
    for _, run in runs.groupby("seed"):
        run = run.drop_duplicates("transitions", keep="last").sort_values("transitions")
        ends.append(run["success"].iloc[-1])
        firsts.append(run[run["success"] >= REACHED].head(1))
    text, reached = f"{sum(ends) / len(ends):.2f}", pd.concat(firsts)
    if reached.empty:
        return f"{text}: –"
    share = f" ({len(reached)} of {len(ends)})" if len(reached) < len(ends) else ""
    return f"{text}: {reached['train_cpu_minutes'].mean():.1f} min, {reached['transitions'].mean() / 1000:.0f}k{share}"


def table(rows: pd.DataFrame) -> list[str]:
    """
    :return: A line for each task and ratio, a column for each number of environments; a dash for runs that are missing, and
        one line for a task without any
    """
    lines = []
    for task, budget in BUDGETS.items():
        if not (rows["task"] == task).any():
            lines.append([f"`{task}`", "all", "not measured yet", *[""] * (len(N_ENVS) - 1)])
            continue
        for ratio in budget:
            own = rows[(rows["task"] == task) & (rows["ratio"].astype(str) == ratio)]
            lines.append([f"`{task}`", ratio, *(summary(own[own["n_envs"] == n]) for n in N_ENVS)])
    environments = [f"{n} environment{'s' if n > 1 else ''}" for n in N_ENVS]
    return markdown(["task", "updates per transition", *environments], lines)


def run_times(rows: pd.DataFrame) -> list[str]:
    """:return: Minutes of one core that a run took with training and evaluations, and transitions, by task and ratio"""
    ends = rows.sort_values("transitions").drop_duplicates(["task", "n_envs", "ratio", "seed"], keep="last")
    lines = []
    for (task, ratio), own in ends.groupby(["task", "ratio"], sort=False):
        minutes = own["cpu_seconds"] / 60
        lines.append([f"`{task}`", ratio, f"{own['transitions'].max():,}", f"{minutes.min():.1f} to {minutes.max():.1f}"])
    return ["", *markdown(["task", "updates per transition", "transitions", "minutes of one core"], lines)]


TEXT = (
    f"Success at the end of a run, then the first evaluation with at least {REACHED:.0%} success: minutes of one core for "
    f"training until then, and transitions in thousands. {EVALUATIONS} evaluations of {EPISODES} episodes in each run; trial "
    f"seeds from {FIRST_SEED} on. A dash alone: not run; after the colon: not reached."
)


def main(argv: list[str]) -> None:
    """Run the command."""
    command = SweepCommand("many_envs", __doc__, "Updates and data", TEXT, seeds=1, quick_seeds=1)
    command.parser.add_argument("--tasks", nargs="+", default=list(BUDGETS), choices=list(BUDGETS))
    command.parser.add_argument("--ratios", nargs="+", default=list(MAZE_BUDGET), choices=list(MAZE_BUDGET))
    options = command.parse(argv)
    cells = [
        Cell(task, n_envs, ratio, FIRST_SEED + seed, QUICK_BUDGET if options.quick else BUDGETS[task][ratio])
        for seed in range(options.seeds)
        for task in options.tasks
        for ratio in options.ratios
        for n_envs in N_ENVS
    ]

    def tables(rows: pd.DataFrame) -> list[str]:
        return [*table(rows), *run_times(rows)]

    command.run(options, FIELDS, cells, is_done, measure, tables)
