"""
How close do predictions come to the exact future of the continuous gridworld? On- and off-policy, for Monte Carlo and TD
C-learning and for Q-learning with hindsight relabelling, under both readings of Q as a density (the paper's figures
"on-policy" and "off-policy").

``python -m sb3_clearning.experiments gridworld`` writes results/gridworld.csv, .md and .png.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sb3_clearning.experiments.grid import GridSeed, errors, fit_seeds, log_sigmoid, make_seed, true_future
from sb3_clearning.experiments.rows import spread
from sb3_clearning.experiments.statistics import paired_interval
from sb3_clearning.experiments.sweep import check, parser, sweep
from sb3_clearning.prediction.training import TrainingSettings

#: The paper's settings: a hidden layer of 32, 1000 batches of 256, Adam with 3e-3, gamma .9.
PAPER = TrainingSettings(gamma=0.9, steps=1000, hidden=(32,), learning_rate=3e-3, batch_size=256)


def falling_rate(remaining: float) -> float:
    """
    :param remaining: The remaining progress, from 1 to 0
    :return: A learning rate that falls from the paper's to nearly nothing
    """
    return 3e-3 * remaining + 1e-5


#: Larger and longer, with a learning rate that falls.
LARGER = replace(PAPER, steps=2000, hidden=(64, 64), learning_rate=falling_rate)
LAMBDAS = (0.5, 0.7, 0.9, 0.95, 0.99)
FIELDS = ("setting", "method", "reading", "lambda", "gamma", "hidden", "steps", "seed", "kl", "total")


@dataclass(frozen=True)
class Setting:
    """
    One method in one of the two experiments, for all seeds.

    :param name: The method's name in the table
    :param off_policy: Whether another policy than the collecting one is evaluated
    :param training: How the networks are trained; None: nothing is learned, the prediction is uniform
    :param even_goals: The share of random goals that are spread evenly over the world instead of drawn from the visited ones
    """

    name: str
    off_policy: bool
    training: TrainingSettings | None
    even_goals: float = 0.0

    @property
    def readings(self) -> tuple[str, ...]:
        """:return: How the network's output is read as a density"""
        return ("ratio", "density") if self.training is not None and self.training.method == "q" else ("ratio",)


def settings(quick: bool) -> list[Setting]:
    """
    :param quick: Whether to leave most of them out
    :return: All that the experiment compares
    """
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
    # The quick ones first.
    return sorted(result, key=lambda setting: "larger" in setting.name)


def log_densities(logits: np.ndarray, seed: GridSeed, method: str, reading: str, even_goals: float) -> np.ndarray:
    """
    :param logits: ``(25, 4, 25)``
    :param seed: The experiment
    :param method: "q" if Q is their logistic function, else the logits are those of a classifier
    :param reading: "ratio": times the distribution of random goals; "density": as it is
    :param even_goals: The share of random goals that were spread evenly
    :return: Log densities, ``(25, 4, 25)``
    """
    values = log_sigmoid(logits) if method == "q" else logits
    return values + np.log(seed.marginal(even_goals)) if reading == "ratio" else values


def measure(setting: Setting, seeds: int) -> Iterator[dict[str, Any]]:
    """
    :param setting: What is compared
    :param seeds: Number of seeds
    :return: A row for each seed and reading
    """
    experiments = [make_seed(seed, setting.off_policy) for seed in range(seeds)]
    training = setting.training
    base = {"setting": "off-policy" if setting.off_policy else "on-policy", "method": setting.name}
    gamma = PAPER.gamma
    if training is None:
        for number, seed in enumerate(experiments):
            found = errors(np.log(np.full((25, 4, 25), 1 / 25)), true_future(seed, gamma))
            yield {**base, "reading": "density", "gamma": gamma, "seed": number, **_rounded(found._asdict())}
        return
    logits = fit_seeds(experiments, training, even_goals=setting.even_goals)
    columns = {"gamma": gamma, "hidden": "x".join(map(str, training.hidden)), "steps": training.steps}
    for reading in setting.readings:
        for number, seed in enumerate(experiments):
            density = log_densities(logits[number], seed, training.method, reading, setting.even_goals)
            found = errors(density, true_future(seed, gamma))
            ratio = training.lambda_ if training.method == "q" else ""
            yield {**base, **columns, "reading": reading, "lambda": ratio, "seed": number, **_rounded(found._asdict())}


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {key: round(value, 6) for key, value in values.items()}


def is_done(setting: Setting, rows: list[dict[str, str]], seeds: int) -> bool:
    """
    :param setting: A setting
    :param rows: The table
    :param seeds: Number of seeds
    :return: Whether the table has all of its rows
    """
    where = "off-policy" if setting.off_policy else "on-policy"
    found = {row["seed"] for row in rows if (row["setting"], row["method"]) == (where, setting.name)}
    return found >= {str(seed) for seed in range(seeds)}


