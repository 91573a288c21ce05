"""
Learning from recorded data alone: arrays of states and actions, without rewards and without a step in the environment.

``python examples/offline_data.py``, some three minutes.
"""

import argparse

import gymnasium as gym
import numpy as np

import sb3_clearning.envs  # noqa: F401 (registers the maze)
from sb3_clearning import CLearning, evaluate_goals

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=10_000, help="gradient steps")
parser.add_argument("--transitions", type=int, default=20_000, help="steps of random behavior to record")
parser.add_argument("--episodes", type=int, default=20, help="episodes of the evaluation")
options = parser.parse_args()

# The recording: whatever a robot did. Here random actions, held for ten steps each so that they lead somewhere.
env = gym.make("PointUMaze-v0")
env.action_space.seed(0)
observation, _ = env.reset(seed=0)
states, actions, next_states, ends = [], [], [], []
for step in range(options.transitions):
    action = env.action_space.sample() if step % 10 == 0 else actions[-1]
    following, _, _, truncated, _ = env.step(action)
    states.append(observation["observation"])
    actions.append(action)
    next_states.append(following["observation"])
    ends.append(truncated)
    observation = env.reset()[0] if truncated else following

model = CLearning("MultiInputPolicy", env, seed=0)
model.replay_buffer.load_arrays(
    np.stack(states),
    np.stack(actions),
    terminations=np.zeros(len(states), dtype=bool),
    truncations=np.array(ends),
    next_observations=np.stack(next_states),
    crop=[0, 1],  # the goal is the place, not the velocity
)
print(f"{model.replay_buffer.size():,} transitions; no reward among them")
model.learn_offline(options.steps, log_interval=1000)
measured = evaluate_goals(model, lambda: gym.make("PointUMaze-v0"), n_episodes=options.episodes)
print(f"success {measured['success']:.2f}, distance {measured['initial']:.2f} → {measured['final']:.2f}")
