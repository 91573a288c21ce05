r"""
The paper's appendix "Analytic Examples of Q-learning Failures": two Markov processes in which Q-learning with hindsight
relabelling does not learn the future, in closed form and by tabular Q-learning.

The paper's algebra has slips, so the table has three columns besides the learned value: the formula as printed, the solution
of the paper's own equations, and the fixed point, for which the cases' probabilities are divided by their sum (in Example 1
the paper conditions on the goal but does not divide).

``python -m sb3_clearning.experiments analytic_q`` writes results/analytic_q.csv, .md and .png.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sb3_clearning.experiments.tables.page import WIDTH
from sb3_clearning.experiments.tables.rows import Rows, has_rows, markdown
from sb3_clearning.experiments.tables.sweep import SweepCommand

LAMBDAS = (0.2, 0.5, 0.8, 0.95)
GAMMAS = (0.5, 0.9)
FIELDS = ("example", "quantity", "n", "lambda", "gamma", "seed", "printed", "corrected", "fixed_point", "learned", "truth")


class Process(NamedTuple):
    """
    A Markov process as the transitions that were observed once each, from ``states`` to ``next_states``, ``(n,)`` each.
    """

    states: np.ndarray
    next_states: np.ndarray
    n_states: int


def example_1(n: int) -> Process:
    """:return: Each state leads to itself"""
    return Process(np.arange(n), np.arange(n), n)


def example_2() -> Process:
    """:return: The first state leads to both, the second to itself"""
    return Process(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)


class Formulas(NamedTuple):
    """
    A value of Q in closed form: as printed in the paper, corrected (the solution of the paper's equation), the fixed point of
    Q-learning, and the truth, which is the future's probability.
    """

    printed: float
    corrected: float
    fixed_point: float
    truth: float


def formulas_1(n: int, lambda_: float, gamma: float) -> dict[str, Formulas]:
    """:return: Q of a state for itself"""
    rest = 1 - lambda_ * gamma / n
    fixed = (1 - lambda_) / (1 - lambda_ + lambda_ * (1 - gamma) / n)
    return {"Q11": Formulas((1 - gamma) / rest, (1 - lambda_) / rest, fixed, 1.0)}


def formulas_2(lambda_: float, gamma: float) -> dict[str, Formulas]:
    """:return: The values of Q, and the normalized prediction for the first state"""
    discounted = gamma * lambda_
    q11 = 2 * (1 - lambda_) / (2 - discounted)
    printed_22 = (2 - 2 * lambda_) / (2 - lambda_ + discounted)
    q22 = (2 - 2 * lambda_) / (2 - lambda_ - discounted)
    printed_12 = 2 * (1 - lambda_) * (2 - lambda_ + 2 * discounted) / ((2 - discounted) * (2 - lambda_ + discounted))
    q12 = 2 * (1 - lambda_) * (2 - lambda_) / ((2 - discounted) * (2 - lambda_ - discounted))
    printed_share = (2 - lambda_ + discounted) / (4 - 2 * lambda_ + 3 * discounted)
    share = (2 - lambda_ - discounted) / (4 - 2 * lambda_ - discounted)
    stays = (2 - 2 * gamma) / (2 - gamma)
    return {
        "Q11": Formulas(q11, q11, q11, stays),
        "Q12": Formulas(printed_12, q12, q12, 1 - stays),
        "Q21": Formulas(0.0, 0.0, 0.0, 0.0),
        "Q22": Formulas(printed_22, q22, q22, 1.0),
        "Q11 / (Q11 + Q12)": Formulas(printed_share, share, share, stays),
    }


class Ratio(NamedTuple):
    """The relabelling ratio and the discount factor that Q-learning is run with."""

    lambda_: float
    gamma: float


def tabular_q(process: Process, ratios: Sequence[Ratio], steps: int, seeds: int) -> np.ndarray:
    """
    Tabular Q-learning with hindsight relabelling: a transition of those observed, with its next state as the goal (share
    1 - lambda, target 1) or a random one (target gamma Q of the next state). All runs of all ratios go in step.

    :return: Q of state and goal, the mean over the last half of the updates, ``(n_ratios, seeds, n_states, n_states)``
    """
    rng = np.random.default_rng(0)
    runs, n = len(ratios) * seeds, process.n_states
    lambdas, gammas = np.repeat(np.array(ratios, dtype=float), seeds, axis=0).T
    # Flat tables: one index for run, state and goal.
    offset = np.arange(runs) * n * n
    q, visits = np.zeros(runs * n * n), np.zeros(runs * n * n)
    # The sum of q over the last half, kept by what each update changes for the rest of the time.
    total = np.zeros_like(q)
    half = steps // 2
    for first in range(0, steps, 1000):
        length = min(1000, steps - first)
        which = rng.integers(len(process.states), size=(length, runs))
        states, next_states = process.states[which] * n, process.next_states[which]
        random = rng.random((length, runs)) < lambdas
        goals = np.where(random, rng.integers(n, size=(length, runs)), next_states)
        places, sources = offset + states + goals, offset + next_states * n + goals
        for t in range(length):
            place, step = places[t], first + t
            if step == half:
                total = q * (steps - half)
            target = np.where(random[t], gammas * q[sources[t]], 1.0)
            count = visits[place] + 1
            change = 20 / (20 + count) * (target - q[place])
            visits[place] = count
            q[place] += change
            if step >= half:
                total[place] += change * (steps - step)
    return (total / (steps - half)).reshape(len(ratios), seeds, n, n)


#: An example, its number of states, and the ratios to learn with.
Setting = tuple[int, int, tuple[Ratio, ...]]


def measure(setting: Setting, seeds: int, steps: int) -> Iterator[dict[str, Any]]:
    """:return: A row for each ratio, quantity and seed"""
    example, n, ratios = setting
    process = example_1(n) if example == 1 else example_2()
    for ratio, learned in zip(ratios, tabular_q(process, ratios, steps, seeds), strict=True):
        found = formulas_1(n, *ratio) if example == 1 else formulas_2(*ratio)
        for quantity, values in found.items():
            for seed, q in enumerate(learned):
                if quantity.startswith("Q11 /"):
                    value = q[0, 0] / (q[0, 0] + q[0, 1])
                else:
                    value = q[int(quantity[1]) - 1, int(quantity[2]) - 1]
                numbers = {key: round(number, 5) for key, number in {**values._asdict(), "learned": float(value)}.items()}
                columns = {"n": n, "lambda": ratio.lambda_, "gamma": ratio.gamma, "seed": seed}
                yield {"example": example, "quantity": quantity, **columns, **numbers}


def is_done(setting: Setting, rows: Rows, seeds: int) -> bool:
    """:return: Whether the table has all of its rows"""
    example, n, ratios = setting
    wanted = [(example, n, *ratio, seed) for ratio in ratios for seed in range(seeds)]
    return has_rows(rows, ("example", "n", "lambda", "gamma", "seed"), wanted)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """:return: For each example, quantity, n, lambda and gamma the formulas, and the mean of what was learned over seeds"""
    groups = rows.groupby(["example", "quantity", "n", "lambda", "gamma"], sort=False)
    found = groups[[*Formulas._fields, "learned"]].mean()
    return found.assign(deviation=groups["learned"].std(ddof=0)).reset_index()


def largest_differences(found: pd.DataFrame) -> dict[str, float]:
    """:return: For each formula its largest difference to what is learned"""
    return {name: float((found[name] - found["learned"]).abs().max()) for name in Formulas._fields}


def table(rows: pd.DataFrame) -> list[str]:
    """:return: The table of the report"""
    found, formulas = summary(rows), ("printed", "corrected", "fixed_point")
    lines = []
    for _, row in found.iterrows():
        learned = f"{row['learned']:.3f} ± {row['deviation']:.3f}"
        case = [row[name] for name in ("example", "quantity", "n", "lambda", "gamma")]
        lines.append([*case, *(f"{row[name]:.3f}" for name in formulas), learned, f"{row['truth']:.3f}"])
    off = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in largest_differences(found).items())
    header = ["example", "quantity", "n", "λ", "γ", "printed", "corrected", "fixed point", "learned", "truth"]
    return [*markdown(header, lines), "", f"Largest difference to what is learned: {off}."]


def plot(rows: pd.DataFrame) -> Figure:
    """:return: The picture"""
    found = summary(rows)
    figure = Figure(figsize=(WIDTH, 5.6), layout="constrained")
    for axes, name in zip(figure.subplots(2, 2, sharex=True, sharey=True).flat, Formulas._fields, strict=True):
        axes.plot([0, 1], [0, 1], color="gray", linewidth=0.8)
        axes.plot(found[name], found["learned"], ".")
        axes.set_title(name.replace("_", " "), fontsize=10)
    figure.supxlabel("formula", fontsize=10)
    figure.supylabel("tabular Q-learning", fontsize=10)
    figure.suptitle("Closed forms against what Q-learning learns\n(a point per example, λ and γ)", fontsize=11)
    return figure


TEXT = (
    "*Printed*: the paper's formula. *Corrected*: the solution of the paper's equation. *Fixed point*: with the cases' "
    "probabilities divided by their sum. *Learned*: tabular Q-learning, mean ± standard deviation over seeds. *Truth*: the "
    "probability that the future has."
)


def main(argv: list[str]) -> None:
    """Run the command."""
    command = SweepCommand("analytic_q", __doc__, "Q-learning with hindsight relabelling in closed form", TEXT)
    options = command.parse(argv)
    ratios = tuple(Ratio(value, gamma) for gamma in GAMMAS for value in (LAMBDAS[1:3] if options.quick else LAMBDAS))
    settings = [(*case, ratios) for case in ((1, 2), (1, 10), (2, 2))]
    work = partial(measure, seeds=options.seeds, steps=5000 if options.quick else 40_000)
    command.run(options, FIELDS, settings, partial(is_done, seeds=options.seeds), work, table, plot)
