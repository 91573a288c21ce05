"""
An ordinary environment becomes a goal environment: swing a pendulum to any commanded angle.

``python examples/own_environment.py``, some five minutes. The base environment's reward is not read.
"""

import argparse

import gymnasium as gym
import numpy as np

from sb3_clearning import CLearning, evaluate_goals
from sb3_clearning.envs import GoalFromObservation

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=15_000, help="environment steps")
parser.add_argument("--episodes", type=int, default=20, help="episodes of the evaluation")
options = parser.parse_args()


def lower_half(rng: np.random.Generator) -> np.ndarray:
    """Goals that the motor can hold: up to 30 degrees from hanging down, as cosine and sine."""
    angle = np.pi + rng.uniform(-np.pi / 6, np.pi / 6)
    return np.array([np.cos(angle), np.sin(angle)])


def make_env() -> gym.Env:
    """The observation is (cosine, sine, velocity); the goal is the first two: the speed on arrival is left open."""
    return GoalFromObservation(gym.make("Pendulum-v1"), crop=[0, 1], goal_sampler=lower_half, distance_threshold=0.1)


model = CLearning("MultiInputPolicy", make_env(), gamma=0.95, learning_starts=min(1000, options.steps // 2), seed=0)
model.learn(options.steps)
measured = evaluate_goals(model, make_env, n_episodes=options.episodes)
print(f"success {measured['success']:.2f}, distance {measured['initial']:.2f} → {measured['final']:.2f}")

# A goal of your own, at any reset:
observation, _ = make_env().reset(seed=0, options={"goal": [-1.0, 0.0]})
print("command: hang straight down; first action:", model.predict(observation, deterministic=True)[0].round(2))
