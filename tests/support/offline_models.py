"""A small model with data whose actions follow a known rule."""

from typing import Any

import numpy as np
from gymnasium import spaces

from sb3_clearning import CLearning
from sb3_clearning.common.goal_algorithm import GoalAlgorithm

N = 400


def offline_model(algorithm: type[GoalAlgorithm] = CLearning, stochastic: bool = False, **arguments: Any) -> GoalAlgorithm:
    """:return: A model with data in which the action is half of the first coordinate, and noise"""
    keys = ("observation", "achieved_goal", "desired_goal")
    model = algorithm.from_spaces(
        spaces.Dict({key: spaces.Box(-1, 1, (2,), np.float32) for key in keys}),
        spaces.Box(-1, 1, (2,), np.float32),
        **{
            "policy_kwargs": {"net_arch": [32], "stochastic_actor": stochastic},
            "learning_rate": 3e-3,
            "seed": 0,
            "device": "cpu",
            "buffer_size": 1000,
            "gamma": 0.5,
            **arguments,
        },
    )
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, (N + 1, 2)).astype(np.float32)
    actions = (0.5 * states[:-1, :1] + rng.normal(0, 0.1, (N, 2))).clip(-1, 1).astype(np.float32)
    model.replay_buffer.load_arrays(
        dict.fromkeys(keys, states[:-1]),
        actions,
        terminations=np.zeros(N, dtype=bool),
        truncations=np.arange(N) % 20 == 19,
        next_observations=dict.fromkeys(keys, states[1:]),
    )
    return model
