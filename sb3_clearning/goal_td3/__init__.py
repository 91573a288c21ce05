"""GoalTD3, the Q-learning baselines, and its update."""

from sb3_clearning.goal_td3.goal_td3 import GoalTD3
from sb3_clearning.goal_td3.updater import QUpdater

__all__ = ["GoalTD3", "QUpdater"]
