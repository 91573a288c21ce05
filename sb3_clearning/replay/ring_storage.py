"""RingStorage: the arrays of a ring of transitions, in which each state is stored once, and how they are read."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common import buffers as sb3_buffers
from stable_baselines3.common.buffers import BaseBuffer, DictReplayBuffer
from stable_baselines3.common.utils import get_device

from sb3_clearning.checks import check_number
from sb3_clearning.goal_spaces import check_goal_space
from sb3_clearning.replay.device_array import DeviceArray
from sb3_clearning.replay.experience import Transitions

#: Attributes that pickles of 0.1.0 have under another name.
_OLD_NAMES = {
    **{"_rows": "rows", "_side": "non_float", "_kept": "next_slot", "_last": "episode_end", "_free": "free_slots"},
    **{"_kept_rows": "slot_rows", "_kept_side": "slot_non_float", "_kept_terminated": "slot_terminated"},
    **{"_open": "in_progress", "_length": "episode_steps", "added": "total_added"},
    **{"_columns": "columns", "_features": "n_features", "_action_columns": "action_columns"},
}


class RingStorage(DictReplayBuffer):
    """
    The storage of :class:`GoalReplayBuffer`, which documents the arguments.

    The next state of a transition is the following row of the ring. Where there is no such row (an episode ended, or the
    transition is the newest), a slot beside the ring holds it. All float keys and the action share one row of one matrix, so
    that a batch is one gather whatever the number of keys.
    """

    observation_space: spaces.Dict

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: th.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        buffer_device: th.device | str | None = None,
    ):
        check_number("buffer_size", buffer_size, 1, whole=True)
        check_number("n_envs", n_envs, 1, whole=True)
        check_goal_space(observation_space)
        if not isinstance(action_space, spaces.Box):
            raise ValueError(f"GoalReplayBuffer needs a Box action space, not {action_space}.")
        # Skips ReplayBuffer's and DictReplayBuffer's constructors, which allocate rewards and both observations.
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self.optimize_memory_usage = False
        self.buffer_size = max(buffer_size // n_envs, 1)
        self.buffer_device = self._checked_device(buffer_device, self.device)

        self._warnings: set[str] = set()  # those that were shown: each is shown once
        self.columns: dict[str, slice] = {}
        self.n_features = 0
        for key, space in self.observation_space.spaces.items():
            if np.issubdtype(space.dtype, np.floating):
                size = int(np.prod(self.obs_shape[key]))
                self.columns[key] = slice(self.n_features, self.n_features + size)
                self.n_features += size
        self.action_columns = slice(self.n_features, self.n_features + self.action_dim)
        self._describe_columns()
        self._allocate()
        self._warn_if_too_large()

    def _describe_columns(self) -> None:
        """Compute once what every step needs of the columns."""
        # Numbers in a step of all environments.
        self._sizes = [(key, self.n_envs * int(np.prod(shape))) for key, shape in self.obs_shape.items()]
        # All float keys but the commanded goal, which is not part of the state.
        self._state_columns = np.delete(np.arange(self.n_features), self.columns.get("desired_goal", slice(0)))
        self._layout = {key: (self.columns.get(key), shape) for key, shape in self.obs_shape.items()}

    @staticmethod
    def _checked_device(buffer_device: th.device | str | None, device: th.device) -> th.device | None:
        """:return: Where states are stored, as SB3 finds a device: the CPU if there is no CUDA. None: NumPy's arrays"""
        if buffer_device is None:
            return None
        try:
            found = get_device(buffer_device)
        except (RuntimeError, TypeError) as error:
            raise ValueError(f'`buffer_device` must be a device such as "cuda", or None, not {buffer_device!r}.') from error
        if found.type != device.type:
            raise ValueError(
                f"`buffer_device` is {found}, but the networks are on {device}: every batch would be copied. Set "
                "`device` to the same, or leave `buffer_device` out of `replay_buffer_kwargs`."
            )
        return found

    def _zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """:return: An array for states where they are stored. ``np.zeros`` takes no memory before it is written to"""
        return np.zeros(shape, dtype) if self.buffer_device is None else DeviceArray.zeros(shape, dtype, self.buffer_device)

    def _allocate(self) -> None:
        """Make the empty arrays. Those of states may be on a device; what a sample is found by is always on the host."""
        size = self.buffer_size * self.n_envs

        def zeros(n: int) -> dict[str, np.ndarray]:
            """Arrays for the non-float keys, in their own dtype."""
            others = {key: space for key, space in self.observation_space.spaces.items() if key not in self.columns}
            return {key: self._zeros((n, *self.obs_shape[key]), space.dtype) for key, space in others.items()}

        # Steps that were ever added, overwritten ones included: step `i` is at the ring position `i % buffer_size`. A ring
        # that was filled from a smaller one counts from the oldest step of that one.
        self.total_added = 0
        # Row `pos * n_envs + env`: the state, the commanded goal and the action.
        self.rows: np.ndarray = self._zeros((size, self.action_columns.stop), np.float32)
        self.non_float = zeros(size)
        # The slot of the next state, or -1 if that is the following row.
        self.next_slot = np.zeros(size, dtype=np.int32)
        # The ring position at which the row's episode ended, or -1 while it is in progress.
        self.episode_end = np.zeros(size, dtype=np.int32)

        # The first n_envs slots hold the newest next state of each environment, the others the final states.
        capacity = 2 * self.n_envs
        self.slot_rows: np.ndarray = self._zeros((capacity, self.n_features), np.float32)
        self.slot_non_float = zeros(capacity)
        self.slot_terminated = np.zeros(capacity, dtype=bool)
        self.free_slots = list(range(self.n_envs, capacity))

        # For each environment: whether the newest row's episode is in progress, and the number of its rows so far.
        self.in_progress = np.zeros(self.n_envs, dtype=bool)
        self.episode_steps = np.zeros(self.n_envs, dtype=np.int64)
        self._pending = np.arange(self.n_envs, dtype=np.int32)
        # The environments whose episodes ended at the newest step, and the episodes' lengths, if the final observations may be
        # false: the next step decides.
        self._unverified: tuple[np.ndarray, np.ndarray] | None = None
        if self.buffer_device is not None:
            # A step is compared with the newest states. Copies on the host save waiting for the device.
            self._host_rows = np.zeros((self.n_envs, self.n_features), dtype=np.float32)
            self._host_non_float = {
                key: np.zeros((self.n_envs, *self.obs_shape[key]), array.dtype) for key, array in self.non_float.items()
            }

    @property
    def newest_rows(self) -> np.ndarray:
        """:return: The float keys of each environment's newest next state, on the host"""
        return self.slot_rows[: self.n_envs] if self.buffer_device is None else self._host_rows

    @property
    def newest_non_float(self) -> dict[str, np.ndarray]:
        """:return: The other keys of each environment's newest next state, on the host"""
        if self.buffer_device is not None:
            return self._host_non_float
        return {key: array[: self.n_envs] for key, array in self.slot_non_float.items()}

    def copy_newest_to_host(self) -> None:
        """Call after the slots were written directly."""
        if self.buffer_device is not None:
            self._host_rows = np.array(self.slot_rows[: self.n_envs])
            self._host_non_float = {key: np.array(array[: self.n_envs]) for key, array in self.slot_non_float.items()}

    def move_to(self, device: th.device, buffer_device: th.device | str | None) -> None:
        """Sample for networks on another device, and store the states on ``buffer_device`` (None: in NumPy's arrays)."""
        checked = self._checked_device(buffer_device, device)
        self.device = device
        if checked == self.buffer_device:
            return
        self.buffer_device = checked

        def moved(array: Any) -> Any:
            stored = self._zeros(array.shape, array.dtype)
            stored[:] = np.asarray(array)
            return stored

        self.rows, self.slot_rows = moved(self.rows), moved(self.slot_rows)
        self.non_float = {key: moved(array) for key, array in self.non_float.items()}
        self.slot_non_float = {key: moved(array) for key, array in self.slot_non_float.items()}
        self.copy_newest_to_host()

    def _warn_once(self, message: str) -> None:
        kind = message.split(":")[0]
        if kind not in self._warnings:
            self._warnings.add(kind)
            warnings.warn(message, stacklevel=5)

    def _warn_if_too_large(self) -> None:
        arrays = (self.rows, self.next_slot, self.episode_end, *self.non_float.values())
        needed = sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
        if sb3_buffers.psutil is not None and needed > (available := sb3_buffers.psutil.virtual_memory().available):
            warnings.warn(
                "This system does not have apparently enough memory to store the complete "
                f"replay buffer {needed / 1e9:.2f}GB > {available / 1e9:.2f}GB: pass a smaller `buffer_size`.",
                stacklevel=2,
            )

    def reset(self) -> None:
        """Empty the buffer."""
        super().reset()
        self._allocate()

    @property
    def only_floats(self) -> bool:
        """:return: Whether all keys are floating point, so that a state is one row"""
        return not self.non_float

    @property
    def observations(self) -> dict[str, np.ndarray]:  # type: ignore[override]
        """:return: The stored observations of every key, ``(buffer_size, n_envs, …)``"""
        stored = {key: np.asarray(self._value(key, self.rows, self.non_float)) for key in self.observation_space.spaces}
        return {key: array.reshape(self.buffer_size, self.n_envs, *self.obs_shape[key]) for key, array in stored.items()}

    @property
    def actions(self) -> np.ndarray:  # type: ignore[override]
        """:return: The stored actions, ``(buffer_size, n_envs, action_dim)``"""
        return np.asarray(self.rows[:, self.action_columns]).reshape(self.buffer_size, self.n_envs, self.action_dim)

    def float_states(self, at_most: int = 100_000) -> dict[str, np.ndarray]:
        """
        :param at_most: How many states are enough
        :return: Stored states evenly over the buffer, with their commanded goals, ``(n, …)`` per floating-point key
        """
        check_number("at_most", at_most, 1, whole=True)
        stored = self.size() * self.n_envs
        return self._split(np.asarray(self.rows[: stored : max(-(-stored // at_most), 1)]))

    def _split(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """:return: The float keys of rows"""
        return {key: rows[:, columns].reshape(-1, *self.obs_shape[key]) for key, columns in self.columns.items()}

    @property
    def n_episodes(self) -> int:
        """:return: How many episodes are stored, in whole or in part, those in progress included"""
        stored = self.next_slot[: self.size() * self.n_envs]
        return int(np.count_nonzero(stored >= self.n_envs) + np.count_nonzero(self.in_progress))

    @property
    def has_open_episodes(self) -> bool:
        """:return: Whether an episode is in progress"""
        return bool(self.in_progress.any())

    @property
    def oldest_step(self) -> int:
        """:return: The oldest step that is not overwritten"""
        return self.total_added - self.size()

    @property
    def immutable_until(self) -> int:
        """:return: The first step that can still change: the start of the oldest episode in progress"""
        longest = int(self.episode_steps[self.in_progress].max()) if self.has_open_episodes else 0
        if self._unverified is not None:
            longest = max(longest, int(self._unverified[1].max()))
        return self.total_added - min(longest, self.size())

    # -- reading -----------------------------------------------------------------------------------------------------------

    def _next_rows(self, index: np.ndarray, slot: np.ndarray) -> np.ndarray:
        """
        :param index: Transitions
        :param slot: Their ``next_slot``
        :return: The float keys of the next states
        """
        following = self.rows.take(index + self.n_envs, axis=0, mode="wrap")[..., : self.n_features]
        return self._fill_from_slots(following, self.slot_rows, slot)

    def _next_non_float(self, key: str, index: np.ndarray, slot: np.ndarray) -> np.ndarray:
        """:return: Like :meth:`_next_rows`, for a non-float key"""
        following = self.non_float[key].take(index + self.n_envs, axis=0, mode="wrap")
        return self._fill_from_slots(following, self.slot_non_float[key], slot)

    @staticmethod
    def _fill_from_slots(following: np.ndarray, slots: np.ndarray, slot: np.ndarray) -> np.ndarray:
        aside = (slot >= 0).nonzero()
        following[aside] = slots[slot[aside]]
        return following

    def _value(self, key: str, rows: np.ndarray, non_float: Mapping[str, np.ndarray]) -> np.ndarray:
        """:return: One key of states, flat if it is floating point"""
        return rows[..., self.columns[key]] if key in self.columns else non_float[key]

    def _reached_goals(self, index: np.ndarray) -> np.ndarray:
        """:return: What the transitions' next states achieve, flat if goals are floating point"""
        slot = self.next_slot[index]
        if "achieved_goal" in self.columns:
            return self._next_rows(index, slot)[..., self.columns["achieved_goal"]]
        return self._next_non_float("achieved_goal", index, slot)

    def _commanded_goals(self, index: np.ndarray) -> np.ndarray:
        """:return: The transitions' commanded goals, flat if goals are floating point"""
        return self._value("desired_goal", self.rows, self.non_float)[index]

    def random_goals(self, at_most: int, commanded_fraction: float = 0.0, seed: int | None = None) -> np.ndarray:
        """
        Draw from the distribution of training's random goals: what the next states of transitions achieve, and a share of
        commanded goals. Any number of the first goals has that share, too.

        :param at_most: Number of goals, one for each of as many transitions; fewer if fewer are stored
        :param commanded_fraction: The share of commanded goals
        :param seed: The seed of the draw
        :return: ``(n, …)``
        """
        check_number("at_most", at_most, 1, whole=True)
        check_number("commanded_fraction", commanded_fraction, 0, 1)
        stored = self.size() * self.n_envs
        index = np.random.default_rng(seed).choice(stored, min(at_most, stored), replace=False)
        commanded = np.diff(np.floor(np.arange(len(index) + 1) * commanded_fraction)) > 0
        goals = self._reached_goals(index)
        goals[commanded] = self._commanded_goals(index[commanded])
        return np.asarray(goals).reshape(-1, *self.obs_shape["achieved_goal"])

    def transitions(self) -> Transitions:
        """:return: All that is stored, one environment after the other and each in order of time"""
        size = self.size()
        positions = (np.arange(size) + (self.pos if self.full else 0)) % self.buffer_size
        index = (positions[None] * self.n_envs + np.arange(self.n_envs)[:, None]).reshape(-1)
        slot, rows = self.next_slot[index], np.asarray(self.rows[index])
        observations = {**self._split(rows), **{key: np.asarray(stored[index]) for key, stored in self.non_float.items()}}
        next_observations = self._split(np.asarray(self._next_rows(index, slot)))
        next_observations.update({key: np.asarray(self._next_non_float(key, index, slot)) for key in self.non_float})
        terminated = np.where(slot >= self.n_envs, self.slot_terminated[slot], False)
        over = slot >= 0  # the episode ended, or has not been continued yet
        return Transitions(observations, next_observations, rows[:, self.action_columns], terminated, over & ~terminated)

    # -- saving --------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """:return: What pickle saves: the filled rows only, and NumPy's arrays wherever they are stored"""
        filled = self.size() * self.n_envs
        state = self.__dict__.copy()
        for name in ("rows", "next_slot", "episode_end"):
            state[name] = np.asarray(state[name][:filled])
        state["non_float"] = {key: np.asarray(array[:filled]) for key, array in self.non_float.items()}
        state["slot_rows"] = np.asarray(self.slot_rows)
        state["slot_non_float"] = {key: np.asarray(array) for key, array in self.slot_non_float.items()}
        state["buffer_device"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """:param state: What pickle saved"""
        self.__dict__.update({_OLD_NAMES.get(name, name): value for name, value in state.items()})
        self._describe_columns()
        self.__dict__.setdefault("_unverified", None)
        self.__dict__.setdefault("buffer_device", None)
        self.__dict__.setdefault("_warnings", set())
        # Early pickles lack `total_added`: any number that gives the position and the size will do.
        self.__dict__.setdefault("total_added", self.pos + (self.buffer_size if self.full else 0))
        size = self.buffer_size * self.n_envs

        def lengthen(array: np.ndarray) -> np.ndarray:
            longer = np.zeros((size, *array.shape[1:]), dtype=array.dtype)
            longer[: len(array)] = array
            return longer

        for name in ("rows", "next_slot", "episode_end"):
            setattr(self, name, lengthen(getattr(self, name)))
        self.non_float = {key: lengthen(array) for key, array in self.non_float.items()}
