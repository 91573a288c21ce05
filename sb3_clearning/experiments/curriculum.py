"""
Does a curriculum of commanded goals help? CLearning with its defaults, and with goals from its own replay buffer.

``python -m sb3_clearning.experiments curriculum`` writes results/curriculum.csv and .md. Training seeds and evaluation
episodes are those of trials.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import torch as th
from scipy.spatial import cKDTree
from stable_baselines3.common.callbacks import BaseCallback

import sb3_clearning.envs  # noqa: F401
from sb3_clearning import CLearning
from sb3_clearning.common.evaluation import evaluate_goals
from sb3_clearning.envs import GoalSampler
from sb3_clearning.experiments.tables.rows import Rows, has_rows, markdown
from sb3_clearning.experiments.tables.sweep import SweepCommand

SEEDS, EVALUATION_SEED = (200, 201), 2_000_000
KINDS = ("none", "intermediate", "rare")
STEPS = {"PointUMaze-v0": 5_000, "PointMaze_Medium-v3": 20_000, "SawyerPush-v0": 40_000}
MAZE_ARGUMENTS = {"PointMaze_Medium-v3": {"continuing_task": True, "reset_target": False}}
#: As in the suite: Push is learned from contacts, which random actions find now and then.
ARGUMENTS: dict[str, dict[str, Any]] = {"SawyerPush-v0": {"learning_starts": 10_000}}
FIELDS = ("task", "kind", "seed", "steps", "success_half_way", "success", "final")


class Curriculum(BaseCallback):
    """
    Every 500 steps after the warm-up, command 100 achieved goals of 1000: those of intermediate odds from the visited states
    (between the quantiles 0.25 and 0.75 of their rank, the lower half), or the rarest ones by the distance to their tenth
    neighbor.
    """

    model: CLearning

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def _on_step(self) -> bool:
        if self.num_timesteps % 500 == 0 and self.num_timesteps >= self.model.learning_starts + 500:
            states = self.model.replay_buffer.float_states(1000)
            self.training_env.env_method("set_sampler", states["achieved_goal"][self._order(states)])
        return True

    def _order(self, states: dict[str, np.ndarray]) -> np.ndarray:
        goals = states["achieved_goal"]
        if self.kind == "rare":
            distances = cKDTree(goals).query(goals, k=11)[0][:, -1]
            return np.argsort(-distances)[:100]
        shuffled = np.random.default_rng(self.num_timesteps).permutation(len(goals))
        asked = {**{key: value[shuffled] for key, value in states.items()}, "desired_goal": goals}
        with th.no_grad():
            tensors = {key: th.as_tensor(value) for key, value in asked.items()}
            odds = self.model.critic(tensors, self.model.actor(tensors)).amin(dim=0).numpy()
        middle = np.argsort(odds)[len(odds) // 4 : len(odds) // 2]
        return middle[:: max(len(middle) // 100, 1)]


def measure(setting: tuple[str, str, int]) -> Iterator[dict[str, Any]]:
    """:return: The row of one run"""
    import gymnasium_robotics

    gym.register_envs(gymnasium_robotics)
    task, kind, seed = setting
    arguments, steps = MAZE_ARGUMENTS.get(task, {}), STEPS[task]
    model = CLearning("MultiInputPolicy", GoalSampler(gym.make(task, **arguments)), seed=seed, **ARGUMENTS.get(task, {}))
    found = []
    for _ in range(2):
        model.learn(steps // 2, callback=None if kind == "none" else Curriculum(kind), reset_num_timesteps=False)
        found.append(evaluate_goals(model, gym.make(task, **arguments), 30, EVALUATION_SEED))
    row = {"success_half_way": found[0]["success"], "success": found[1]["success"], "final": found[1]["final"]}
    row = {key: round(value, 4) for key, value in row.items()}
    yield {"task": task, "kind": kind, "seed": seed, "steps": steps, **row}


def is_done(setting: tuple[str, str, int], rows: Rows) -> bool:
    """:return: Whether the run is in the table"""
    return has_rows(rows, ("task", "kind", "seed"), [setting])


def table(rows: pd.DataFrame) -> list[str]:
    """:return: A line for each run"""
    header = ["task", "curriculum", "seed", "steps", "success half way", "success", "final distance"]
    return markdown(header, rows.sort_values(["task", "kind", "seed"])[list(FIELDS)].to_numpy().tolist())


TEXT = (
    "Commanded goals by the environment (`none`), or from the replay buffer's achieved goals: of intermediate odds by the "
    "classifier, or the least visited. Trial seeds; success over 30 evaluation episodes with the environment's own goals."
)


def main(argv: list[str]) -> None:
    """Run the command."""
    command = SweepCommand("curriculum", __doc__, "A curriculum of goals", TEXT, seeds=2)
    command.parser.add_argument("--tasks", nargs="+", default=list(STEPS), choices=list(STEPS))
    options: argparse.Namespace = command.parse(argv)
    settings = [(task, kind, seed) for task in options.tasks for seed in SEEDS for kind in KINDS]
    command.run(options, FIELDS, settings, is_done, measure, table)
