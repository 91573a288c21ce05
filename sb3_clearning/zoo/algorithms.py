"""Our algorithms by their names in rl-zoo3."""

from stable_baselines3.common.base_class import BaseAlgorithm

from sb3_clearning.clearning.clearning import CLearning
from sb3_clearning.goal_td3.goal_td3 import GoalTD3


def algorithms() -> dict[str, type[BaseAlgorithm]]:
    """:return: Our algorithms by their names in rl-zoo3"""
    return {"clearning": CLearning, "goal_td3": GoalTD3}
