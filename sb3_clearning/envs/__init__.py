from sb3_clearning.envs.wrappers import GoalFromObservation, NoisyGoal

__all__ = ["GoalFromObservation", "NoisyGoal"]
