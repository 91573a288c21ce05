"""Makes the code of the documentation short: the same calls with fewer steps."""

from typing import Any

import pytest
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

import sb3_clearning
from sb3_clearning import FutureStateEstimator, GoalEvalCallback
from sb3_clearning.common.goal_algorithm import GoalAlgorithm

STEPS, WARM_UP, UPDATES, EPISODES = 40, 30, 10, 2


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    learn, learn_offline, fit = OffPolicyAlgorithm.learn, GoalAlgorithm.learn_offline, FutureStateEstimator.fit
    evaluate = sb3_clearning.evaluate_goals

    def short_learn(self: Any, total_timesteps: int, *args: Any, **kwargs: Any) -> Any:
        self.learning_starts = min(self.learning_starts, WARM_UP)
        return learn(self, min(total_timesteps, STEPS), *args, **kwargs)

    def short_offline(self: Any, gradient_steps: int, *args: Any, **kwargs: Any) -> Any:
        return learn_offline(self, min(gradient_steps, UPDATES), *args, **kwargs)

    def short_fit(self: Any, *args: Any, steps: int = 10_000, **kwargs: Any) -> Any:
        return fit(self, *args, **{**kwargs, "steps": min(steps, UPDATES)})

    def short_evaluation(model: Any, make_env: Any, n_episodes: int = 50, **kwargs: Any) -> Any:
        return evaluate(model, make_env, min(n_episodes, EPISODES), **kwargs)

    class ShortEvalCallback(GoalEvalCallback):
        def __init__(self, env: Any, eval_freq: int = 10_000, n_eval_episodes: int = 20, **kwargs: Any):
            super().__init__(env, min(eval_freq, STEPS // 2), min(n_eval_episodes, EPISODES), **kwargs)

    monkeypatch.setattr(sb3_clearning, "GoalEvalCallback", ShortEvalCallback)
    monkeypatch.setattr(sb3_clearning, "evaluate_goals", short_evaluation)
    monkeypatch.setattr(OffPolicyAlgorithm, "learn", short_learn)
    monkeypatch.setattr(GoalAlgorithm, "learn_offline", short_offline)
    monkeypatch.setattr(FutureStateEstimator, "fit", short_fit)
