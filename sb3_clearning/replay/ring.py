"""EpisodeRing: a ring of transitions of parallel environments in which a state is stored once."""

import warnings
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common import buffers as sb3_buffers
from stable_baselines3.common.buffers import BaseBuffer

from sb3_clearning.checks import check_number
from sb3_clearning.goal_spaces import check_goal_space
from sb3_clearning.replay.datasets import Transitions
from sb3_clearning.replay.ring_file import RingFiles


class EpisodeRing(RingFiles):
    """
    The storage of :class:`GoalReplayBuffer`.

    The next state of a transition is the following row of the ring, and only where an episode was cut (or has not gone on yet)
    it is kept aside. All float keys and the action share one row of one matrix, so that a batch is one gather whatever the
    number of keys.

    :param buffer_size: Number of transitions, over all environments
    :param observation_space: A Dict with ``observation``, ``achieved_goal``, ``desired_goal`` and any other keys
    :param action_space: A Box
    :param device: PyTorch device of the samples
    :param n_envs: Number of parallel environments
    :param optimize_memory_usage: Has no effect: states are always stored once
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: th.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
    ):
        check_number("buffer_size", buffer_size, 1, whole=True)
        check_number("n_envs", n_envs, 1, whole=True)
        check_goal_space(observation_space)
        if not isinstance(action_space, spaces.Box):
            raise ValueError(f"GoalReplayBuffer needs a Box action space, not {action_space}.")
        # Past ReplayBuffer's and DictReplayBuffer's constructors, which allocate rewards and both observations.
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self.optimize_memory_usage = False
        self.buffer_size = max(buffer_size // n_envs, 1)

        self._shapes: dict[str, tuple[int, ...]] = self.obs_shape
        self._columns: dict[str, slice] = {}
        self._side_dtypes: dict[str, np.dtype] = {}
        width = 0
        for key, space in self.observation_space.spaces.items():
            if np.issubdtype(space.dtype, np.floating):
                size = int(np.prod(self._shapes[key]))
                self._columns[key] = slice(width, width + size)
                width += size
            else:  # images and the like keep their own type
                self._side_dtypes[key] = np.dtype(space.dtype)
        self._features = width
        self._action_columns = slice(width, width + self.action_dim)
        self._width = width + self.action_dim
        self._describe_columns()
        self._allocate()
        self._warn_if_too_large()

    def _describe_columns(self) -> None:
        """What follows from the columns, so that a step need not find it out."""
        # Numbers in a step of all environments.
        self._sizes = [(key, self.n_envs * int(np.prod(shape))) for key, shape in self._shapes.items()]
        # All float keys but the commanded goal, which is not part of the state.
        self._state_columns = np.delete(np.arange(self._features), self._columns.get("desired_goal", slice(0)))
        self._layout = {key: (self._columns.get(key), shape) for key, shape in self._shapes.items()}

    def _allocate(self) -> None:
        """Make the empty arrays. ``np.zeros`` takes no resident memory before it is written to."""
        size = self.buffer_size * self.n_envs
        # Steps that were ever added, overwritten ones included: step `i` is at the ring position `i % buffer_size`. A ring
        # that was filled from a smaller one counts from the oldest step that was left.
        self.added = 0
        # Row `pos * n_envs + env`: the state, the commanded goal and the action.
        self._rows = np.zeros((size, self._width), dtype=np.float32)
        self._side = {key: np.zeros((size, *self._shapes[key]), dtype=dtype) for key, dtype in self._side_dtypes.items()}
        # Where the next state is kept if it is not the following row, else -1.
        self._kept = np.zeros(size, dtype=np.int32)
        # The ring position at which the row's episode ended, or -1 while it goes on.
        self._last = np.zeros(size, dtype=np.int32)

        # States kept aside. The first n_envs places hold the newest next state of each environment, the others the final
        # states.
        capacity = 2 * self.n_envs
        self._kept_rows = np.zeros((capacity, self._features), dtype=np.float32)
        self._kept_side = {key: np.zeros((capacity, *self._shapes[key]), dtype) for key, dtype in self._side_dtypes.items()}
        self._kept_terminated = np.zeros(capacity, dtype=bool)
        self._free = list(range(self.n_envs, capacity))

        self._open = np.zeros(self.n_envs, dtype=bool)  # does the newest row's episode go on?
        self._length = np.zeros(self.n_envs, dtype=np.int64)  # rows so far of the episode that goes on
        self._pending = np.arange(self.n_envs, dtype=np.int32)

    def _warn_if_too_large(self) -> None:
        needed = self._rows.nbytes + self._kept.nbytes + self._last.nbytes + sum(array.nbytes for array in self._side.values())
        if sb3_buffers.psutil is not None and needed > (available := sb3_buffers.psutil.virtual_memory().available):
            warnings.warn(
                "This system does not have apparently enough memory to store the complete "
                f"replay buffer {needed / 1e9:.2f}GB > {available / 1e9:.2f}GB: pass a smaller `buffer_size`.",
                stacklevel=2,
            )

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self._allocate()

    @property
    def only_floats(self) -> bool:
        """:return: Whether all keys are of floats, so that a state is one row"""
        return not self._side_dtypes

    def _view(self, key: str) -> np.ndarray:
        if key in self._columns:
            return self._rows[:, self._columns[key]].reshape(self.buffer_size, self.n_envs, *self._shapes[key])
        return self._side[key].reshape(self.buffer_size, self.n_envs, *self._shapes[key])

    @property
    def observations(self) -> dict[str, np.ndarray]:  # type: ignore[override]
        """:return: The stored observations of every key, ``(buffer_size, n_envs, …)``"""
        return {key: self._view(key) for key in self.observation_space.spaces}

    @property
    def actions(self) -> np.ndarray:  # type: ignore[override]
        """:return: The stored actions, ``(buffer_size, n_envs, action_dim)``"""
        return self._rows[:, self._action_columns].reshape(self.buffer_size, self.n_envs, self.action_dim)

    def float_states(self, at_most: int = 100_000) -> dict[str, np.ndarray]:
        """
        :param at_most: How many states are enough
        :return: Stored states evenly over the buffer, with their commanded goals, ``(n, …)`` per key of floats
        """
        check_number("at_most", at_most, 1, whole=True)
        stored = self.size() * self.n_envs
        rows = self._rows[: stored : max(-(-stored // at_most), 1)]
        return {key: rows[:, columns].reshape(-1, *self._shapes[key]) for key, columns in self._columns.items()}

    @property
    def n_episodes(self) -> int:
        """:return: How many episodes are stored, also in part; those that go on count, too"""
        stored = self._kept[: self.size() * self.n_envs]
        return int(np.count_nonzero(stored >= self.n_envs) + np.count_nonzero(self._open))

    # -- writing -------------------------------------------------------------------------------------------------------

    def add(  # type: ignore[override]
        self,
        obs: dict[str, np.ndarray],
        next_obs: dict[str, np.ndarray],
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """
        Add one step of every environment.

        :param obs: The observations, ``(n_envs, …)`` per key
        :param next_obs: The next observations; where ``done``, the final ones and not those of the reset
        :param action: The actions, scaled to [-1, 1]
        :param reward: Not read
        :param done: Whether the episode ended
        :param infos: Read only for ``TimeLimit.truncated``
        """
        self._check_step(obs, next_obs, action, done, infos)
        n_envs, first = self.n_envs, self.pos * self.n_envs
        rows = self._rows[first : first + n_envs]
        # One call for all keys: with few environments, the number of calls is what a step costs.
        floats = [obs[key].reshape(n_envs, -1) for key in self._columns]
        np.concatenate([*floats, action.reshape(n_envs, -1)], axis=1, out=rows, casting="unsafe")
        self._go_on(rows, obs)
        if self.full:
            self._release(self._kept[first : first + n_envs])

        if self._columns:
            floats = [next_obs[key].reshape(n_envs, -1) for key in self._columns]
            np.concatenate(floats, axis=1, out=self._kept_rows[:n_envs], casting="unsafe")
        for key, side in self._side.items():
            side[first : first + n_envs] = obs[key].reshape(n_envs, *self._shapes[key])
            self._kept_side[key][:n_envs] = next_obs[key].reshape(n_envs, *self._shapes[key])
        self._kept[first : first + n_envs] = self._pending
        self._last[first : first + n_envs] = -1
        self._open[:] = True
        self._length += 1

        self.added += 1
        self.pos += 1
        if self.pos == self.buffer_size:
            self.full = True
            self.pos = 0
        ended = np.asarray(done).nonzero()[0]
        if len(ended):
            self._close(ended, np.array([not infos[env].get("TimeLimit.truncated", False) for env in ended.tolist()]))

    def _check_step(
        self, obs: dict[str, np.ndarray], next_obs: dict[str, np.ndarray], action: np.ndarray, done: np.ndarray, infos: list
    ) -> None:
        """Raise an error before anything is written, so that a wrong step leaves the buffer as it was."""
        try:
            fits = action.size == self.n_envs * self.action_dim and len(done) == self.n_envs == len(infos)
            for key, size in self._sizes:
                fits &= obs[key].size == size == next_obs[key].size
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"A step needs arrays for every key of {list(self._shapes)}, but {error!r}.") from error
        if not fits:
            found = {key: (np.shape(obs[key]), np.shape(next_obs[key])) for key in self._shapes}
            raise ValueError(
                f"A step of {self.n_envs} environments needs the shapes {self._shapes} and {self.action_dim} actions for "
                f"each, not {found} and {np.shape(action)}, with {len(done)} dones and {len(infos)} infos."
            )

    def _go_on(self, rows: np.ndarray, obs: dict[str, np.ndarray]) -> None:
        """
        Let the episodes go on with the given states, and close those that do not: their environment was reset in between.

        :param rows: The states' float keys, and the actions
        :param obs: The states
        """
        same = rows[:, : self._features] == self._kept_rows[: self.n_envs]
        if self._side or not (same.all() and self._open.all()):  # else: all of them go on
            goes_on = same[:, self._state_columns].all(axis=1)
            for key, kept in self._kept_side.items():
                if key != "desired_goal":  # not part of the state
                    expected = kept[: self.n_envs].reshape(self.n_envs, -1)
                    goes_on &= (obs[key].reshape(self.n_envs, -1) == expected).all(axis=1)
            interrupted = (self._open & ~goes_on).nonzero()[0]
            if len(interrupted):
                self._close(interrupted, np.zeros(len(interrupted), dtype=bool))
        previous = (self.pos - 1) % self.buffer_size * self.n_envs
        self._kept[previous : previous + self.n_envs][self._open] = -1

    def _close(self, envs: np.ndarray, terminated: np.ndarray) -> None:
        """
        End episodes at their newest row: keep its next state as the final one.

        :param envs: The environments
        :param terminated: Whether each of the episodes terminated, or was cut off
        """
        while len(self._free) < len(envs):
            self._grow()
        places = self._free[-len(envs) :]
        del self._free[-len(envs) :]
        newest = (self.pos - 1) % self.buffer_size
        self._kept_rows[places] = self._kept_rows[envs]
        for kept in self._kept_side.values():
            kept[places] = kept[envs]
        self._kept_terminated[places] = terminated
        self._kept[newest * self.n_envs + envs] = places
        # Mark the episodes' rows with their end: one slice, or two over the ring's seam. Amortised one write a step.
        last = self._last.reshape(self.buffer_size, self.n_envs)
        lengths = np.minimum(self._length[envs], self.buffer_size).tolist()
        together = [envs] if len(set(lengths)) == 1 else envs.tolist()
        for length, env in zip(lengths, together, strict=False):
            start = newest + 1 - length
            last[max(start, 0) : newest + 1, env] = newest
            if start < 0:
                last[start:, env] = newest
        self._open[envs] = False
        self._length[envs] = 0

    def _release(self, kept: np.ndarray) -> None:
        """Take back the places of final states whose rows are about to be overwritten."""
        self._free.extend(kept[kept >= self.n_envs].tolist())

    def _grow(self) -> None:
        old = len(self._kept_rows)

        def double(array: np.ndarray) -> np.ndarray:
            return np.concatenate([array, np.zeros_like(array)])

        self._kept_rows = double(self._kept_rows)
        self._kept_side = {key: double(kept) for key, kept in self._kept_side.items()}
        self._kept_terminated = double(self._kept_terminated)
        self._free.extend(range(old, 2 * old))

    def truncate_last_trajectory(self) -> None:
        """End the episodes that go on, as truncated: the environments are about to be reset or exchanged."""
        going_on = self._open.nonzero()[0]
        if len(going_on):
            self._close(going_on, np.zeros(len(going_on), dtype=bool))

    # -- reading -----------------------------------------------------------------------------------------------------------

    def _next_rows(self, index: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """:return: The float keys of the next states"""
        rows = self._rows.take(index + self.n_envs, axis=0, mode="wrap")[..., : self._features]
        aside = (kept >= 0).nonzero()
        rows[aside] = self._kept_rows[kept[aside]]
        return rows

    def _next_side(self, key: str, index: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """:return: The given key, which is not of floats, of the next states"""
        arrays = self._side[key].take(index + self.n_envs, axis=0, mode="wrap")
        aside = (kept >= 0).nonzero()
        arrays[aside] = self._kept_side[key][kept[aside]]
        return arrays

    def random_goals(self, at_most: int, commanded_fraction: float = 0.0, seed: int | None = None) -> np.ndarray:
        """
        Goals of the distribution of training's random goals: what the next states of transitions achieve, and a share of
        commanded goals. The first goals alone have that share too, however many are taken.

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
        kept, shape = self._kept[index], self._shapes["achieved_goal"]
        if "achieved_goal" in self._columns:
            goals = self._next_rows(index, kept)[:, self._columns["achieved_goal"]]
            goals[commanded] = self._rows[index[commanded], self._columns["desired_goal"]]
        else:
            goals = self._next_side("achieved_goal", index, kept)
            goals[commanded] = self._side["desired_goal"][index[commanded]]
        return goals.reshape(-1, *shape)

    def transitions(self) -> Transitions:
        """:return: All that is stored, one environment after the other and each in order of time; actions within [-1, 1]"""
        size = self.size()
        positions = (np.arange(size) + (self.pos if self.full else 0)) % self.buffer_size
        index = (positions[None] * self.n_envs + np.arange(self.n_envs)[:, None]).reshape(-1)
        kept = self._kept[index]
        rows, next_rows = self._rows[index], self._next_rows(index, kept)

        def values(key: str, features: np.ndarray, side: np.ndarray | None) -> np.ndarray:
            return features[:, self._columns[key]].reshape(-1, *self._shapes[key]) if side is None else side

        observations, next_observations = {}, {}
        for key in self._shapes:
            aside = key in self._side
            observations[key] = values(key, rows, self._side[key][index] if aside else None)
            next_observations[key] = values(key, next_rows, self._next_side(key, index, kept) if aside else None)
        terminated = np.where(kept >= self.n_envs, self._kept_terminated[kept], False)
        over = kept >= 0  # the next state is kept aside where an episode ended, or has not gone on yet
        return Transitions(observations, next_observations, rows[:, self._action_columns], terminated, over & ~terminated)

    # -- saving --------------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """:return: What pickle saves: the filled rows only"""
        filled = self.size() * self.n_envs
        state = self.__dict__.copy()
        for name in ("_rows", "_kept", "_last"):
            state[name] = state[name][:filled]
        state["_side"] = {key: array[:filled] for key, array in self._side.items()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """:param state: What pickle saved"""
        self.__dict__.update(state)
        # Pickles of 0.1.0 did not count: any number that gives the position and the size will do.
        self._describe_columns()
        self.__dict__.setdefault("added", self.pos + (self.buffer_size if self.full else 0))
        missing = self.buffer_size * self.n_envs - len(self._rows)

        def lengthen(array: np.ndarray) -> np.ndarray:
            longer = np.zeros((len(array) + missing, *array.shape[1:]), dtype=array.dtype)
            longer[: len(array)] = array
            return longer

        self._rows, self._kept, self._last = lengthen(self._rows), lengthen(self._kept), lengthen(self._last)
        self._side = {key: lengthen(array) for key, array in self._side.items()}
