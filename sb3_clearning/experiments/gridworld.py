"""
How close are predictions to the exact future of the continuous gridworld? On- and off-policy, for Monte Carlo and TD
C-learning and for Q-learning with hindsight relabelling, under both readings of Q as a density (the paper's figures
"on-policy" and "off-policy").

``python -m sb3_clearning.experiments gridworld`` writes results/gridworld.csv, .md and .png.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.special import log_expit

from sb3_clearning.envs.gridworld import future_distribution
from sb3_clearning.experiments.gridworld_data import GridSeed, errors, fit_seeds, make_seed
from sb3_clearning.experiments.tables.page import WIDTH
from sb3_clearning.experiments.tables.rows import Rows, has_rows, markdown, spread
from sb3_clearning.experiments.tables.statistics import by_seed, paired_interval
from sb3_clearning.experiments.tables.sweep import SweepCommand
from sb3_clearning.prediction.training import TrainingSettings

#: The paper's settings: a hidden layer of 32, 1000 batches of 256, Adam with 3e-3, gamma .9.
PAPER = TrainingSettings(gamma=0.9, steps=1000, hidden=(32,), learning_rate=3e-3, batch_size=256)


def falling_rate(remaining: float) -> float:
    """:return: A learning rate that falls from the paper's to nearly nothing"""
    return 3e-3 * remaining + 1e-5


#: Larger and longer, with a learning rate that falls.
LARGER = replace(PAPER, steps=2000, hidden=(64, 64), learning_rate=falling_rate)
LAMBDAS = (0.5, 0.7, 0.9, 0.95, 0.99)
FIELDS = ("setting", "method", "reading", "lambda", "gamma", "hidden", "steps", "seed", "kl", "total")


@dataclass(frozen=True)
class Setting:
    """
    A method in one of the two experiments, for all seeds.

    :param off_policy: Whether the evaluated policy differs from the collecting one
    :param training: How the networks are trained; None: a uniform prediction without learning
    :param uniform_goals: The share of random goals that are uniform over the world; the others are visited ones
    """

    name: str
    off_policy: bool
    training: TrainingSettings | None
    uniform_goals: float = 0.0

    @property
    def policy(self) -> str:
        """:return: Its value in the table's first column"""
        return "off-policy" if self.off_policy else "on-policy"

    @property
    def readings(self) -> tuple[str, ...]:
        """:return: How the network's output is read as a density"""
        return ("ratio", "density") if self.training is not None and self.training.method == "q" else ("ratio",)


def settings(quick: bool) -> list[Setting]:
    """:return: The settings that the experiment compares"""
    result = []
    for off_policy in (False, True):
        methods: dict[str, TrainingSettings | None] = {
            "uniform": None,
            "MC": replace(PAPER, method="mc"),
            "TD": replace(PAPER, method="td"),
            **{f"Q, λ {value}": replace(PAPER, method="q", lambda_=value) for value in (LAMBDAS[::3] if quick else LAMBDAS)},
        }
        if not quick:
            methods |= {
                "TD, w unclipped": replace(PAPER, method="td", w_clip=float("inf")),
                "TD, w averaged": replace(PAPER, method="td", average_next_actions=True),
                "MC, larger": replace(LARGER, method="mc"),
                "TD, larger": replace(LARGER, method="td"),
                "Q, λ 0.95, larger": replace(LARGER, method="q", lambda_=0.95),
            }
        result += [Setting(name, off_policy, training) for name, training in methods.items()]
        even = {"MC, even goals": (1.0, methods["MC"]), "TD, even goals": (1.0, methods["TD"])}
        if not quick:
            even["TD, half even goals"] = (0.5, methods["TD"])
            even["TD, larger, even goals"] = (1.0, methods["TD, larger"])
        result += [Setting(name, off_policy, training, share) for name, (share, training) in even.items()]
    return sorted(result, key=lambda setting: "larger" in setting.name)  # the fast ones first


def log_densities(logits: np.ndarray, seed: GridSeed, method: str, reading: str, uniform_goals: float) -> np.ndarray:
    """
    :param method: "q" if Q is their logistic function, else the logits are those of a classifier
    :param reading: "ratio": times the distribution of random goals; "density": as it is
    :param uniform_goals: The share of random goals that were uniform over the world
    :return: Log densities, ``(25, 4, 25)``
    """
    values = log_expit(logits) if method == "q" else logits
    return values + np.log(seed.marginal(uniform_goals)) if reading == "ratio" else values


