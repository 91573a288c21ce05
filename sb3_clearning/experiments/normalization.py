"""
Hypothesis 1: do predictions sum to one? C-learning's should, Q-learning's are expected to be too small, the more so for a
large share lambda of random goals (the paper's figure "normalization": on-policy data, hidden layer of 256).

``python -m sb3_clearning.experiments normalization`` writes results/normalization.csv, .md and .png.
"""

from dataclasses import replace
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from sb3_clearning.experiments.gridworld import FIELDS, PAPER, Setting, falling_rate, is_done, measure, variants
from sb3_clearning.experiments.tables.page import WIDTH
from sb3_clearning.experiments.tables.rows import markdown, spread
from sb3_clearning.experiments.tables.statistics import by_seed, half_width
from sb3_clearning.experiments.tables.sweep import SweepCommand

#: The paper: a larger hidden layer "improved the results of both methods".
LARGE = replace(PAPER, hidden=(256,))
LAMBDAS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.99)


def settings(quick: bool) -> list[Setting]:
    """:return: The settings that the experiment compares"""
    lambdas = LAMBDAS[::3] if quick else LAMBDAS
    learned = {
        "MC": replace(LARGE, method="mc"),
        "TD": replace(LARGE, method="td"),
        **{f"Q, λ {value}": replace(LARGE, method="q", lambda_=value) for value in lambdas},
    }
    if not quick:
        # The paper's constant rate leaves noise in the last network.
        learned["MC, falling rate"] = replace(LARGE, method="mc", learning_rate=falling_rate)
        learned["TD, falling rate"] = replace(LARGE, method="td", learning_rate=falling_rate)
    return [Setting(name, False, training) for name, training in learned.items()]


def sums(rows: pd.DataFrame, method: str, reading: str, column: str = "total") -> pd.Series:
    """:return: The seeds' sums over cells, or another column"""
    return by_seed(rows, column, setting="on-policy", method=method, reading=reading)


def table(rows: pd.DataFrame) -> list[str]:
    """:return: The table of the report"""
    lines = []
    for method, reading in variants(rows):
        totals, kl = sums(rows, method, reading), sums(rows, method, reading, "kl")
        ends = f"{totals.min():.3f}", f"{totals.max():.3f}"
        lines.append([method, reading if method.startswith("Q") else "", len(totals), spread(totals, 3), *ends, spread(kl, 3)])
    return markdown(["method", "reading", "seeds", "sum over cells", "smallest", "largest", "KL"], lines)


def plot(rows: pd.DataFrame) -> Figure:
    """:return: The picture"""
    figure = Figure(figsize=(WIDTH, 6), layout="constrained")
    names = {float(name.split("λ ")[1]): name for name in rows["method"] if name.startswith("Q")}
    lambdas = sorted(names)
    for axes, reading in zip(figure.subplots(2, 1), ("ratio", "density"), strict=True):
        found = [sums(rows, names[value], reading) for value in lambdas]
        widths = [half_width(totals) for totals in found]
        axes.errorbar(lambdas, [totals.mean() for totals in found], widths, marker="o", label="Q-learning")
        for method, color in (("MC", "tab:orange"), ("TD", "tab:red")):
            totals = sums(rows, method, "ratio")
            if len(totals):
                axes.axhline(totals.mean(), linestyle="--", color=color, label=f"{method} C-learning")
        axes.axhline(1.0, color="black", linewidth=0.8)
        title, scale = ("Q times the marginal", "linear") if reading == "ratio" else ("Q itself", "log")
        axes.set(title=title, xlabel="relabelling ratio λ", ylabel="sum over cells", yscale=scale)
        axes.legend(frameon=False)
    figure.suptitle("Does the predicted future sum to one?\n(gridworld, on-policy, γ = 0.9)", fontsize=11)
    return figure


TEXT = (
    "The sum over cells of the predicted density, mean over states and actions; mean ± standard deviation over seeds, "
    "smallest and largest seed. On-policy, gamma 0.9, hidden layer of 256."
)


def main(argv: list[str]) -> None:
    """Run the command."""
    command = SweepCommand("normalization", __doc__, "Do predictions sum to one?", TEXT, quick_seeds=3)
    options = command.parse(argv)
    done, work = partial(is_done, seeds=options.seeds), partial(measure, seeds=options.seeds)
    command.run(options, FIELDS, settings(options.quick), done, work, table, plot)