def by_seed(rows: list[dict[str, str]], setting: str, method: str, reading: str, column: str = "kl") -> dict[int, float]:
    """
    :param rows: The table
    :param setting: "on-policy" or "off-policy"
    :param method: The method's name
    :param reading: "ratio" or "density"
    :param column: What to look up
    :return: For each seed its value; the newest if it is there twice
    """
    wanted = (setting, method, reading)
    return {int(row["seed"]): float(row[column]) for row in rows if (row["setting"], row["method"], row["reading"]) == wanted}


def variants(rows: list[dict[str, str]]) -> list[tuple[str, str]]:
    """
    :param rows: The table
    :return: All pairs of method and reading, in their order
    """
    return list(dict.fromkeys((row["method"], row["reading"]) for row in rows))


def write_table(rows: list[dict[str, str]], path: Path) -> None:
    """
    :param rows: The table
    :param path: The Markdown file to write
    """
    lines = [
        "# Predicting the future of the continuous gridworld",
        "",
        "Made by `python -m sb3_clearning.experiments gridworld`. KL divergence from the exact to the predicted future, "
        "mean over "
        "states and actions; mean ± standard deviation over seeds. The difference to TD is paired over seeds, with a 95% "
        "t-interval. *Sum*: the prediction's sum over cells before it is normalised. Q-learning under two readings: Q times "
        "the marginal (*ratio*, what its fixed point is), and Q itself (*density*). *Even goals*: random goals are spread "
        "evenly over the "
        "world, not drawn from the data, which any TD classifier allows. *Larger*: 64 x 64 units, 2000 batches, falling rate.",
    ]
    for setting in ("on-policy", "off-policy"):
        lines += [
            "",
            f"## {setting.capitalize()}",
            "",
            "| method | reading | seeds | KL | KL - KL(TD) | sum |",
            "|---|---|---|---|---|---|",
        ]
        reference = by_seed(rows, setting, "TD", "ratio")
        for method, reading in variants(rows):
            kl, total = (by_seed(rows, setting, method, reading, column) for column in ("kl", "total"))
            if not kl:
                continue
            lines.append(
                f"| {method} | {reading if method.startswith('Q') else ''} | {len(kl)} | {spread(list(kl.values()), 3)} | "
                f"{paired_interval(kl, reference)} | {np.mean(list(total.values())):.3f} |"
            )
    lines += ["", f"Commit {rows[-1]['commit']}; {rows[-1]['versions']}.", ""]
    path.write_text("\n".join(lines))


def plot(rows: list[dict[str, str]], path: Path) -> None:
    """
    :param rows: The table
    :param path: The picture to write
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), layout="constrained")
    for axes, setting in zip(figure.subplots(1, 2, sharey=True), ("on-policy", "off-policy"), strict=True):
        found = [(pair, list(by_seed(rows, setting, *pair).values())) for pair in variants(rows)]
        found = [(pair, values) for pair, values in found if values]
        for place, ((method, reading), values) in enumerate(found):
            colour = "tab:gray" if method == "uniform" else "tab:orange" if not method.startswith("Q") else "tab:blue"
            colour = "tab:cyan" if method.startswith("Q") and reading == "density" else colour
            axes.bar(place, np.mean(values), color=colour, alpha=0.7)
            axes.plot(np.full(len(values), place), values, ".", color="black", markersize=3)
        labels = [method + (f" ({reading})" if method.startswith("Q") else "") for (method, reading), _ in found]
        axes.set_xticks(range(len(found)), labels, rotation=90, fontsize=8)
        axes.set(title=setting.capitalize(), ylabel="KL divergence to the exact future")
    figure.suptitle(
        "Continuous gridworld, γ = 0.9: C-learning (orange), Q-learning read as a ratio (blue) or a density (cyan)"
    )
    figure.savefig(path, dpi=130)


def main(argv: list[str]) -> None:
    """
    :param argv: Command-line arguments
    """
    arguments = parser("gridworld", __doc__)
    options = arguments.parse_args(argv)
    check(options, arguments)
    if options.quick:
        options.seeds = min(options.seeds, 3)
    path = options.output / ("gridworld_quick.csv" if options.quick else "gridworld.csv")
    rows = sweep(
        path, FIELDS, settings(options.quick), partial(is_done, seeds=options.seeds), partial(measure, seeds=options.seeds),
        options.jobs,
    )  # fmt: skip
    write_table(rows, path.with_suffix(".md"))
    plot(rows, path.with_suffix(".png"))
    print(path.with_suffix(".md").read_text())
