"""
A robot as hardware is: another process, with latency and dropped frames. ``python examples/robot_arm.py``, some three minutes.

Ctrl-C stops the arm, and the same command resumes the training, also on the next day.
"""

import argparse
import multiprocessing
import signal
import time
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from sb3_clearning import CLearning, ResumableCheckpoint


def arm(connection: Connection, latency: float, dropped: float) -> None:
    """The hardware: two joints that follow commanded velocities. A share of its camera frames is lost."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training; it stops the arm
    rng, angles = np.random.default_rng(0), np.array([0.5, 0.5])
    while (velocity := connection.recv()) is not None:
        angles = np.clip(angles + 0.1 * velocity + 0.002 * rng.standard_normal(2), [-np.pi, 0.1], [np.pi, 3.0])
        time.sleep(latency)
        connection.send(None if rng.random() < dropped else angles.copy())


class RobotArm(gym.Env):
    """Reach a point with the tip. What is not Markov on a robot is in the observation: the last command, the frame's age."""

    reach, max_change = 0.1, 0.5

    def __init__(self, latency: float, dropped: float, length: float):
        goal = spaces.Box(-2.0, 2.0, (2,))
        observation = spaces.Box(-np.inf, np.inf, (7,))
        self.observation_space = spaces.Dict(observation=observation, achieved_goal=goal, desired_goal=goal)
        self.action_space = spaces.Box(-1.0, 1.0, (2,))
        self.length, self.steps, self.age = length, 0, 0
        self.command, self.goal, self.angles = np.zeros(2), np.zeros(2), np.zeros(2)
        context = multiprocessing.get_context("spawn")
        self.robot, other_end = context.Pipe()
        context.Process(target=arm, args=(other_end, latency, dropped), daemon=True).start()

    def _move(self, velocity: np.ndarray) -> None:
        self.robot.send(velocity)
        if not self.robot.poll(10):
            raise TimeoutError("The arm did not answer for 10 s.")  # the training stops, and keeps its last checkpoint
        frame = self.robot.recv()
        self.age = self.age + 1 if frame is None else 0
        self.angles = self.angles if frame is None else frame

    def tip(self, angles: np.ndarray) -> np.ndarray:
        """:return: Where the tip is"""
        first, both = angles[0], angles.sum()
        return np.array([np.cos(first) + np.cos(both), np.sin(first) + np.sin(both)])

    def _observe(self) -> dict[str, np.ndarray]:
        state = np.concatenate([np.cos(self.angles), np.sin(self.angles), self.command, [self.age]])
        found = {"observation": state, "achieved_goal": self.tip(self.angles), "desired_goal": self.goal}
        return {key: value.astype(np.float32) for key, value in found.items()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A partial reset: the arm stops and stays where it is. Only the goal is new."""
        super().reset(seed=seed)
        self.command, self.steps = np.zeros(2), 0
        self._move(self.command)
        self.goal = self.tip(self.np_random.uniform([-2.0, 0.3], [2.0, 2.5]))
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The limit of the action's rate is here, where no policy can get around it."""
        self.command = self.command + np.clip(action - self.command, -self.max_change, self.max_change)
        self._move(self.command)
        self.steps += 1
        obs = self._observe()
        success = bool(np.linalg.norm(obs["achieved_goal"] - self.goal) < self.reach)
        return obs, 0.0, False, self.steps >= self.length, {"is_success": success}

    def close(self) -> None:
        """Stop the arm, then switch it off."""
        self.robot.send(np.zeros(2))
        self.robot.send(None)


def main() -> None:
    """Train or resume, then command a goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5_000, help="steps of the arm in all")
    parser.add_argument("--latency", type=float, default=0.01, help="seconds until a frame arrives")
    parser.add_argument("--dropped", type=float, default=0.05, help="share of frames that are lost")
    parser.add_argument("--endless", action="store_true", help="episodes never end; updates every 50 steps")
    parser.add_argument("--folder", default="runs/robot_arm", help="checkpoints")
    options = parser.parse_args()

    env = RobotArm(options.latency, options.dropped, length=float("inf") if options.endless else 50)
    checkpoint = ResumableCheckpoint(options.folder, every=1_000, replay=False)
    try:
        if checkpoint.exists():
            model = CLearning.resume(options.folder, env)
            print(f"resumed at step {model.num_timesteps:,}")
        else:
            # As many updates as steps, but while the arm stands still.
            frequency: Any = (50, "step") if options.endless else (1, "episode")
            start = min(500, options.steps // 2)
            model = CLearning(
                "MultiInputPolicy", env, train_freq=frequency, gradient_steps=-1, learning_starts=start, seed=0, verbose=1
            )
        model.learn(options.steps, callback=checkpoint)

        observation, _ = env.reset(seed=1)
        goal = np.array([1.0, 1.0], dtype=np.float32)
        for _ in range(50):
            observation["desired_goal"] = goal  # the command
            action, _ = model.predict(observation, deterministic=True)
            observation = env.step(action)[0]
        print(f"commanded {goal}, reached {observation['achieved_goal'].round(2)}")
    finally:
        env.close()


if __name__ == "__main__":  # the arm's process imports this file
    main()
