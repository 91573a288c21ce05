"""
How far is the predicted expected future state from the real one, as gamma grows? Monte Carlo and TD C-learning against a
one-step model that is unrolled, on Walker2d, Hopper and Ant (the paper's figure "more-predictions").

Data: Minari's ``mujoco/TASK/expert-v0`` where it is on this machine, else what ``locomotion_data`` has collected.

``python -m sb3_clearning.experiments locomotion`` writes results/locomotion.csv, .md and .png.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sb3_clearning.experiments.locomotion_data import DATA, TASKS, data_to_read
from sb3_clearning.experiments.tables.page import WIDTH
from sb3_clearning.experiments.tables.rows import Rows, has_rows, markdown, spread
from sb3_clearning.experiments.tables.statistics import by_seed
from sb3_clearning.experiments.tables.sweep import SweepCommand
from sb3_clearning.prediction.dynamics import OneStepModel
from sb3_clearning.prediction.estimator import FutureStateEstimator
from sb3_clearning.prediction.queries import N_CANDIDATES
from sb3_clearning.replay.datasets import read_dataset
from sb3_clearning.replay.experience import Experience, take

GAMMAS = (0.5, 0.8, 0.9, 0.95, 0.99)
LABELS = {"mc": "MC C-learning", "td": "TD C-learning", "model": "one-step model"}
METHODS = tuple(LABELS)
#: The paper: one hidden layer of 256, w within [0, 20], the average of the next 100 steps, 1000 pairs and 1000 candidates.
HIDDEN, W_CLIP, HORIZON, N_PAIRS = (256,), 20.0, 100, 1000
FIELDS = ("task", "source", "method", "gamma", "batches", "seed", "mse", "mse_raw", "mse_of_mean")


class Split(NamedTuple):
    """
    A dataset, divided by episodes.

    :param train: 80% of the transitions
    :param states: States of the test pairs, ``(n, dim)``
    :param futures: ``(n, horizon, dim)``, the states that followed
    """

    train: Experience
    states: np.ndarray
    actions: np.ndarray
    futures: np.ndarray
    source: str


def load(name: str, data: Path, quick: bool = False) -> tuple[Experience, str]:
    """:return: The data without the global position, and where it comes from"""
    minari_name = f"mujoco/{name}/expert-v0"
    try:
        return read_dataset(minari_name), "Minari expert-v0"
    except (FileNotFoundError, ImportError):
        path = data_to_read(name, data, quick)
    if not path.exists():
        raise FileNotFoundError(
            f"Neither Minari's {minari_name} nor {path} is on this machine: run `minari download {minari_name}`, or "
            f"`python -m sb3_clearning.experiments locomotion_data --tasks {name}`."
        )
    arrays = dict(np.load(path))
    for key in ("observations", "next_observations"):
        arrays[key] = arrays[key][:, TASKS[name].n_position :]
    return read_dataset(arrays), "own PPO agent"


def split(experience: Experience, source: str, seed: int, horizon: int = HORIZON) -> Split:
    """:return: The divided data"""
    rng = np.random.default_rng(seed)
    last = experience.last()
    episodes = np.unique(last)
    is_test = np.isin(last, rng.permutation(episodes)[: max(len(episodes) // 5, 1)])
    usable = np.flatnonzero(is_test & (last - np.arange(len(last)) + 1 >= horizon))
    if len(usable) == 0 or is_test.all():
        raise ValueError(
            f"No test episode has {horizon} steps, or there is only one episode: collect longer ones, or a better agent's "
            "(`locomotion_data --steps`)."
        )
    chosen = rng.choice(usable, min(N_PAIRS, len(usable)), replace=False)
    states, following = np.asarray(experience.observations), np.asarray(experience.next_observations)
    futures = following[chosen[:, None] + np.arange(horizon)]
    keep = np.flatnonzero(~is_test)
    train = replace(
        experience, observations=take(states, keep), actions=experience.actions[keep], next_observations=take(following, keep),
        terminations=experience.terminations[keep], ends=experience.ends[keep],
    )  # fmt: skip
    return Split(train, states[chosen], experience.actions[chosen], futures, source)


def measure(
    setting: tuple[str, str, int], data: Path, batches: dict[str, int], gammas: tuple[float, ...], quick: bool = False
) -> Iterator[dict[str, Any]]:
    """:return: A row for each gamma"""
    task, method, seed = setting
    found = split(*load(task, data, quick), seed)
    candidates = np.asarray(found.train.next_observations)
    scale = candidates.std(axis=0) + 1e-6
    model = None
    for gamma in gammas:
        weights = gamma ** np.arange(found.futures.shape[1])
        real = np.einsum("nhd,h->nd", found.futures, weights / weights.sum())
        if method == "model":
            if model is None:  # does not depend on gamma
                model = OneStepModel(horizon=found.futures.shape[1], hidden=HIDDEN, seed=seed)
                model.fit(found.train, steps=batches[method])
            model.gamma = gamma
            predicted = model.expected_future_state(found.states, found.actions)
        else:
            estimator = FutureStateEstimator(
                gamma, hidden=HIDDEN, w_clip=W_CLIP, learning_rate=1e-3, absorbing=False, seed=seed
            )
            estimator.fit(found.train, method=method, steps=batches[method], n_steps=1)
            drawn = candidates[np.random.default_rng(seed).permutation(len(candidates))[:N_CANDIDATES]]
            predicted = estimator.expected_future_state(found.states, found.actions, drawn)
        errors = {
            "mse": np.mean(((predicted - real) / scale) ** 2),
            "mse_raw": np.mean((predicted - real) ** 2),
            "mse_of_mean": np.mean(((candidates.mean(axis=0) - real) / scale) ** 2),
        }
        numbers = {key: round(float(value), 6) for key, value in errors.items()}
        yield {"task": task, "source": found.source, "method": method, "gamma": gamma, "batches": batches[method], "seed":
               seed, **numbers}  # fmt: skip


def is_done(setting: tuple[str, str, int], rows: Rows, gammas: tuple[float, ...]) -> bool:
    """:return: Whether the table has all of its rows"""
    return has_rows(rows, ("task", "method", "seed", "gamma"), [(*setting, gamma) for gamma in gammas])


def errors_of(rows: pd.DataFrame, task: str, method: str, gamma: float) -> np.ndarray:
    """:return: The error of each seed"""
    return by_seed(rows, "mse", task=task, method=method, gamma=gamma).to_numpy()


def table(rows: pd.DataFrame) -> list[str]:
    """:return: The table of the report"""
    gammas, lines = sorted(set(rows["gamma"])), []
    for task, mine in rows.groupby("task", sort=False):
        for method, group in mine.groupby("method", sort=False):
            found = [errors_of(rows, task, method, gamma) for gamma in gammas]
            about = group.iloc[0]
            cells = [spread(errors, 3) if len(errors) else "" for errors in found]
            lines.append([task, about["source"], LABELS[method], about["batches"], *cells])
        means = mine.groupby("gamma")["mse_of_mean"].mean()
        lines.append([task, "", "mean state", "", *(f"{means[gamma]:.3f}" for gamma in gammas)])
    return markdown(["task", "data", "method", "batches", *(f"γ {gamma}" for gamma in gammas)], lines)


def plot(rows: pd.DataFrame) -> Figure:
    """:return: The picture"""
    tasks, gammas = list(dict.fromkeys(rows["task"])), sorted(set(rows["gamma"]))
    figure = Figure(figsize=(WIDTH, 2.4 * len(tasks) + 0.8), layout="constrained")
    for axes, task in zip(np.atleast_1d(figure.subplots(len(tasks), 1, sharex=True)), tasks, strict=True):
        for method, label in LABELS.items():
            found = {gamma: errors_of(rows, task, method, gamma) for gamma in gammas}
            found = {1 / (1 - gamma): errors for gamma, errors in found.items() if len(errors)}
            (line,) = axes.plot(list(found), [errors.mean() for errors in found.values()], marker="o", label=label)
            for place, errors in found.items():  # few seeds: each of them
                axes.plot(np.full(len(errors), place), errors, ".", color=line.get_color(), alpha=0.6)
        means = rows[rows["task"] == task].groupby("gamma")["mse_of_mean"].mean()
        axes.plot(1 / (1 - means.index.to_numpy()), means, "--", color="gray", label="mean state")
        axes.set(xscale="log", yscale="log")
        axes.set_title(task, fontsize=10)
    figure.axes[-1].set_xlabel("1 / (1 - γ)")
    figure.supylabel("error of the expected future state", fontsize=10)
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False)
    return figure


TEXT = (
    "Squared error of the expected future state over the next 100 steps, in units of the data's standard deviation, mean over "
    "coordinates and 1000 test pairs; mean ± standard deviation over seeds. *Mean state*: predicting the data's mean, for "
    "comparison."
)


def main(argv: list[str]) -> None:
    """Run the command."""
    title = "The expected future state of locomotion"
    command = SweepCommand("locomotion", __doc__, title, TEXT, seeds=3, quick_seeds=1)
    arguments = command.parser
    arguments.add_argument("--tasks", nargs="+", default=["walker2d", "hopper", "ant"], choices=list(TASKS))
    arguments.add_argument("--data", type=Path, default=DATA, help="where locomotion_data has written")
    arguments.add_argument("--batches", type=int, default=3000, help="for C-learning (the paper: 30000 for MC, 3000 for TD)")
    arguments.add_argument("--model-batches", type=int, default=10_000, help="for the model (the paper: 30000)")
    options = command.parse(argv)
    gammas: tuple[float, ...] = GAMMAS
    if options.quick:
        options.batches, options.model_batches, gammas = 300, 300, (0.5, 0.95)
    for task in options.tasks:
        load(task, options.data, options.quick)  # missing data raises an error before anything is learned
    batches = {"mc": options.batches, "td": options.batches, "model": options.model_batches}
    settings = [(task, method, seed) for seed in range(options.seeds) for task in options.tasks for method in METHODS]
    work = partial(measure, data=options.data, batches=batches, gammas=gammas, quick=options.quick)
    command.run(options, FIELDS, settings, partial(is_done, gammas=gammas), work, table, plot)
