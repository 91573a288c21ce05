"""
Hypothesis 2: is lambda = (1 + gamma) / 2 the best relabelling ratio for Q-learning? KL against lambda for several gammas,
under both readings of Q, with C-learning's lines (the paper's figures "prior" and "prior-full"; on-policy). Beside the
networks stands what they would learn if they were perfect: the fixed point of the loss, which in a world of 25 cells is exact.

``python -m sb3_clearning.experiments relabel_ratio`` writes results/relabel_ratio.csv, .md and .png.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sb3_clearning.envs.gridworld import MOVES, all_cells, future_distribution, next_cell
from sb3_clearning.experiments.gridworld import PAPER, log_densities
from sb3_clearning.experiments.gridworld_data import N_CELLS, GridSeed, cell_number, errors, fit_seeds, make_seed
from sb3_clearning.experiments.tables.page import WIDTH
from sb3_clearning.experiments.tables.rows import Rows, has_rows, markdown, spread
from sb3_clearning.experiments.tables.statistics import by_seed, half_width
from sb3_clearning.experiments.tables.sweep import SweepCommand
from sb3_clearning.prediction.training import TrainingSettings

GAMMAS = (0.5, 0.7, 0.9, 0.95)
#: The neighbors of (1 + gamma) / 2 are .05 apart, or .025 beyond .9.
LAMBDAS = (0.1, 0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99, 0.999)
TICKS = (0.1, 0.5, 0.9, 0.99, 0.999)
FIELDS = ("gamma", "method", "lambda", "reading", "seed", "kl", "total", "uniform_kl")


@dataclass(frozen=True)
class Setting:
    """One training of all seeds, or with ``exact`` the fixed point of Q-learning instead of networks."""

    training: TrainingSettings
    exact: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """:return: The values of the table's first columns"""
        ratio = str(self.training.lambda_) if self.training.method == "q" else ""
        return str(self.training.gamma), "fixed point" if self.exact else self.training.method, ratio


def settings(quick: bool) -> list[Setting]:
    """:return: The settings that the experiment compares"""
    result = []
    for gamma in GAMMAS[::2] if quick else GAMMAS:
        base = replace(PAPER, gamma=gamma)
        methods = [replace(base, method="mc"), replace(base, method="td")]
        methods += [replace(base, method="q", lambda_=value) for value in (LAMBDAS[2::5] if quick else LAMBDAS)]
        result += [Setting(training) for training in methods]
        result += [Setting(training, exact=True) for training in methods if training.method == "q"]
    return result


def fixed_point(seed: GridSeed, gamma: float, lambda_: float) -> np.ndarray:
    """
    Where each Q is the mean of its targets: 1 with the weight (1 - lambda) p(g | s, a) of the next state, gamma Q(s', a', g)
    with the weight lambda p(g) of a random one. For lambda to 1 it tends to a multiple of the future's ratio to p(g).

    :return: Q of cells, moves and cells, ``(25, 4, 25)``
    """
    cells = all_cells().astype(np.int64)
    following = cell_number(next_cell(cells[:, None], MOVES[None]))  # (25, 4), moves are certain
    relabelled = (1 - lambda_) * np.eye(N_CELLS)[following]
    random = lambda_ * seed.marginal()
    q = np.zeros_like(relabelled)
    for _ in range(int(np.ceil(np.log(1e-10) / np.log(gamma)))):  # a contraction by gamma
        value = np.einsum("sa,sag->sg", seed.evaluated, q)
        q = (relabelled + random * gamma * value[following]) / (relabelled + random)
    return q


def measure(setting: Setting, seeds: int) -> Iterator[dict[str, Any]]:
    """:return: A row for each seed and reading"""
    training = setting.training
    experiments = [make_seed(seed, off_policy=False) for seed in range(seeds)]
    if setting.exact:
        q = np.stack([fixed_point(seed, training.gamma, training.lambda_) for seed in experiments])
        logits = np.log(np.maximum(q, 1e-300)) - np.log1p(-q)
    else:
        logits = fit_seeds(experiments, training)
    gamma, method, ratio = setting.key
    for reading in ("ratio", "density") if training.method == "q" else ("ratio",):
        for number, seed in enumerate(experiments):
            density = log_densities(logits[number], seed, training.method, reading, 0.0)
            truth = future_distribution(seed.evaluated, training.gamma)
            found, uniform = errors(density, truth), errors(np.zeros_like(density), truth)
            numbers = {"kl": round(found.kl, 6), "total": round(found.total, 6), "uniform_kl": round(uniform.kl, 6)}
            yield {"gamma": gamma, "method": method, "lambda": ratio, "reading": reading, "seed": number, **numbers}


def is_done(setting: Setting, rows: Rows, seeds: int) -> bool:
    """:return: Whether the table has all of its rows"""
    return has_rows(rows, ("gamma", "method", "lambda", "seed"), [(*setting.key, seed) for seed in range(seeds)])


