"""
The paper's tasks as Gymnasium goal environments.

Importing this module registers their ids. A simulator is imported when one of its tasks is made.
"""

from gymnasium.envs.registration import register, registry

from sb3_clearning.envs.batched import BatchedGridworld, BatchedPointMaze
from sb3_clearning.envs.goal_from_observation import GoalFromObservation
from sb3_clearning.envs.goal_sampler import GoalSampler
from sb3_clearning.envs.noisy_goal import NoisyGoal
from sb3_clearning.envs.vec_goal_from_observation import VecGoalFromObservation

#: Each task's id, its module and class, and its episode length.
_TASKS = {
    "SawyerReach-v0": ("sawyer:SawyerReach", 50),
    "SawyerPush-v0": ("sawyer:SawyerPush", 150),
    "SawyerWindow-v0": ("sawyer:SawyerWindow", 150),
    "SawyerDrawer-v0": ("sawyer:SawyerDrawer", 150),
    "JacoReach-v0": ("control_suite:JacoReach", 250),
    "Finger-v0": ("control_suite:Finger", 1000),
    "AdroitHand-v0": ("adroit:AdroitHand", 50),
    "AdroitPen-v0": ("adroit:AdroitPen", 100),
    "PointUMaze-v0": ("maze:PointUMaze", 300),
    "ContinuousGridworld-v0": ("gridworld:ContinuousGridworld", 100),
}

TASK_IDS = tuple(_TASKS)
#: Not one of the paper's: the single environment of `BatchedPointMaze`.
_OTHERS = {"PointMaze-v0": ("point_maze:PointMaze", 300)}


def register_tasks() -> None:
    """Register the ids of all tasks. Importing `sb3_clearning.envs` does this; another call has no effect."""
    for task_id, (place, episode_length) in {**_TASKS, **_OTHERS}.items():
        if task_id not in registry:
            register(task_id, entry_point=f"sb3_clearning.envs.{place}", max_episode_steps=episode_length)


register_tasks()

__all__ = [
    "TASK_IDS",
    "BatchedGridworld",
    "BatchedPointMaze",
    "GoalFromObservation",
    "GoalSampler",
    "NoisyGoal",
    "VecGoalFromObservation",
    "register_tasks",
]
