"""
One agent from a thousand environments at once: a ball in a U-shaped maze, until it reaches 95% of the goals.

``python examples/many_environments.py``; to compare, ``--n-envs 1 --gradient-steps 1``. Data is nearly free here: each step of
all environments is followed by several updates.
"""

import argparse
import time

from sb3_clearning import CLearning, evaluate_goals
from sb3_clearning.envs import BatchedPointMaze

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--n-envs", type=int, default=1024, help="environments that take steps together")
parser.add_argument("--gradient-steps", type=int, default=32, help="updates after each step of all environments")
parser.add_argument("--updates", type=int, default=40_000, help="at most so many updates")
parser.add_argument("--every", type=int, default=1000, help="updates between two evaluations")
parser.add_argument("--episodes", type=int, default=200, help="episodes of an evaluation")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

model = CLearning(
    "MultiInputPolicy",
    BatchedPointMaze(options.n_envs),
    # Every environment's share of the buffer has to hold an episode.
    buffer_size=max(1_000_000, 2 * BatchedPointMaze.episode_length * options.n_envs),
    # A whole episode of random actions: steps of all environments are nearly free.
    learning_starts=BatchedPointMaze.episode_length * options.n_envs if options.n_envs > 1 else 1000,
    gradient_steps=options.gradient_steps,
    seed=options.seed,
    device="cpu",
)
evaluation = BatchedPointMaze(options.episodes)
started, used, updates, success = time.time(), time.process_time(), 0, 0.0
while success < 0.95 and updates < options.updates:
    steps = max(options.every // options.gradient_steps, 1) * options.n_envs
    model.learn(steps + (model.learning_starts if not updates else 0), reset_num_timesteps=False)
    updates += max(options.every // options.gradient_steps, 1) * options.gradient_steps
    success = evaluate_goals(model, evaluation, n_episodes=options.episodes)["success"]
    print(
        f"{model.num_timesteps} transitions, {updates} updates, {time.time() - started:.0f} s "
        f"({time.process_time() - used:.0f} s of the CPU): success {success:.2f}",
        flush=True,
    )