def measure(setting: Setting, seeds: int) -> Iterator[dict[str, Any]]:
    """:return: A row for each seed and reading"""
    experiments = [make_seed(seed, setting.off_policy) for seed in range(seeds)]
    training = setting.training
    base = {"setting": setting.policy, "method": setting.name}
    gamma = PAPER.gamma
    if training is None:
        for number, seed in enumerate(experiments):
            found = errors(np.log(np.full((25, 4, 25), 1 / 25)), future_distribution(seed.evaluated, gamma))
            yield {**base, "reading": "density", "gamma": gamma, "seed": number, **_rounded(found._asdict())}
        return
    logits = fit_seeds(experiments, training, uniform_goals=setting.uniform_goals)
    columns = {"gamma": gamma, "hidden": "x".join(map(str, training.hidden)), "steps": training.steps}
    for reading in setting.readings:
        for number, seed in enumerate(experiments):
            density = log_densities(logits[number], seed, training.method, reading, setting.uniform_goals)
            found = errors(density, future_distribution(seed.evaluated, gamma))
            ratio = training.lambda_ if training.method == "q" else ""
            yield {**base, **columns, "reading": reading, "lambda": ratio, "seed": number, **_rounded(found._asdict())}


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {key: round(value, 6) for key, value in values.items()}


def is_done(setting: Setting, rows: Rows, seeds: int) -> bool:
    """:return: Whether the table has all of its rows"""
    return has_rows(rows, ("setting", "method", "seed"), [(setting.policy, setting.name, seed) for seed in range(seeds)])


def variants(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """:return: All pairs of method and reading, in their order"""
    return list(dict.fromkeys(zip(rows["method"], rows["reading"], strict=True)))


def table(rows: pd.DataFrame) -> list[str]:
    """:return: The tables of the report"""
    lines = []
    for setting in ("on-policy", "off-policy"):
        reference = by_seed(rows, "kl", setting=setting, method="TD", reading="ratio")
        cells = []
        for method, reading in variants(rows):
            kl, total = (by_seed(rows, name, setting=setting, method=method, reading=reading) for name in ("kl", "total"))
            if len(kl):
                shown = reading if method.startswith("Q") else ""
                difference = paired_interval(kl, reference)
                cells.append([method, shown, len(kl), spread(kl, 3), difference, f"{total.mean():.3f}"])
        header = ["method", "reading", "seeds", "KL", "KL - KL(TD)", "sum"]
        lines += [f"## {setting.capitalize()}", "", *markdown(header, cells), ""]
    return lines[:-1]


def plot(rows: pd.DataFrame) -> Figure:
    """:return: The picture"""
    figure = Figure(figsize=(WIDTH, 1.4 + 0.2 * len(variants(rows))), layout="constrained")
    for axes, setting in zip(figure.subplots(1, 2, sharex=True, sharey=True), ("on-policy", "off-policy"), strict=True):
        labels: list[str] = []
        for method, reading in variants(rows):
            values = by_seed(rows, "kl", setting=setting, method=method, reading=reading)
            if len(values) == 0:
                continue
            color = "tab:gray" if method == "uniform" else "tab:orange" if not method.startswith("Q") else "tab:blue"
            color = "tab:cyan" if method.startswith("Q") and reading == "density" else color
            axes.barh(len(labels), values.mean(), color=color, alpha=0.7)
            axes.plot(values, np.full(len(values), len(labels)), ".", color="black", markersize=2)
            labels.append(method + (f" ({reading})" if method.startswith("Q") else ""))
        axes.set_yticks(range(len(labels)), labels, fontsize=9)
        axes.set_title(setting.capitalize(), fontsize=10)
        axes.set_ylim(len(labels) - 0.4, -0.6)
    figure.supxlabel("KL divergence to the exact future", fontsize=10)
    figure.suptitle(
        "Continuous gridworld, γ = 0.9: C-learning (orange),\nQ-learning read as a ratio (blue) or a density (cyan)",
        fontsize=11,
    )
    return figure


TEXT = (
    "KL divergence from the exact to the predicted future, mean over states and actions; mean ± standard deviation over "
    "seeds. The difference to TD is paired over seeds, with a 95% t-interval. *Sum*: the prediction's sum over cells before "
    "it is normalized. Q-learning under two readings: Q times the marginal (*ratio*, what its fixed point is), and Q "
    "itself (*density*). *Even goals*: random goals are spread evenly over the world, not drawn from the data, which any TD "
    "classifier allows. *Larger*: 64 x 64 units, 2000 batches, falling rate."
)


def main(argv: list[str]) -> None:
    """Run the command."""
    command = SweepCommand("gridworld", __doc__, "Predicting the future of the continuous gridworld", TEXT, quick_seeds=3)
    options = command.parse(argv)
    done, work = partial(is_done, seeds=options.seeds), partial(measure, seeds=options.seeds)
    command.run(options, FIELDS, settings(options.quick), done, work, table, plot)
