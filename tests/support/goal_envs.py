"""Small goal environments for the tests: seeded, fast, and without simulators."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import DTypeLike

Observation = dict[str, Any]


class PointEnv(gym.Env[Observation, np.ndarray]):
    """
    A point in the square [-1, 1]^2 that moves by its action. The bounds of the actions are neither symmetric nor those of
    the policy's scaled actions.

    :param dtype: Type of the observations
    :param length: Steps in an episode
    :param terminates: Whether reaching the goal truly ends the episode
    :param reward: The reward of every step
    :param action_shape: Shape of the actions, of two numbers
    :param extra: Whether there are further keys, of a Discrete and a MultiBinary space
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # which SB3 asks for

    def __init__(
        self,
        dtype: DTypeLike = np.float32,
        length: int = 10,
        terminates: bool = False,
        reward: float = 0.0,
        action_shape: tuple[int, ...] = (2,),
        extra: bool = False,
    ):
        low, high = np.array([-0.3, -0.1], dtype=np.float32), np.array([0.2, 0.4], dtype=np.float32)
        self.action_space = spaces.Box(low.reshape(action_shape), high.reshape(action_shape))
        goal_space = spaces.Box(-1.0, 1.0, (2,), dtype=dtype)  # type: ignore[arg-type]
        keys: dict[str, spaces.Space] = {
            "observation": spaces.Box(-1.0, 1.0, (3,), dtype=dtype),  # type: ignore[arg-type]
            "achieved_goal": goal_space,
            "desired_goal": goal_space,
        }
        if extra:
            keys.update(phase=spaces.Discrete(3), flags=spaces.MultiBinary(2))
        self.observation_space = spaces.Dict(keys)
        self.dtype, self.length, self.terminates, self.reward = dtype, length, terminates, reward
        self.position, self.goal, self.steps = np.zeros(2), np.zeros(2), 0

    def _observation(self) -> Observation:
        obs: Observation = {
            "observation": np.append(self.position, self.steps / self.length).astype(self.dtype),
            "achieved_goal": self.position.astype(self.dtype),
            "desired_goal": self.goal.astype(self.dtype),
        }
        if "phase" in self.observation_space.spaces:  # type: ignore[attr-defined]
            obs.update(phase=self.steps % 3, flags=(self.position > 0).astype(np.int8))
        return obs

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.position, self.goal = self.np_random.uniform(-1, 1, (2, 2))
        self.steps = 0
        return self._observation(), {}

    def _move(self, action: np.ndarray) -> None:
        self.position = np.clip(self.position + np.asarray(action, dtype=np.float64).reshape(2), -1, 1)

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(np.asarray(action, dtype=np.float32)), f"{action} is out of bounds"
        self._move(action)
        self.steps += 1
        success = bool(np.linalg.norm(self.position - self.goal) < 0.15)
        terminated = success and self.terminates
        truncated = not terminated and self.steps == self.length
        return self._observation(), self.reward, terminated, truncated, {"is_success": success}

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> np.ndarray:
        """Hindsight methods call it. Ours must not."""
        raise AssertionError("A reward was computed")


class PassesItsGoal(PointEnv):
    """
    A point with success on the way or at the end, depending on its goal: neither, one of them, or both. The reset says success
    too, and must not count.

    :param key: Under which name the success is reported; None: it is not
    """

    def __init__(self, key: str | None = "is_success"):
        super().__init__()
        self.key = key

    def _said(self, success: bool) -> dict[str, Any]:
        return {} if self.key is None else {self.key: success}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        observation, _ = super().reset(seed=seed, options=options)
        return observation, self._said(True)

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        *result, truncated, _ = super().step(action)
        passes, ends = self.goal > (0.0, 0.3)
        return *result, truncated, self._said(bool((passes and self.steps == 4) or (ends and truncated)))  # type: ignore


class ImageGoalEnv(PointEnv):
    """
    The same point with the goal, and the state, as an image: a bright square. The smallest that NatureCNN takes.

    :param channels_first: Whether the images are as PyTorch's, or have their channels last
    """

    SIZE = 36

    def __init__(self, channels_first: bool = True, length: int = 10):
        super().__init__(length=length)
        self.channels_first = channels_first
        shape = (1, self.SIZE, self.SIZE) if channels_first else (self.SIZE, self.SIZE, 1)
        image = spaces.Box(0, 255, shape, dtype=np.uint8)
        self.observation_space = spaces.Dict(
            {"observation": image, "achieved_goal": image, "desired_goal": image, "time": spaces.Box(0.0, 1.0, (1,))}
        )

    def draw(self, position: np.ndarray) -> np.ndarray:
        picture = np.zeros((self.SIZE, self.SIZE), dtype=np.uint8)
        row, column = ((position + 1) / 2 * (self.SIZE - 4)).astype(int)
        picture[row : row + 4, column : column + 4] = 255
        return picture[None] if self.channels_first else picture[..., None]

    def _observation(self) -> Observation:
        here = self.draw(self.position)
        time = np.array([self.steps / self.length], dtype=np.float32)
        return {"observation": here, "achieved_goal": here.copy(), "desired_goal": self.draw(self.goal), "time": time}


