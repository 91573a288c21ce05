"""Estimators of all kinds that have learned a little, and their answers. As a program, it asks those of saved files."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sb3_clearning import FutureStateEstimator, HindsightQEstimator, OneStepModel
from sb3_clearning.prediction.fitted import FittedPredictor
from sb3_clearning.prediction.queries import Estimate


def contracting(observations: np.ndarray) -> np.ndarray:
    return -0.4 * observations


def first(observations: np.ndarray) -> np.ndarray:
    return observations[..., :1]


def falling(left: float) -> float:
    return 1e-3 * left + 1e-4


def vectors(n: int = 300) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    states = rng.uniform(-2, 2, size=(n, 2)).astype(np.float32)
    actions = rng.uniform(-1, 1, size=(n, 2)).astype(np.float32)
    return {"observations": states, "actions": actions, "next_observations": states + actions}


def one_episode() -> dict[str, np.ndarray]:
    data = vectors()
    del data["next_observations"]
    return data


def numbers() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"observations": rng.integers(4, size=300), "actions": rng.integers(3, size=300)}


def vectors_with_numbered_actions() -> dict[str, np.ndarray]:
    return {**one_episode(), "actions": numbers()["actions"]}


def dicts() -> dict[str, Any]:
    picture = np.random.default_rng(1).integers(0, 256, (300, 2, 2, 1), dtype=np.uint8)
    states = vectors()["observations"]
    observations = {"observation": states, "achieved_goal": states[:, 1:], "picture": picture}
    return {"observations": observations, "actions": vectors()["actions"]}


TABLE = np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.1, 0.2, 0.7], [1.0, 0.0, 0.0]])
SMALL: dict[str, Any] = {"gamma": 0.8, "hidden": (8,), "batch_size": 16, "seed": 0}

Case = tuple[type[FittedPredictor], dict[str, Any], Callable[[], dict[str, Any]], dict[str, Any]]
#: Class, arguments, data, and arguments of `fit`
CASES: dict[str, Case] = {
    "function": (
        FutureStateEstimator,
        {**SMALL, "crop": first, "n_classifiers": 3, "learning_rate": falling},
        vectors,
        {"policy": contracting},
    ),
    "slice": (FutureStateEstimator, {**SMALL, "crop": slice(0, 1), "normalize": False}, one_episode, {"method": "mc"}),
    "table": (FutureStateEstimator, {**SMALL, "w_clip": float("inf")}, numbers, {"policy": TABLE}),
    "dict": (FutureStateEstimator, {**SMALL, "hidden": [8, 4]}, dicts, {"random_goals": np.linspace(-2, 2, 50)[:, None]}),
    "q": (HindsightQEstimator, {**SMALL, "reading": "density", "lambda_": 0.7}, numbers, {"policy": TABLE.tolist()}),
    "one step": (
        OneStepModel,
        {**SMALL, "crop": np.array([1]), "horizon": 5, "n_rollouts": 3, "noise": True},
        vectors,
        {"policy": contracting, "deterministic": True},
    ),
    "learned policy": (OneStepModel, {**SMALL, "horizon": 5, "n_rollouts": 2}, vectors_with_numbered_actions, {}),
}
#: What a file does not hold
OBJECTS: dict[str, dict[str, Any]] = {
    "function": {"policy": contracting, "crop": first, "learning_rate": falling},
    "one step": {"policy": contracting},
}


def fitted(case: str) -> FittedPredictor:
    kind, arguments, data, of_fit = CASES[case]
    return kind(**arguments).fit(data(), steps=5, **of_fit)  # type: ignore[attr-defined]


def weight(goals: np.ndarray) -> np.ndarray:
    return np.asarray(goals, dtype=np.float64).reshape(len(goals), -1).sum(axis=1)


def answers(case: str, predictor: FittedPredictor, own_actions: bool = True) -> list[np.ndarray]:
    """:return: The answers to all questions, if possible also for the policy's own actions"""
    data = CASES[case][2]()
    rows = data["observations"]
    states = {key: part[:20] for key, part in rows.items()} if isinstance(rows, dict) else rows[:20]
    goals = predictor._goals.decode(predictor._visited[:7])
    own = [None] if own_actions and CASES[case][3].get("policy") is not None else []
    found: list[Any] = []
    for actions in (data["actions"][:20], *own):
        found.append(predictor.log_ratio(states, actions, goals))
        found.append(predictor.density(states, actions, goals, marginal="data"))
        found.append(predictor.expected_future_state(states, actions))
        found += predictor.probability(states, actions, lambda goals: weight(goals) > 0.5)
        found += predictor.expected_reward(states, actions, weight)
        if isinstance(predictor, HindsightQEstimator):
            found.append(predictor.log_q(states, actions, goals))
        if isinstance(predictor, OneStepModel):
            found += predictor.unroll(states, actions)
    assert not any(isinstance(part, Estimate) for part in found)
    return [*found, predictor.marginal()(goals)]


def same(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    """:return: Whether all answers are equal, bit for bit"""
    return len(left) == len(right) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in zip(left, right, strict=True)
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for case, (kind, *_) in CASES.items():
        np.savez(folder / f"{case}.npz", *answers(case, kind.load(folder / case, **OBJECTS.get(case, {}))))
