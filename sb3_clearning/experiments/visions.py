"""
What the expected future looks like: rendered states, averaged with the classifier's ratios as weights, at several gammas (the
paper's figures "predictions-rollout" and "predictions-appendix"). TD C-learning on states with the global position.

Needs what ``locomotion_data`` has collected, and MuJoCo's off-screen rendering (``MUJOCO_GL=egl``).

``python -m sb3_clearning.experiments visions`` writes results/visions_TASK.png.
"""

from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from matplotlib.figure import Figure

from sb3_clearning.experiments.locomotion_data import DATA, TASKS, data_to_read, make_env
from sb3_clearning.experiments.tables.sweep import RESULTS, command_line
from sb3_clearning.prediction.estimator import FutureStateEstimator
from sb3_clearning.prediction.plots import background_of, expected_picture
from sb3_clearning.replay.datasets import read_dataset
from sb3_clearning.replay.experience import Experience

GAMMAS = (0.5, 0.9, 0.99)
#: The paper's horizons, after which the agent has left the picture.
HORIZONS = {"halfcheetah": 200, "hopper": 1000, "walker2d": 1000, "ant": 300}
N_STATES = 3


def beginning(experience: Experience, horizon: int) -> Experience:
    """:return: The beginnings of all episodes"""
    last = experience.last()
    first = np.concatenate([[0], np.flatnonzero(experience.ends)[:-1] + 1])
    start = first[np.searchsorted(np.unique(last), last)]
    step = np.arange(len(last)) - start
    keep = np.flatnonzero(step < horizon)
    ends = experience.ends | (step == horizon - 1)
    return replace(
        experience, observations=np.asarray(experience.observations)[keep], actions=experience.actions[keep],
        next_observations=np.asarray(experience.next_observations)[keep],
        terminations=experience.terminations[keep], ends=ends[keep],
    )  # fmt: skip


def load(name: str, data: Path, quick: bool = False) -> Experience:
    """:return: The beginnings of the episodes"""
    path = data_to_read(name, data, quick)
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is not there: run `python -m sb3_clearning.experiments locomotion_data --tasks {name}`."
        )
    return beginning(read_dataset(dict(np.load(path))), HORIZONS[name])


class Camera:
    """Renders stored states in pictures of height ``size``, all with the same view, which holds the given states."""

    def __init__(self, name: str, states: np.ndarray, size: int = 100):
        flat = name == "ant"
        # The others walk along a line: a picture four times as wide as high.
        aspect = 2 if flat else 4
        x, y = (np.percentile(states[:, axis], [1, 99]) for axis in (0, 1))
        center = [float(x.mean()), float(y.mean()) if flat else 0.0, 0.5]
        # A picture shows 0.83 times the distance from top to bottom; a meter is the robot itself.
        reach = max(float(np.ptp(x)), aspect * float(np.ptp(y)) if flat else 0.0) + 1.0
        view = {"type": 0, "lookat": np.array(center), "distance": max(reach / (0.75 * aspect), 2.5), "azimuth": 90.0,
                "elevation": -60.0 if flat else -10.0}  # fmt: skip
        task = TASKS[name]
        self._env: gym.Env = make_env(
            task, render_mode="rgb_array", camera_id=-1, default_camera_config=view, width=aspect * size, height=size
        )  # fmt: skip
        self._env.reset(seed=0)
        self._n_position = self._env.unwrapped.model.nq  # type: ignore[attr-defined]

    def picture(self, state: np.ndarray) -> np.ndarray:
        """:return: Its picture, uint8"""
        base = self._env.unwrapped
        base.set_state(state[: self._n_position].astype(float), state[self._n_position :].astype(float))  # type: ignore[attr-defined]
        return np.asarray(self._env.render())

    def close(self) -> None:
        """Free the renderer."""
        self._env.close()


def save_small(figure: Any, path: Path) -> None:
    """Write a figure with photographs, which PNG stores badly, with 256 colors, rare ones too."""
    from PIL import Image

    whole = BytesIO()
    figure.savefig(whole, dpi=120)
    Image.open(whole).convert("RGB").quantize(256, method=Image.Quantize.FASTOCTREE).save(path, optimize=True)


def draw(
    name: str, experience: Experience, batches: int, n_candidates: int, gammas: tuple[float, ...], path: Path, seed: int = 0
) -> None:
    """Draw states of one episode and their expected futures."""
    from tqdm.auto import tqdm

    states = np.asarray(experience.observations)
    rng = np.random.default_rng(seed)
    candidates = states[rng.choice(len(states), n_candidates, replace=False)]
    # States of one long episode, early ones, so that there is a future to see.
    lengths = np.bincount(np.searchsorted(np.unique(experience.last()), experience.last()))
    longest = int(np.argmax(lengths))
    start = int(np.concatenate([[0], np.cumsum(lengths)])[longest])
    shown = start + np.linspace(0, 0.6 * lengths[longest], N_STATES).astype(int)
    camera = Camera(name, np.concatenate([candidates, states[shown]]))
    pictures = np.stack([camera.picture(state) for state in tqdm(candidates, desc=f"{name}: pictures")])
    now = [camera.picture(states[index]) for index in shown]
    camera.close()
    background = background_of(pictures)

    height, width = pictures.shape[1:3]
    figure = Figure(figsize=(3.4 * N_STATES, 0.5 + (3.4 * height / width + 0.1) * (1 + len(gammas))), layout="constrained")
    grid = figure.subplots(1 + len(gammas), N_STATES, squeeze=False)
    for axes, picture in zip(grid[0], now, strict=True):
        axes.imshow(picture)
    grid[0, 0].set_ylabel("now")
    for row, gamma in zip(grid[1:], gammas, strict=True):
        estimator = FutureStateEstimator(gamma, hidden=(256,), w_clip=20.0, learning_rate=1e-3, absorbing=False, seed=seed)
        estimator.fit(experience, method="td", steps=batches, progress_bar=True, n_steps=1)
        for axes, index in zip(row, shown, strict=True):
            pair = states[index], experience.actions[index]
            axes.imshow(expected_picture(estimator, *pair, candidates, pictures, background))
        row[0].set_ylabel(f"γ = {gamma}")
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
    figure.suptitle(f"{TASKS[name].env_id}: a state, and the expected future by TD C-learning (contrast raised)")
    save_small(figure, path)
    print(f"wrote {path}", flush=True)


def main(argv: list[str]) -> None:
    """Run the command."""
    arguments = command_line("visions", __doc__)
    arguments.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    arguments.add_argument("--data", type=Path, default=DATA, help="where locomotion_data has written")
    arguments.add_argument("--batches", type=int, default=3000, help="(the paper: 30000)")
    arguments.add_argument("--candidates", type=int, default=300, help="states to render (the paper: 1000)")
    arguments.add_argument("--quick", action="store_true", help="a small version in a minute, to see that it works")
    arguments.add_argument("--output", type=Path, default=RESULTS, help="where the pictures are written")
    options = arguments.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    th.set_num_threads(1)
    gammas: tuple[float, ...] = GAMMAS
    if options.quick:
        options.batches, options.candidates, gammas = 300, 30, (0.9,)
    # All of them first: missing data is an error before anything is learned.
    experiences = {task: load(task, options.data, options.quick) for task in options.tasks}
    for task, experience in experiences.items():
        path = options.output / f"visions_{task}{'_quick' if options.quick else ''}.png"
        if path.exists() and not options.quick:
            print(f"{path} already exists")
            continue
        draw(task, experience, options.batches, options.candidates, gammas, path)
