"""
Where will an agent be? The density of the future of any SB3 agent, here a SAC agent on the pendulum, from its own replay
buffer.

``python examples/future_of_an_agent.py``, some three minutes.
"""

import argparse

import numpy as np
from stable_baselines3 import SAC

from sb3_clearning import FutureStateEstimator

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=5_000, help="environment steps of the agent, and batches of the estimator")
options = parser.parse_args()

agent = SAC("MlpPolicy", "Pendulum-v1", learning_starts=100, seed=0).learn(options.steps)

# What is predicted: cosine and sine of the angle. How far ahead: 1 / (1 - gamma) = 20 steps.
estimator = FutureStateEstimator(gamma=0.95, crop=[0, 1], seed=0)
estimator.fit(agent.replay_buffer, policy=agent, steps=options.steps)

hanging = np.array([-1.0, 0.0, 0.0], dtype=np.float32)
for torque in (-2.0, 2.0):
    action = np.array([torque], dtype=np.float32)
    up = estimator.probability(hanging, action, lambda states: states[:, 0] > 0.9)
    cosine, sine = estimator.expected_future_state(hanging, action)
    print(f"torque {torque:+.0f}: upright with probability {up.value:.3f} ± {up.standard_error:.3f}; "
          f"on average at cosine {cosine:+.2f}, sine {sine:+.2f}")  # fmt: skip

# Any reward, without learning again: the value of being high up.
value = estimator.expected_reward(hanging, None, lambda states: states[:, 0])
print(f"expected cosine under the agent's own action: {value.value:+.2f}; value {value.value / (1 - estimator.gamma):+.1f}")
