"""Our algorithms by their names in rl-zoo3."""

import contextlib
import importlib

from stable_baselines3.common.base_class import BaseAlgorithm

from sb3_clearning.clearning.clearning import CLearning


def algorithms() -> dict[str, type[BaseAlgorithm]]:
    """:return: Our algorithms by their names in rl-zoo3: ``clearning``, and ``goal_td3`` where the baselines are"""
    found: dict[str, type[BaseAlgorithm]] = {"clearning": CLearning}
    with contextlib.suppress(ImportError, AttributeError):
        found["goal_td3"] = importlib.import_module("sb3_clearning.goal_td3.goal_td3").GoalTD3
    return found
