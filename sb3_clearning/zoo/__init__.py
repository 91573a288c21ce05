"""rl-zoo3's commands for C-learning and its baselines: registration, hyperparameter search and default hyperparameters."""

from sb3_clearning.zoo.algorithms import algorithms
from sb3_clearning.zoo.registration import register

__all__ = ["algorithms", "register"]
