"""An agent that learns nothing: what a task gives by itself."""

from typing import Any

import numpy as np

from sb3_clearning.goal_td3.goal_td3 import GoalTD3


class ZeroActions(GoalTD3):
    """All actions are zero, the middle of their range. Where a learned policy is not better, nothing was learned."""

    def train(self, gradient_steps: int, batch_size: int = 256) -> None:
        """Nothing to learn."""

    def predict(self, *arguments: Any, **keywords: Any) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """:return: Zero for each action of the policy, and the state"""
        actions, state = super().predict(*arguments, **keywords)
        return np.zeros_like(actions), state