def curve(rows: pd.DataFrame, gamma: float, reading: str, method: str = "q") -> dict[float, pd.Series]:
    """:return: For each lambda the seeds' KL. The method is "q" or "fixed point"."""
    mine = rows[(rows["gamma"] == gamma) & (rows["method"] == method) & (rows["reading"] == reading)]
    return {value: by_seed(group, "kl") for value, group in mine.groupby("lambda")}


def best_of(found: dict[float, pd.Series]) -> float:
    """:return: The lambda with the least mean KL"""
    return min(found, key=lambda value: found[value].mean())


def c_learning(rows: pd.DataFrame, gamma: float, method: str) -> pd.Series:
    """:return: The seeds' KL"""
    return by_seed(rows, "kl", gamma=gamma, method=method)


def uniform_kl(rows: pd.DataFrame, gamma: float) -> float:
    """:return: The mean KL of a uniform prediction over seeds"""
    return float(by_seed(rows, "uniform_kl", gamma=gamma).mean())


def grid_steps(lambdas: list[float], best: float, predicted: float) -> int:
    """:return: How many steps of the grid lie between the best one and the one next to the prediction"""
    nearest = int(np.argmin(np.abs(np.array(lambdas) - predicted)))
    return abs(lambdas.index(best) - nearest)


def table(rows: pd.DataFrame) -> list[str]:
    """:return: The table of the report"""
    lines = []
    for gamma in sorted(set(rows["gamma"])):
        for reading in ("ratio", "density"):
            found = curve(rows, gamma, reading)
            if not found:
                continue
            best, predicted = best_of(found), (1 + gamma) / 2
            near = min(found, key=lambda value: abs(value - predicted))
            worst = max(found, key=lambda value: found[value].mean())
            ideal = curve(rows, gamma, reading, "fixed point")
            exact = f"{ideal[best_of(ideal)].mean():.3f} (λ {best_of(ideal)})" if ideal else ""
            steps = grid_steps(list(found), best, predicted)
            others = [spread(c_learning(rows, gamma, method), 3) for method in ("td", "mc")]
            lines.append(
                [
                    *(gamma, reading, f"{predicted:.3f}", best, steps, spread(found[best], 3), spread(found[near], 3)),
                    *(f"{found[worst].mean():.3f} (λ {worst})", *others, f"{uniform_kl(rows, gamma):.3f}", exact),
                ]
            )
    header = [
        *("γ", "reading", "(1 + γ) / 2", "best λ", "grid steps between", "KL at best λ", "KL next to (1 + γ) / 2", "worst KL"),
        *("KL of TD", "KL of MC", "KL of uniform", "fixed point"),
    ]
    return markdown(header, lines)


def plot(rows: pd.DataFrame) -> Figure:
    """:return: The picture"""
    gammas = sorted(set(rows["gamma"]))
    lines = -(-len(gammas) // 2)
    figure = Figure(figsize=(WIDTH, 2.3 * lines + 1.2), layout="constrained")
    for axes, gamma in zip(figure.subplots(lines, 2, squeeze=False).flat, gammas, strict=False):
        for reading, color in (("ratio", "tab:blue"), ("density", "tab:cyan")):
            found = curve(rows, gamma, reading)
            means, widths = [values.mean() for values in found.values()], [half_width(values) for values in found.values()]
            axes.errorbar(list(found), means, widths, marker=".", color=color, label=f"Q-learning, {reading}")
            ideal = curve(rows, gamma, reading, "fixed point")
            means = [kl.mean() for kl in ideal.values()]
            axes.plot(list(ideal), means, ":", color=color, label=f"its fixed point, {reading}")
        for method, style in (("mc", "--"), ("td", ":")):
            values = c_learning(rows, gamma, method)
            if len(values):
                axes.axhline(values.mean(), linestyle=style, color="tab:orange", label=f"{method.upper()} C-learning")
        axes.axhline(uniform_kl(rows, gamma), color="tab:gray", linewidth=0.8, label="uniform")
        axes.axvline((1 + gamma) / 2, color="black", linewidth=0.8, label="(1 + γ) / 2")
        # Steps are small where λ is near 1.
        axes.set(xscale="logit", ylim=(0, None))
        axes.set_title(f"γ = {gamma}", fontsize=10)
        axes.set_xticks(TICKS, [str(value) for value in TICKS])
        axes.set_xticks([], minor=True)
    for axes in figure.axes[-2:]:
        axes.set_xlabel("relabelling ratio λ")
    for axes in figure.axes[len(gammas) :]:
        axes.axis("off")
    figure.supylabel("KL divergence", fontsize=10)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


TEXT = (
    "The λ with the least mean KL over seeds, against the hypothesis (1 + γ) / 2; KL mean ± standard deviation over seeds. "
    "*Fixed point*: the best λ, and its KL, if the networks learned exactly what the loss asks for."
)


def main(argv: list[str]) -> None:
    """Run the command."""
    title = "The relabelling ratio of Q-learning"
    command = SweepCommand("relabel_ratio", __doc__, title, TEXT, seeds=10, quick_seeds=2)
    options = command.parse(argv)
    done, work = partial(is_done, seeds=options.seeds), partial(measure, seeds=options.seeds)
    command.run(options, FIELDS, settings(options.quick), done, work, table, plot)
