"""
Tuning with Optuna in Python: discount, mixing and noise for an environment of your own. rl-zoo3's commands do the same
without code.

``python examples/tuning.py``, some ten minutes. The study is in tuning.db: the same command adds trials, on several machines,
too.
"""

import argparse

import gymnasium as gym
import optuna

import sb3_clearning.envs  # noqa: F401 (registers the gridworld)
from sb3_clearning import CLearning, evaluate_goals

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--trials", type=int, default=20, help="number of trials")
parser.add_argument("--steps", type=int, default=2_000, help="environment steps of a trial")
options = parser.parse_args()


def make_env() -> gym.Env:
    """The task to tune for."""
    return gym.make("ContinuousGridworld-v0", max_episode_steps=20)


def objective(trial: optuna.Trial) -> float:
    """Mean distance to the goal over the evaluation episodes, which is finer than success."""
    model = CLearning(
        "MultiInputPolicy",
        make_env(),
        # The horizon 1 / (1 - gamma), evenly on a logarithmic scale
        gamma=1 - trial.suggest_float("one_minus_gamma", 0.02, 0.7, log=True),
        lambda_=trial.suggest_float("lambda_", 0.0, 1.0),
        noise_std=trial.suggest_float("noise_std", 0.05, 0.5),
        learning_starts=min(300, options.steps // 2),
        policy_kwargs=dict(net_arch=[64, 64]),
        seed=trial.number,
    )
    for part in range(1, 3):
        model.learn(options.steps // 2, reset_num_timesteps=part == 1)
        average = evaluate_goals(model, make_env, n_episodes=20)["average"]
        trial.report(average, part)
        if trial.should_prune():
            raise optuna.TrialPruned
    return average


study = optuna.create_study(storage="sqlite:///tuning.db", study_name="gridworld", direction="minimize", load_if_exists=True)
study.optimize(objective, n_trials=options.trials)
best = study.best_params
print(
    f"best of {len(study.trials)}: mean distance {study.best_value:.2f} with gamma {1 - best['one_minus_gamma']:.3f}, {best}"
)
