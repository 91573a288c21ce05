"""
Hypothesis 1: do predictions sum to one? C-learning's should, Q-learning's are expected to be too small, the more so for a
large share lambda of random goals (the paper's figure "normalization": on-policy data, hidden layer of 256).

``python -m sb3_clearning.experiments normalization`` writes results/normalization.csv, .md and .png.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from sb3_clearning.experiments.gridworld import FIELDS, PAPER, Setting, by_seed, falling_rate, is_done, measure
from sb3_clearning.experiments.tables.rows import Rows, spread, write_report
from sb3_clearning.experiments.tables.statistics import half_width
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


def write_table(rows: Rows, path: Path) -> None:
    """Write the Markdown report."""
    text = (
        "Made by `python -m sb3_clearning.experiments normalization`. The sum over cells of the predicted density, mean "
        "over states "
        "and actions; mean ± standard deviation over seeds, smallest and largest seed. On-policy, gamma 0.9, hidden layer "
        "of 256."
    )
    lines = [
        "",
        "| method | reading | seeds | sum over cells | smallest | largest | KL |",
        "|---|---|---|---|---|---|---|",
    ]
    for method, reading in dict.fromkeys((row["method"], row["reading"]) for row in rows):
        totals = list(by_seed(rows, "on-policy", method, reading, "total").values())
        kl = list(by_seed(rows, "on-policy", method, reading).values())
        lines.append(
            f"| {method} | {reading if method.startswith('Q') else ''} | {len(totals)} | {spread(totals, 3)} | "
            f"{min(totals):.3f} | "
            f"{max(totals):.3f} | {spread(kl, 3)} |"
        )
    write_report(path, "Do predictions sum to one?", text, lines, rows)


def plot(rows: Rows, path: Path) -> None:
    """Draw the picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    for axes, reading in zip(figure.subplots(1, 2), ("ratio", "density"), strict=True):
        names = dict.fromkeys(row["method"] for row in rows if row["method"].startswith("Q"))
        found = {float(name.split("λ ")[1]): np.array(list(by_seed(rows, "on-policy", name, reading, "total").values()))
                 for name in names}  # fmt: skip
        lambdas = sorted(found)
        widths = [half_width(found[value]) for value in lambdas]
        axes.errorbar(lambdas, [found[value].mean() for value in lambdas], widths, marker="o", label="Q-learning")
        for method, colour in (("MC", "tab:orange"), ("TD", "tab:red")):
            totals = np.array(list(by_seed(rows, "on-policy", method, "ratio", "total").values()))
            if len(totals):
                axes.axhline(totals.mean(), linestyle="--", color=colour, label=f"{method} C-learning")
        axes.axhline(1.0, color="black", linewidth=0.8)
        title = "Q times the marginal" if reading == "ratio" else "Q itself"
        axes.set(
            title=title,
            xlabel="relabelling ratio λ",
            ylabel="sum over cells",
            yscale="linear" if reading == "ratio" else "log",
        )
        axes.legend(frameon=False)
    figure.suptitle("Does the predicted future sum to one? (gridworld, on-policy, γ = 0.9)")
    figure.savefig(path, dpi=130)


def main(argv: list[str]) -> None:
    """Run the command."""
    command = SweepCommand("normalization", __doc__, quick_seeds=3)
    options = command.parse(argv)
    done, work = partial(is_done, seeds=options.seeds), partial(measure, seeds=options.seeds)
    command.run(options, FIELDS, settings(options.quick), done, work, write_table, plot)
