"""C-Learning (goal-conditioned reinforcement learning by recursive classification) for Stable-Baselines3."""

from sb3_clearning.baselines import GoalTD3
from sb3_clearning.buffers import GoalBatch, GoalReplayBuffer
from sb3_clearning.checkpoint import ResumableCheckpoint
from sb3_clearning.clearning import CLearning
from sb3_clearning.faults import StepTimeout
from sb3_clearning.noise import PinkActionNoise
from sb3_clearning.policies import ClassifierCritic, CLearningPolicy
from sb3_clearning.version import __version__

__all__ = [
    "CLearning",
    "CLearningPolicy",
    "ClassifierCritic",
    "GoalBatch",
    "GoalReplayBuffer",
    "GoalTD3",
    "PinkActionNoise",
    "ResumableCheckpoint",
    "StepTimeout",
    "__version__",
]
