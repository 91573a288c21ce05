"""
Learning with a known answer: in the corridor a classifier that learned has the ratio p+(g | s, a) / p(g) = gamma^d / p(g).

Success alone would not do as a threshold. A dropped (1 - gamma) multiplies every ratio by one factor, and a constant w of 1
leaves the direction of the next step, so that both policies still reach the goals; the ratios tell.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
import torch as th

import sb3_clearning.clearning.updater as updater
from sb3_clearning import CLearning, GoalBatch
from sb3_clearning.clearning.updater import ClassifierUpdater
from sb3_clearning.common.fast_updater import FastUpdater
from sb3_clearning.losses import cross_entropy
from tests.support.goal_envs import CorridorEnv

GAMMA = 0.95
Patch = Callable[[pytest.MonkeyPatch], None]


class Outcome(NamedTuple):
    """
    :param success: The share of the evaluation's episodes that end in the goal's cell
    :param error: The mean error of the log-ratio over states and goals, of the best action
    """

    success: float
    error: float

    @property
    def passes(self) -> bool:
        return self.success >= 0.95 and self.error <= 0.4


def _best(position: float, goal: int) -> tuple[float, float]:
    """:return: The best action, and the log of p+(goal | position, action) by a simulation of what follows"""

    def towards(place: float) -> float:
        return float(np.clip((goal + 0.5 - place) / CorridorEnv.SPEED, -1, 1))

    action = towards(position)
    place, log_probability = CorridorEnv.move(position, action), 0.0
    while int(place) != goal:
        place = CorridorEnv.move(place, towards(place))
        log_probability += np.log(GAMMA)
    return action, log_probability


def _evaluate(model: CLearning, n: int = 200) -> Outcome:
    generator = np.random.default_rng(0)
    positions = generator.uniform(0, CorridorEnv.CELLS - 1e-3, n)
    goals = generator.integers(CorridorEnv.CELLS, size=n)
    best = np.array([_best(position, goal) for position, goal in zip(positions, goals, strict=True)])

    achieved = model.replay_buffer.observations["achieved_goal"][: model.replay_buffer.size()].ravel()
    cells = np.round((achieved + 1) / 2 * CorridorEnv.CELLS - 0.5).astype(int)
    marginal = np.bincount(cells, minlength=CorridorEnv.CELLS) / len(cells)
    obs = {key: th.as_tensor(value) for key, value in CorridorEnv.observe(positions, goals).items()}
    with th.no_grad():
        logits = model.critic(obs, th.as_tensor(best[:, :1], dtype=th.float32)).mean(dim=0).numpy()
    error = np.abs(logits - (best[:, 1] - np.log(marginal[goals]))).mean()

    places = positions
    for _ in range(15):
        actions, _ = model.predict(CorridorEnv.observe(places, goals), deterministic=True)
        places = np.array([CorridorEnv.move(place, action) for place, action in zip(places, actions[:, 0], strict=True)])
    return Outcome(float((places.astype(int) == goals).mean()), float(error))


def _learn(seed: int) -> Outcome:
    model = CLearning(
        "MultiInputPolicy",
        CorridorEnv(),
        learning_rate=1e-3,
        gamma=GAMMA,
        tau=0.05,
        batch_size=64,
        learning_starts=800,
        # Recorded steps and futures are those of the policy that collected, not of the optimal one.
        n_steps=1,
        lambda_=1.0,
        action_noise="gaussian",
        warmup_noise="uniform",
        buffer_size=5000,
        policy_kwargs={"net_arch": [32, 32]},
        seed=seed,
        device="cpu",
    )
    return _evaluate(model.learn(2300))


def test_learns_to_reach_goals_and_how_likely_they_are() -> None:
    outcome = _learn(seed=0)
    assert outcome.passes, outcome


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_learns_with_other_seeds(seed: int) -> None:
    outcome = _learn(seed)
    assert outcome.passes, outcome


def _flipped_classifier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(updater.ELEMENTWISE_LOSSES, "bce", lambda logits, *rest: cross_entropy(-logits, *rest))


def _flipped_logit_of_w(monkeypatch: pytest.MonkeyPatch) -> None:
    right = updater.importance_weight
    monkeypatch.setattr(updater, "importance_weight", lambda logits, clip: right(-logits, clip))


def _dropped_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ClassifierUpdater.labels_and_weights

    def without(self: ClassifierUpdater, batch: GoalBatch) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
        labels, weights, w = right(self, batch)
        weights[batch.kinds["next"]] /= 1 - self.model.gamma
        return labels, weights, w

    monkeypatch.setattr(ClassifierUpdater, "labels_and_weights", without)


def _constant_w(value: float) -> Patch:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(updater, "importance_weight", lambda logits, clip: th.full_like(logits, value))

    return patch


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param(_flipped_classifier, id="flipped sign"),
        pytest.param(_dropped_factor, id="dropped 1 - gamma"),
        pytest.param(_constant_w(1.0), id="constant w"),
        pytest.param(_constant_w(2 / (1 - GAMMA)), id="constant w above the limit"),
        pytest.param(_flipped_logit_of_w, id="flipped sign of w", marks=pytest.mark.slow),
    ],
)
def test_a_broken_loss_does_not_pass(patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    # The autograd updater calls the functions that are broken here; test_fast_updater.py holds the fast one to its numbers.
    monkeypatch.setattr(FastUpdater, "supports", classmethod(lambda cls, model: False))
    patch(monkeypatch)
    outcome = _learn(seed=0)
    assert not outcome.passes, outcome
    assert outcome.success < 0.8 or outcome.error > 0.8, f"{outcome} is close to the threshold"


@pytest.mark.slow
def test_learns_fetch_reach_with_the_defaults() -> None:
    robotics = pytest.importorskip("gymnasium_robotics")
    gym.register_envs(robotics)
    env = gym.make("FetchReach-v4")
    model = CLearning("MultiInputPolicy", env, seed=0, device="cpu").learn(5000)
    successes = []
    for episode in range(20):
        obs, _ = env.reset(seed=1000 + episode)
        truncated, info = False, dict[str, Any]()
        while not truncated:
            action, _ = model.predict(obs, deterministic=True)
            obs, _, _, truncated, info = env.step(action)
        successes.append(info["is_success"])
    assert np.mean(successes) >= 0.95
