"""
Do false final observations harm learning? The batched maze behind a vectorized environment that hands over, in the ways of
three simulators, the first observation of the next episode as the final one.

``python -m sb3_clearning.experiments false_ends`` writes results/false_ends.csv and .md. Training seeds and evaluation
episodes are those of trials.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn, VecEnvWrapper

from sb3_clearning import CLearning
from sb3_clearning.common.evaluation import evaluate_goals
from sb3_clearning.envs import BatchedPointMaze
from sb3_clearning.experiments.tables.rows import Rows, has_rows, markdown, spread
from sb3_clearning.experiments.tables.sweep import SweepCommand

FIRST_SEED, EVALUATION_SEED, EPISODES = 200, 2_000_000, 200
N_ENVS, GRADIENT_STEPS, STEPS, QUICK_STEPS = 16, 8, 500, 2
FIELDS = ("way", "seed", "updates", "transitions", "success", "final")
#: What stands in ``terminal_observation``.
WAYS = {
    "truthful": "the final observation",
    "reset": "a copy of the next episode's first",
    "view": "a view of the array with the new observations",
    "lost": "nothing",
    "undetected": "the next episode's first, changed by 0.00001 so that it is not found",
}


class FalseEnds(VecEnvWrapper):
    """
    A vectorized environment whose final observations are false.

    :param way: One of ``WAYS``
    """

    def __init__(self, venv: BatchedPointMaze, way: str):
        super().__init__(venv)
        self.way = way

    def reset(self) -> VecEnvObs:
        """:return: The first observations"""
        return self.venv.reset()

    def step_wait(self) -> VecEnvStepReturn:
        """:return: The environment's step, with other final observations"""
        obs, rewards, dones, infos = self.venv.step_wait()
        assert isinstance(obs, dict)
        for env in np.flatnonzero(dones).tolist():
            true = infos[env].pop("terminal_observation")
            first = {key: value[env] for key, value in obs.items()}
            if self.way == "truthful":
                final = true
            elif self.way == "view":
                final = first
            elif self.way == "reset":
                final = {key: value.copy() for key, value in first.items()}
            elif self.way == "undetected":
                final = {key: value + np.float32(1e-5) for key, value in first.items()}
                final["desired_goal"] = true["desired_goal"]
            else:
                continue
            infos[env]["terminal_observation"] = final
        return obs, rewards, dones, infos


def measure(setting: tuple[str, int, int]) -> Iterator[dict[str, Any]]:
    """
    :param setting: The way, the seed, and the number of steps of all environments after the warm-up
    :return: The row of one run
    """
    way, seed, steps = setting
    warm_up = BatchedPointMaze.episode_length * N_ENVS
    model = CLearning(
        "MultiInputPolicy",
        FalseEnds(BatchedPointMaze(N_ENVS), way),
        buffer_size=100_000,
        learning_starts=warm_up,
        gradient_steps=GRADIENT_STEPS,
        seed=seed,
        device="cpu",
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The final observation of an episode is missing")
        model.learn(warm_up + steps * N_ENVS)
    found = evaluate_goals(model, BatchedPointMaze(EPISODES), EPISODES, EVALUATION_SEED)
    transitions, updates = model.progress
    scores = {key: round(found[key], 4) for key in ("success", "final")}
    yield {"way": way, "seed": seed, "updates": updates, "transitions": transitions, **scores}


def is_done(setting: tuple[str, int, int], rows: Rows) -> bool:
    """:return: Whether the run is in the table"""
    return has_rows(rows, ("way", "seed"), [setting[:2]])


def table(rows: pd.DataFrame) -> list[str]:
    """:return: A line for each way: every seed's success, and the mean"""
    lines = []
    for way, text in WAYS.items():
        own = rows[rows["way"] == way].drop_duplicates("seed", keep="last").sort_values("seed")
        if len(own):
            seeds = ", ".join(f"{value:.3f}" for value in own["success"])
            lines.append([text, seeds, spread(own["success"], 3), spread(own["final"], 2)])
    return markdown(["final observation", "success of each seed", "mean", "final distance"], lines)


TEXT = (
    f"CLearning on `BatchedPointMaze({N_ENVS})`, {GRADIENT_STEPS} updates after each of {STEPS} steps of all environments. "
    f"Success over {EPISODES} evaluation episodes; trial seeds from {FIRST_SEED} on. Mean ± standard deviation over seeds."
)


def main(argv: list[str]) -> None:
    """Run the command."""
    command = SweepCommand("false_ends", __doc__, "False final observations", TEXT, seeds=5, quick_seeds=1)
    options = command.parse(argv)
    steps = QUICK_STEPS if options.quick else STEPS
    settings = [(way, FIRST_SEED + seed, steps) for seed in range(options.seeds) for way in WAYS]
    command.run(options, FIELDS, settings, is_done, measure, table)
