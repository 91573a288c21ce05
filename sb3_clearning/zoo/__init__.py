"""rl-zoo3's commands for C-learning and its baselines: registration, hyperparameter search and default hyperparameters."""

from sb3_clearning.zoo.registration import algorithms, register

__all__ = ["algorithms", "register"]
