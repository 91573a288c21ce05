"""
Why episodes of SawyerWindow-v0 fail: in how many the window is held at its goal until the hand slips past the handle.

``python -m sb3_clearning.experiments window --suite FOLDER`` writes a row of results/window.csv for each of the suite's
finished runs of CLearning on this task.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from sb3_clearning import CLearning
from sb3_clearning.checks import UsageError
from sb3_clearning.common.evaluation import EVALUATION_SEED
from sb3_clearning.experiments.suite.config import make_env
from sb3_clearning.experiments.suite.run_folder import CHECKPOINTS, finished_runs
from sb3_clearning.experiments.tables.provenance import commit, versions
from sb3_clearning.experiments.tables.rows import write_rows
from sb3_clearning.experiments.tables.sweep import RESULTS, command_line

TASK = "SawyerWindow-v0"
FIELDS = ("seed", "step", "episodes", "failed", "slips", "held", "ahead", "versions", "commit")
#: A window that stays at its goal for so many steps is held there.
HELD = 20
#: After the last of these steps the hand comes out behind the handle within so many.
SUDDEN = 10


class Episode(NamedTuple):
    """
    What happened in an episode, at each step.

    :param distances: From the handle to its goal, ``(steps,)``
    :param in_front: Whether the hand is on the arm's side of the handle, ``(steps,)``
    :param ahead: From the hand to the point that the simulator draws it to, ``(steps,)``
    """

    distances: np.ndarray
    in_front: np.ndarray
    ahead: np.ndarray


def slip(episode: Episode, threshold: float) -> int | None:
    """
    :return: The last step of the last time that the window was held at its goal with the hand in front of the handle, if the
        hand then came out behind it; else None
    """
    held = np.concatenate([[False], (episode.distances <= threshold) & episode.in_front, [False]])
    starts, ends = np.flatnonzero(~held[:-1] & held[1:]), np.flatnonzero(held[:-1] & ~held[1:])
    long = np.flatnonzero(ends - starts >= HELD)
    if not len(long):
        return None
    end = int(ends[long[-1]])
    return end - 1 if not episode.in_front[end : end + SUDDEN].all() else None


def play(model: CLearning, env: gym.Env, seed: int) -> Episode:
    """:return: An episode of the deterministic policy"""
    task: Any = env.unwrapped
    obs, _ = env.reset(seed=seed)
    steps, ended = [], False
    while not ended:
        obs, _, terminated, truncated, info = env.step(model.predict(obs, deterministic=True)[0])
        ended = terminated or truncated
        hand, handle = obs["observation"][:3], obs["observation"][3:]
        # The hand reaches for the window along y, which slides along x.
        steps.append((info["distance"], hand[1] < handle[1], np.linalg.norm(task.data.mocap_pos[0] - hand)))
    distances, in_front, ahead = zip(*steps, strict=True)
    return Episode(np.array(distances), np.array(in_front), np.array(ahead))


def measure(model: CLearning, env: gym.Env, episodes: int) -> dict[str, Any]:
    """:return: How many episodes fail, how many of these slip, and medians over those: steps held, and how far ahead"""
    threshold = env.unwrapped.distance_threshold  # type: ignore[attr-defined]
    played = [play(model, env, EVALUATION_SEED + index) for index in range(episodes)]
    failed = [episode for episode in played if episode.distances[-1] > threshold]
    slips = [(episode, at) for episode in failed if (at := slip(episode, threshold)) is not None]
    held = [int(np.sum((episode.distances <= threshold) & episode.in_front)) for episode, _ in slips]
    ahead = [float(episode.ahead[at]) for episode, at in slips]
    medians = {"held": round(float(np.median(held))), "ahead": round(float(np.median(ahead)), 3)} if slips else {}
    return {"episodes": episodes, "failed": len(failed), "slips": len(slips), "held": "", "ahead": "", **medians}


def main(argv: Sequence[str]) -> None:
    """Run the command."""
    parser = command_line("window", __doc__)
    parser.add_argument("--suite", type=Path, required=True, help="the suite's output folder")
    parser.add_argument("--episodes", type=int, default=50, help="evaluation episodes of each run")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where window.csv is written")
    options = parser.parse_args(argv)
    rows = []
    for folder, run, _ in finished_runs(options.suite, f"{TASK}/clearning/seed_*"):
        env = make_env(run)
        model = CLearning.resume(folder / CHECKPOINTS, env, device="cpu")
        constants = {"versions": versions(), "commit": commit()}
        rows.append({"seed": run.seed, "step": run.steps, **measure(model, env, options.episodes), **constants})
        print({name: rows[-1][name] for name in FIELDS[:-2]}, flush=True)
    if not rows:
        raise UsageError(f"{options.suite} has no finished run of clearning on {TASK}: `suite --tasks {TASK}` makes them.")
    write_rows(options.output / "window.csv", rows, FIELDS)
