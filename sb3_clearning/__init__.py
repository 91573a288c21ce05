"""C-Learning (goal-conditioned reinforcement learning by recursive classification) for Stable-Baselines3."""

from sb3_clearning.clearning.clearning import CLearning
from sb3_clearning.common.collect import collect
from sb3_clearning.common.eval_callback import GoalEvalCallback
from sb3_clearning.common.evaluation import evaluate_goals
from sb3_clearning.common.noise import PinkActionNoise
from sb3_clearning.common.policies import ClassifierCritic, CLearningPolicy
from sb3_clearning.files.array_file import UnreadableFileError
from sb3_clearning.goal_td3.goal_td3 import GoalTD3
from sb3_clearning.hub import load_from_hub, push_to_hub
from sb3_clearning.prediction.dynamics import OneStepModel
from sb3_clearning.prediction.estimator import FutureStateEstimator
from sb3_clearning.prediction.hindsight_q import HindsightQEstimator
from sb3_clearning.prediction.next_actions import TablePolicy
from sb3_clearning.prediction.policy_future import PolicyFuture
from sb3_clearning.prediction.queries import UntrustedAnswerWarning
from sb3_clearning.replay.batch import GoalBatch
from sb3_clearning.replay.experience import Experience
from sb3_clearning.replay.goal_buffer import GoalReplayBuffer
from sb3_clearning.runs.checkpoint import ResumableCheckpoint
from sb3_clearning.runs.env_faults import EnvironmentDiedError, StepTimeout
from sb3_clearning.runs.lock import FolderInUseError
from sb3_clearning.runs.model_state import DivergedError

__version__ = "0.1.0"

__all__ = [
    "CLearning",
    "CLearningPolicy",
    "ClassifierCritic",
    "DivergedError",
    "EnvironmentDiedError",
    "Experience",
    "FolderInUseError",
    "FutureStateEstimator",
    "GoalBatch",
    "GoalEvalCallback",
    "GoalReplayBuffer",
    "GoalTD3",
    "HindsightQEstimator",
    "OneStepModel",
    "PinkActionNoise",
    "PolicyFuture",
    "ResumableCheckpoint",
    "StepTimeout",
    "TablePolicy",
    "UnreadableFileError",
    "UntrustedAnswerWarning",
    "__version__",
    "collect",
    "evaluate_goals",
    "load_from_hub",
    "push_to_hub",
]