class RobotEnv(gym.Env[Observation, np.ndarray]):
    """
    An ordinary environment, without goals: a camera beside two joints and the time, which are in float64.

    :param name: The joints' key
    :param extra: Further parts of the observation's space
    """

    metadata: dict[str, Any] = {"render_modes": []}
    render_mode = None

    def __init__(self, name: str = "joints", length: int = 10, **extra: spaces.Space):
        self.name, self.length = name, length
        joints = spaces.Box(np.array([-1.0, -1.0, 0.0]), np.array([1.0, 1.0, np.inf]), dtype=np.float64)
        self.camera = ImageGoalEnv(channels_first=False)
        image = spaces.Box(0, 255, (ImageGoalEnv.SIZE, ImageGoalEnv.SIZE, 1), np.uint8)
        self.observation_space = spaces.Dict({"camera": image, name: joints, **extra})
        self.action_space = spaces.Box(-1.0, 1.0, (2,))
        self.joints, self.steps = np.zeros(2), 0

    def _observation(self) -> Observation:
        return {"camera": self.camera.draw(self.joints), self.name: np.append(self.joints, float(self.steps))}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.joints, self.steps = self.np_random.uniform(-1, 1, 2), 0
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self.joints = np.clip(self.joints + 0.2 * action, -1, 1)
        self.steps += 1
        return self._observation(), 7.0, False, self.steps == self.length, {}


class BrokenEnv(PointEnv):
    """
    A point whose observations have a bad value in one key.

    :param key: The key
    :param when: "step" (in the middle of an episode), "reset", or "terminal" (in the final observation)
    :param episode: In which episode, counted from 1
    :param value: The bad value
    """

    def __init__(self, key: str = "observation", when: str = "step", episode: int = 3, value: float = np.nan):
        super().__init__()
        self.key, self.when, self.bad_episode, self.value = key, when, episode, value
        self.episode = 0

    def _observation(self) -> Observation:
        obs = super()._observation()
        bad_step = {"reset": 0, "step": 4, "terminal": self.length}[self.when]
        if self.episode == self.bad_episode and self.steps == bad_step:
            obs[self.key][-1] = self.value
        return obs

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        self.episode += 1
        return super().reset(seed=seed, options=options)


class CorridorEnv(gym.Env[Observation, np.ndarray]):
    """
    A point on a line of cells, whose goals are cells. The best policy goes straight to the goal's cell and stays there, so its
    discounted future is known: p+(g | s, a) = gamma^d if d more steps lead from the next state into the cell g.
    """

    CELLS = 5
    SPEED = 0.6  # cells a step

    def __init__(self, length: int = 20):
        box = spaces.Box(-1.0, 1.0, (1,))
        self.observation_space = spaces.Dict({"observation": box, "achieved_goal": box, "desired_goal": box})
        self.action_space = spaces.Box(-1.0, 1.0, (1,))
        self.length, self.steps = length, 0
        self.position, self.goal = 0.0, 0

    @classmethod
    def observe(cls, position: float | np.ndarray, goal: int | np.ndarray) -> Observation:
        """:return: The observations at positions within [0, CELLS) with the cells of the goals"""

        def scaled(place: float | np.ndarray) -> np.ndarray:
            return (2 * np.asarray(place, dtype=np.float32) / cls.CELLS - 1).reshape(*np.shape(place), 1)

        return {
            "observation": scaled(position),
            "achieved_goal": scaled(np.floor(position) + 0.5),
            "desired_goal": scaled(np.asarray(goal) + 0.5),
        }

    @classmethod
    def move(cls, position: float, action: float) -> float:
        return float(np.clip(position + cls.SPEED * np.clip(action, -1, 1), 0, cls.CELLS - 1e-3))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = self.np_random.uniform(0, self.CELLS - 1e-3)
        self.goal, self.steps = int(self.np_random.integers(self.CELLS)), 0
        return self.observe(self.position, self.goal), {}

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self.position = self.move(self.position, float(action[0]))
        self.steps += 1
        success = int(self.position) == self.goal
        return self.observe(self.position, self.goal), 0.0, False, self.steps == self.length, {"is_success": success}


def make(env_class: Callable[..., gym.Env], *args: Any, **kwargs: Any) -> Callable[[], gym.Env]:
    """:return: A function that makes the environment, for vectorized environments"""
    return lambda: env_class(*args, **kwargs)


POINT_ID = "SB3CLearningTestPoint-v0"
if POINT_ID not in gym.registry:
    gym.register(POINT_ID, entry_point=f"{__name__}:PointEnv", max_episode_steps=8)
