"""C-Learning (goal-conditioned reinforcement learning by recursive classification) for Stable-Baselines3."""

from sb3_clearning.clearning.clearning import CLearning
from sb3_clearning.common.evaluation import evaluate_goals
from sb3_clearning.common.noise import PinkActionNoise
from sb3_clearning.common.policies import ClassifierCritic, CLearningPolicy
from sb3_clearning.goal_td3.goal_td3 import GoalTD3
from sb3_clearning.prediction.dynamics import OneStepModel
from sb3_clearning.prediction.estimator import FutureStateEstimator
from sb3_clearning.prediction.hindsight_q import HindsightQEstimator
from sb3_clearning.prediction.next_actions import TablePolicy
from sb3_clearning.prediction.policy_future import PolicyFuture
from sb3_clearning.replay.batch import GoalBatch
from sb3_clearning.replay.goal_buffer import GoalReplayBuffer
from sb3_clearning.runs.checkpoint import ResumableCheckpoint
from sb3_clearning.runs.env_faults import StepTimeout
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
