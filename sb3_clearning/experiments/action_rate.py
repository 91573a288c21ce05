"""
Does a penalty on the action's rate smooth the actions without costing success?

``python -m sb3_clearning.experiments action_rate`` writes results/action_rate.csv and .md. The actor's loss gets
coefficient * |pi(s, g) - pi(s', g)|^2, with s' one step after s and g the commanded goal. Trial seeds.
"""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd

import sb3_clearning.envs  # noqa: F401
from sb3_clearning import CLearning
from sb3_clearning.common.evaluation import evaluate_goals
from sb3_clearning.experiments.tables.rows import Rows, has_rows, markdown
from sb3_clearning.experiments.tables.sweep import SweepCommand

SEEDS, EVALUATION_SEED, EPISODES = (200, 201), 2_000_000, 30
COEFFICIENTS = (0.0, 0.1, 1.0)
STEPS = {"FetchReach-v4": 5_000, "SawyerDrawer-v0": 22_000, "SawyerWindow-v0": 22_000}
WARMUP = {"SawyerDrawer-v0": 10_000, "SawyerWindow-v0": 10_000}  # as in hyperparams/
FIELDS = ("task", "coefficient", "seed", "steps", "success", "final", "mean_change")


def mean_change(model: CLearning, env: gym.Env) -> float:
    """:return: The mean of |a_t - a_(t-1)| over coordinates, steps and episodes of the deterministic policy"""
    changes = []
    for seed in range(EVALUATION_SEED, EVALUATION_SEED + EPISODES):
        obs, _ = env.reset(seed=seed)
        last, over = None, False
        while not over:
            action, _ = model.predict(obs, deterministic=True)
            if last is not None:
                changes.append(np.abs(action - last).mean())
            last = action
            obs, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
    return float(np.mean(changes))


def measure(setting: tuple[str, float, int]) -> Iterator[dict[str, Any]]:
    """:return: The row of one run"""
    import gymnasium_robotics

    gym.register_envs(gymnasium_robotics)
    task, coefficient, seed = setting
    env = gym.make(task)
    warmup = WARMUP.get(task, 1_000)
    model = CLearning("MultiInputPolicy", env, learning_starts=warmup, action_rate_penalty=coefficient, seed=seed)
    model.learn(STEPS[task])
    found = evaluate_goals(model, env, EPISODES, EVALUATION_SEED)
    numbers = {"success": found["success"], "final": found["final"], "mean_change": mean_change(model, env)}
    row = {"task": task, "coefficient": coefficient, "seed": seed, "steps": STEPS[task]}
    yield {**row, **{key: round(value, 4) for key, value in numbers.items()}}


def is_done(setting: tuple[str, float, int], rows: Rows) -> bool:
    """:return: Whether the run is in the table"""
    return has_rows(rows, ("task", "coefficient", "seed"), [setting])


def table(rows: pd.DataFrame) -> list[str]:
    """:return: A line for each run"""
    header = ["task", "coefficient", "seed", "steps", "success", "final distance", "mean change of actions"]
    return markdown(header, rows.sort_values(["task", "coefficient", "seed"])[list(FIELDS)].to_numpy().tolist())


TEXT = (
    "The penalty `coefficient * |pi(s, g) - pi(s', g)|^2` in the actor's loss. Success and the mean change of an action from "
    "step to step, over 30 evaluation episodes of the deterministic policy. Trial seeds."
)


def main(argv: list[str]) -> None:
    """Run the command."""
    command = SweepCommand("action_rate", __doc__, "A penalty on the action's rate", TEXT, seeds=2)
    command.parser.add_argument("--tasks", nargs="+", default=list(STEPS), choices=list(STEPS))
    options = command.parse(argv)
    settings = [(task, value, seed) for task in options.tasks for seed in SEEDS for value in COEFFICIENTS]
    command.run(options, FIELDS, settings, is_done, measure, table)
