"""GoalTD3, the Q-learning baselines, and its updates."""

from sb3_clearning.goal_td3.goal_td3 import GoalTD3

__all__ = ["GoalTD3"]
