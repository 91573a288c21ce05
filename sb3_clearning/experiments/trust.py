"""
Does an answer agree with rollouts, or warn that it may not? Random actions on CartPole, ten seeds: regions of the future of
the upright pole, with the estimator's defaults and with the settings of a wrong answer (2,000 batches of the paper's temporal
differences).

``python -m sb3_clearning.experiments trust`` writes results/trust.csv and .md.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd

from sb3_clearning.common.collect import collect
from sb3_clearning.experiments.tables.rows import Rows, markdown
from sb3_clearning.experiments.tables.sweep import SweepCommand
from sb3_clearning.prediction.estimator import FutureStateEstimator
from sb3_clearning.prediction.queries import N_CANDIDATES, UntrustedAnswerWarning

FIELDS = ("settings", "seed", "event", "predicted", "standard_error", "rollouts", "rollouts_error", "warned")
TEXT = (
    "CartPole with random actions, γ = 0.9: the probabilities of regions in the future of the upright pole against 4,000 "
    "rollouts. *Agrees*: within two standard errors. *Or warned*: it agrees, or a warning said not to trust it. *paper*: "
    "2,000 batches of one-step temporal differences."
)
GAMMA = 0.9
START, ACTION = np.zeros(4, dtype=np.float32), np.array(1)
EVENTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cart to the right": lambda states: states[:, 0] > 0.05,
    "cart moves right": lambda states: states[:, 1] > 0.5,
    "pole upright": lambda states: np.abs(states[:, 2]) < 0.05,
    "pole leans left": lambda states: states[:, 2] < -0.05,
}
#: The constructor's arguments, those of `fit`, and the number of candidates.
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any], int | None]] = {
    "paper": (
        {"w_clip": 1 / (1 - GAMMA), "absorbing": False, "learning_rate": 1e-3},
        {"steps": 2000, "n_steps": 1},
        N_CANDIDATES,
    ),
    "defaults": ({}, {}, None),
    "defaults, 2,000 batches": ({}, {"steps": 2000}, None),
}


@cache
def rollouts(n: int) -> np.ndarray:
    """:return: The share of each event in the discounted futures ``(n, events)``; a fallen pole stays as it fell"""
    env, rng = gym.make("CartPole-v1").unwrapped, np.random.default_rng(0)
    shares = np.zeros((n, len(EVENTS)))
    for share in shares:
        env.reset(seed=0)
        env.state, action, ended, weight = START.astype(np.float64), int(ACTION), False, 1.0  # type: ignore[attr-defined]
        while not ended:
            state, _, ended, _, _ = env.step(action)
            inside = np.array([event(state[None])[0] for event in EVENTS.values()])
            share += weight * (1.0 if ended else 1 - GAMMA) * inside
            action, weight = int(rng.integers(2)), weight * GAMMA
    return shares


def measure(setting: tuple[str, int], quick: bool) -> Iterator[dict[str, Any]]:
    """:return: A row for each event"""
    name, seed = setting
    arguments, of_fit, n_candidates = SETTINGS[name]
    data = collect("random", "CartPole-v1", 10_000, seed=seed)
    estimator = FutureStateEstimator(GAMMA, seed=seed, **arguments).fit(data, **{**of_fit, **({"steps": 50} if quick else {})})
    draws = np.random.default_rng(seed).permutation(len(data))[:n_candidates]
    candidates = None if n_candidates is None else np.asarray(data.next_observations)[draws]
    found = rollouts(100 if quick else 4000)
    means, errors = found.mean(axis=0), found.std(axis=0) / np.sqrt(len(found))
    for (event, function), mean, error in zip(EVENTS.items(), means, errors, strict=True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UntrustedAnswerWarning)
            answer = estimator.probability(START, ACTION, function, candidates)
        numbers = {
            "predicted": answer.value,
            "standard_error": answer.standard_error,
            "rollouts": mean,
            "rollouts_error": error,
        }
        rounded = {key: round(float(value), 4) for key, value in numbers.items()}
        yield {"settings": name, "seed": seed, "event": event, **rounded, "warned": int(bool(caught))}


def is_done(setting: tuple[str, int], rows: Rows) -> bool:
    """:return: Whether the table has its rows"""
    return any((row["settings"], row["seed"]) == tuple(map(str, setting)) for row in rows)


def table(rows: pd.DataFrame) -> list[str]:
    """:return: The table of the report"""
    lines = []
    for (name, event), mine in rows.groupby(["settings", "event"], sort=False):
        error = (mine.predicted - mine.rollouts).abs()
        agrees = error <= 2 * np.hypot(mine.standard_error, mine.rollouts_error)
        predicted = f"{mine.predicted.mean():.2f} ± {mine.standard_error.mean():.2f}"
        counts = [int(agrees.sum()), int(mine.warned.sum()), int((agrees | (mine.warned > 0)).sum())]
        lines.append([name, event, len(mine), f"{mine.rollouts.mean():.2f}", predicted, f"{error.mean():.2f}", *counts])
    return markdown(
        ["settings", "event", "seeds", "rollouts", "predicted", "error", "agrees", "warned", "agrees or warned"], lines
    )


def main(argv: list[str]) -> None:
    """Run the command."""
    command = SweepCommand("trust", __doc__, "When is an answer to be trusted?", TEXT, seeds=10, quick_seeds=1)
    options = command.parse(argv)
    settings = [(name, seed) for seed in range(options.seeds) for name in SETTINGS]
    command.run(options, FIELDS, settings, is_done, partial(measure, quick=options.quick), table)
