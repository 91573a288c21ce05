"""A robot arm learns to reach: train, evaluate, save, load. ``python examples/first_agent.py``, some two minutes."""

import argparse

import gymnasium as gym
import gymnasium_robotics

from sb3_clearning import CLearning, evaluate_goals

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=5_000, help="environment steps")
parser.add_argument("--episodes", type=int, default=20, help="episodes of the evaluation")
options = parser.parse_args()

gym.register_envs(gymnasium_robotics)
model = CLearning("MultiInputPolicy", gym.make("FetchReach-v4"), learning_starts=min(1000, options.steps // 2), seed=0)
model.learn(options.steps)

measured = evaluate_goals(model, lambda: gym.make("FetchReach-v4"), n_episodes=options.episodes)
print(f"success {measured['success']:.2f}, distance {100 * measured['initial']:.1f} → {100 * measured['final']:.1f} cm")

model.save("first_agent.zip")
agent = CLearning.load("first_agent.zip")  # no environment is needed to act
observation, _ = gym.make("FetchReach-v4").reset(seed=0)
print("first action:", agent.predict(observation, deterministic=True)[0].round(2))
