"""C-Learning (goal-conditioned reinforcement learning by recursive classification) for Stable-Baselines3."""

from sb3_clearning.baselines import GoalTD3
from sb3_clearning.buffers import GoalReplayBuffer
from sb3_clearning.checkpoint import ResumableCheckpoint
from sb3_clearning.clearning import CLearning
from sb3_clearning.density import FutureStateEstimator
from sb3_clearning.evaluation import evaluate_goals
from sb3_clearning.faults import StepTimeout
from sb3_clearning.future.dynamics import OneStepModel
from sb3_clearning.future.hindsight_q import HindsightQEstimator
from sb3_clearning.future.next_actions import TablePolicy
from sb3_clearning.future.policy_future import PolicyFuture
from sb3_clearning.goal_batch import GoalBatch
from sb3_clearning.noise import PinkActionNoise
from sb3_clearning.policies import ClassifierCritic, CLearningPolicy
from sb3_clearning.version import __version__

__all__ = [
    "CLearning",
    "CLearningPolicy",
    "ClassifierCritic",
    "FutureStateEstimator",
    "GoalBatch",
    "GoalReplayBuffer",
    "GoalTD3",
    "HindsightQEstimator",
    "OneStepModel",
    "PinkActionNoise",
    "PolicyFuture",
    "ResumableCheckpoint",
    "StepTimeout",
    "TablePolicy",
    "__version__",
    "evaluate_goals",
]
