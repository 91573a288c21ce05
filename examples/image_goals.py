"""
Images as states and goals: a bright square on a dark field is moved to where a picture shows it.

``python examples/image_goals.py``, some ten minutes on a processor. SB3's CNN is chosen by itself for images.
"""

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sb3_clearning import CLearning, evaluate_goals
from sb3_clearning.envs import GoalFromObservation

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=5_000, help="environment steps")
parser.add_argument("--episodes", type=int, default=20, help="episodes of the evaluation")
options = parser.parse_args()

SIZE, SQUARE = 36, 8  # 36 pixels are the smallest that SB3's CNN takes


class Square(gym.Env):
    """A square that moves by its action and is seen from above: uint8 pictures of one channel."""

    observation_space = spaces.Box(0, 255, (1, SIZE, SIZE), dtype=np.uint8)
    action_space = spaces.Box(-1.0, 1.0, (2,))

    def _picture(self) -> np.ndarray:
        picture = np.zeros((1, SIZE, SIZE), dtype=np.uint8)
        row, column = (self.place * (SIZE - SQUARE)).astype(int)
        picture[0, row : row + SQUARE, column : column + SQUARE] = 255
        return picture

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.np_random.uniform(size=2)
        return self._picture(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.place = np.clip(self.place + 0.2 * action, 0, 1)
        return self._picture(), 0.0, False, False, {}


def make_env() -> gym.Env:
    """Goals are pictures after another reset. Distances are root mean squares of the pixels, scaled to [0, 1]."""
    return GoalFromObservation(gym.wrappers.TimeLimit(Square(), 20), distance_threshold=0.15)


model = CLearning(
    "MultiInputPolicy", make_env(), gamma=0.8, buffer_size=20_000, learning_starts=min(500, options.steps // 2),
    batch_size=128, policy_kwargs=dict(features_extractor_kwargs=dict(cnn_output_dim=64)), seed=0,
)  # fmt: skip
model.learn(options.steps)
measured = evaluate_goals(model, make_env, n_episodes=options.episodes)
print(f"success {measured['success']:.2f}, pixel distance {measured['initial']:.3f} → {measured['final']:.3f}")
