"""GoalReplayBuffer: storage, episodes and goal sampling. It knows nothing of networks, losses or rewards."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common import buffers as sb3_buffers
from stable_baselines3.common.buffers import BaseBuffer, DictReplayBuffer
from stable_baselines3.common.vec_env import VecNormalize

from sb3_clearning.goal_spaces import check_goal_space
from sb3_clearning.offline import Crop, Observations, add_transitions, transitions_from_arrays, transitions_from_minari

#: Where a transition's goal comes from, in the order in which the kinds stand in a batch:
#: its own commanded goal, its next state, the last state of its episode, a later state of its episode, the next state of
#: another
#: transition (a draw from the marginal p(s_{t+})), or the commanded goal of another transition.
GOAL_KINDS = ("original", "next", "final", "future", "random", "commanded")


class GoalBatch(NamedTuple):
    """
    Transitions with their goals. There is no reward in it.

    :param observations: The states; ``desired_goal`` is the sampled goal
    :param actions: ``(batch, action_dim)``, within [-1, 1]
    :param next_observations: The next states, with the same goals
    :param dones: ``(batch,)``, 1 where the environment truly terminated (not where it was truncated)
    :param kinds: For each kind of goal its slice of the batch
    :param inputs: ``(batch, features + action_dim)``, the same observations and actions as one matrix in the order of the
        observation space's keys, or None if a key is not a float array. The tensors above are views of it
    :param next_inputs: ``(batch, features)``, likewise for the next observations
    """

    observations: dict[str, th.Tensor]
    actions: th.Tensor
    next_observations: dict[str, th.Tensor]
    dones: th.Tensor
    kinds: dict[str, slice]
    inputs: th.Tensor | None
    next_inputs: th.Tensor | None


def truncated_geometric(horizon: np.ndarray, gamma: float, uniform: np.ndarray) -> np.ndarray:
    r"""
    Draw offsets :math:`\Delta \in \{1, \dots, H\}` with :math:`P(\Delta) \propto \gamma^{\Delta - 1}`, by inversion.

    :param horizon: The largest offsets H, of any shape
    :param gamma: The discount factor, within [0, 1]; 1 gives the uniform law
    :param uniform: Uniform draws from [0, 1), of the same shape
    :return: The offsets, integers of the same shape
    """
    if gamma == 0:
        return np.ones_like(horizon)
    if gamma == 1:
        offset = np.floor(uniform * horizon)
    else:
        # P(Delta <= d) = (1 - gamma^d) / (1 - gamma^H); expm1 and log1p keep the digits for gamma close to 1.
        log_gamma = np.log(gamma)
        offset = np.floor(np.log1p(uniform * np.expm1(horizon * log_gamma)) / log_gamma)
    # Rounding may reach H when u is the last number before 1.
    return np.minimum(offset.astype(horizon.dtype) + 1, horizon)


def goal_slices(relabel: Mapping[str, float], batch_size: int) -> dict[str, slice]:
    """
    Divide a batch by the given shares (largest remainders first, so that the counts add up to the batch).

    :param relabel: For each kind of goal its share; the shares add up to 1
    :param batch_size: The size of the batch
    :return: For each kind with a share its slice, in the order of ``GOAL_KINDS``
    """
    unknown = set(relabel) - set(GOAL_KINDS)
    if unknown:
        raise ValueError(f"Unknown kinds of goals {sorted(unknown)}: use some of {GOAL_KINDS}.")
    shares = np.array([relabel.get(kind, 0.0) for kind in GOAL_KINDS])
    if (shares < 0).any() or not np.isclose(shares.sum(), 1):
        raise ValueError(f"The shares of the goals must be at least 0 and add up to 1, not {dict(relabel)}.")
    exact = shares / shares.sum() * batch_size  # rounded shares may be off by more than one transition of a large batch
    counts = np.floor(exact + 1e-9).astype(int)
    short = batch_size - counts.sum()
    counts[np.argsort(counts - exact, kind="stable")[:short]] += 1
    ends = np.cumsum(counts)
    return {
        kind: slice(int(end - count), int(end))
        for kind, count, end in zip(GOAL_KINDS, counts, ends, strict=True)
        if relabel.get(kind, 0.0) > 0
    }


class GoalReplayBuffer(DictReplayBuffer):
    """
    Replay buffer for goal-conditioned learning without rewards.

    A state is stored once: the next state of a transition is the following row of the ring, and only where an episode was cut
    (or has not gone on yet) the next state is kept aside. All float keys and the action share one row of one matrix, so that a
    batch is one gather whatever the number of keys. Every stored transition can be sampled at once; no finished episode is
    needed.

    :param buffer_size: Number of transitions, over all environments
    :param observation_space: A Dict with ``observation``, ``achieved_goal``, ``desired_goal`` and any other keys
    :param action_space: A Box
    :param device: PyTorch device of the samples
    :param n_envs: Number of parallel environments
    :param optimize_memory_usage: Has no effect: states are always stored once
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
    ):
        check_goal_space(observation_space)
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
        self._allocate()
        self._warn_if_too_large()

    def _allocate(self) -> None:
        """Make the empty arrays. ``np.zeros`` takes no resident memory before it is written to."""
        size = self.buffer_size * self.n_envs
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
        first, end = self.pos * self.n_envs, (self.pos + 1) * self.n_envs
        self._leave_interrupted(obs)
        if self._open.any():
            previous = (self.pos - 1) % self.buffer_size * self.n_envs
            self._kept[previous : previous + self.n_envs][self._open] = -1
        if self.full:
            self._release(self._kept[first:end])

        rows = self._rows[first:end]
        for key, columns in self._columns.items():
            rows[:, columns] = obs[key].reshape(self.n_envs, -1)
            self._kept_rows[: self.n_envs, columns] = next_obs[key].reshape(self.n_envs, -1)
        for key, side in self._side.items():
            side[first:end] = obs[key].reshape(self.n_envs, *self._shapes[key])
            self._kept_side[key][: self.n_envs] = next_obs[key].reshape(self.n_envs, *self._shapes[key])
        rows[:, self._action_columns] = action.reshape(self.n_envs, self.action_dim)
        self._kept[first:end] = self._pending
        self._last[first:end] = -1
        self._open[:] = True
        self._length += 1

        self.pos += 1
        if self.pos == self.buffer_size:
            self.full = True
            self.pos = 0
        for env in np.flatnonzero(done).tolist():
            self._close(env, terminated=not infos[env].get("TimeLimit.truncated", False))

    def _leave_interrupted(self, obs: dict[str, np.ndarray]) -> None:
        """Close the episodes that do not go on with the given observations: the environment was reset in between."""
        if not self._open.any():
            return
        goes_on = np.ones(self.n_envs, dtype=bool)
        for key in self._shapes:
            if key == "desired_goal":  # not part of the state
                continue
            if key in self._columns:
                expected = self._kept_rows[: self.n_envs, self._columns[key]]
                given = obs[key].reshape(self.n_envs, -1).astype(np.float32, copy=False)
            else:
                expected = self._kept_side[key][: self.n_envs].reshape(self.n_envs, -1)
                given = obs[key].reshape(self.n_envs, -1)
            goes_on &= (expected == given).all(axis=1)
        if not goes_on.all():
            for env in np.flatnonzero(self._open & ~goes_on).tolist():
                self._close(env, terminated=False)

    def _close(self, env: int, terminated: bool) -> None:
        """End the environment's episode at its newest row: keep its next state as the final one."""
        if not self._free:
            self._grow()
        place = self._free.pop()
        newest = (self.pos - 1) % self.buffer_size
        self._kept_rows[place] = self._kept_rows[env]
        for kept in self._kept_side.values():
            kept[place] = kept[env]
        self._kept_terminated[place] = terminated
        self._kept[newest * self.n_envs + env] = place
        # Mark the episode's rows with its end: one slice, or two over the ring's seam. Amortised one write a step.
        last = self._last.reshape(self.buffer_size, self.n_envs)[:, env]
        start = newest + 1 - min(self._length[env], self.buffer_size)
        last[max(start, 0) : newest + 1] = newest
        if start < 0:
            last[start:] = newest
        self._open[env] = False
        self._length[env] = 0

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

    def load_arrays(
        self,
        observations: Observations,
        actions: np.ndarray,
        terminations: np.ndarray,
        truncations: np.ndarray,
        next_observations: Observations | None = None,
        crop: Crop = None,
    ) -> int:
        """
        Add the transitions of an offline dataset. See :func:`sb3_clearning.offline.transitions_from_arrays`.

        :param observations: A dict of arrays ``(n, …)`` as the environment gives them (``achieved_goal`` and
            ``desired_goal`` may be
            missing), or one array for the key ``observation``
        :param actions: ``(n, action_dim)``, in the range of the action space
        :param terminations: ``(n,)``, whether the environment terminated after the transition
        :param truncations: ``(n,)``, whether the episode was cut off after the transition
        :param next_observations: Like ``observations``. If None, the next state is the following row, and the last
            transition of
            every episode, whose next state is unknown, is left out
        :param crop: The achieved goal as a function of the observation if the data has none: indices, a slice, a function
            of an
            array, or None for the whole observation
        :return: The number of transitions that were added
        """
        return add_transitions(
            self, transitions_from_arrays(self, observations, actions, terminations, truncations, next_observations, crop)
        )

    def load_minari(self, dataset: Any, crop: Crop = None) -> int:
        """
        Add the transitions of a Minari dataset.

        :param dataset: The dataset, or the name of one that is on this machine
        :param crop: See :meth:`load_arrays`
        :return: The number of transitions that were added
        """
        return add_transitions(self, transitions_from_minari(self, dataset, crop))

    def truncate_last_trajectory(self) -> None:
        """End the episodes that go on, as truncated: the environments are about to be reset or exchanged."""
        for env in np.flatnonzero(self._open).tolist():
            self._close(env, terminated=False)

    # -- sampling ------------------------------------------------------------------------------------------------------

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> GoalBatch:  # type: ignore[override]
        """
        Sample transitions with their own commanded goals.

        :param batch_size: Number of transitions
        :param env: A VecNormalize to normalize the observations with
        :return: The batch
        """
        return self.sample_goals(batch_size, {"original": 1.0}, env=env)[0]

    def sample_goals(
        self,
        batch_size: int,
        relabel: Mapping[str, float],
        gamma: float = 0.99,
        absorbing: bool = False,
        env: VecNormalize | None = None,
        n_batches: int = 1,
    ) -> list[GoalBatch]:
        """
        Sample transitions uniformly, and a goal for each.

        Random and commanded goals are those of another transition of the same batch. As the batch's transitions are
        independent draws,
        so is such a goal of the transition that it is given to, and it costs no further gather.

        :param batch_size: Number of transitions in a batch
        :param relabel: For each kind of goal (``GOAL_KINDS``) its share of the batch; the shares add up to 1
        :param gamma: The discount factor of the future goals' offsets, within [0, 1]
        :param absorbing: Whether a terminated episode stays in its final state for ever (else: future offsets end with the
            episode)
        :param env: A VecNormalize to normalize the observations with
        :param n_batches: Number of batches, drawn at once
        :return: The batches
        """
        if self.size() == 0:
            raise ValueError("The replay buffer is empty: collect or load at least one transition before sampling.")
        kinds = goal_slices(relabel, batch_size)
        shape = (n_batches, batch_size)
        index = np.random.randint(0, self.size() * self.n_envs, size=shape)
        kept = self._kept[index]
        rows = self._rows.take(index, axis=0)
        next_rows = self._next_rows(index, kept)
        side = {key: array.take(index, axis=0) for key, array in self._side.items()}
        next_side = {key: self._next_side(key, index, kept) for key in self._side}
        dones = np.where(kept >= self.n_envs, self._kept_terminated[kept], False).astype(np.float32)

        goals = self._goals(rows, side, next_rows, next_side, index, kinds, gamma, absorbing)
        if "desired_goal" in self._columns:
            columns = self._columns["desired_goal"]
            rows[..., columns] = goals
            next_rows[..., columns] = goals
        else:
            side["desired_goal"] = next_side["desired_goal"] = goals
        return [
            self._to_batch(rows[i], next_rows[i], self._at(side, i), self._at(next_side, i), dones[i], kinds, env)
            for i in range(n_batches)
        ]

    @staticmethod
    def _at(arrays: dict[str, np.ndarray], i: int) -> dict[str, np.ndarray]:
        return {key: array[i] for key, array in arrays.items()}

    def _next_rows(self, index: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """:return: The float keys of the next states"""
        rows = self._rows.take(index + self.n_envs, axis=0, mode="wrap")[..., : self._features]
        aside = kept >= 0
        rows[aside] = self._kept_rows[kept[aside]]
        return rows

    def _next_side(self, key: str, index: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """:return: The given key, which is not of floats, of the next states"""
        arrays = self._side[key].take(index + self.n_envs, axis=0, mode="wrap")
        aside = kept >= 0
        arrays[aside] = self._kept_side[key][kept[aside]]
        return arrays

    def _goals(
        self,
        rows: np.ndarray,
        side: dict[str, np.ndarray],
        next_rows: np.ndarray,
        next_side: dict[str, np.ndarray],
        index: np.ndarray,
        kinds: dict[str, slice],
        gamma: float,
        absorbing: bool,
    ) -> np.ndarray:
        """:return: The goals of all transitions, flat if they are of floats"""
        if "achieved_goal" in self._columns:
            commanded = rows[..., self._columns["desired_goal"]]
            reached = next_rows[..., self._columns["achieved_goal"]]
        else:
            commanded, reached = side["desired_goal"], next_side["achieved_goal"]
        goals = np.empty_like(commanded)
        batch_size = index.shape[1]
        for kind, part in kinds.items():
            if kind == "original":
                goals[:, part] = commanded[:, part]
            elif kind == "next":
                goals[:, part] = reached[:, part]
            elif kind in ("final", "future"):
                later = self._later(index[:, part], gamma if kind == "future" else None, absorbing)
                goals[:, part] = self._reached(later)
            else:  # half a batch further, around its end: another transition unless the batch is of one
                partner = (np.arange(part.start, part.stop) + (batch_size + 1) // 2) % batch_size
                source = reached if kind == "random" else commanded
                goals[:, part] = source[:, partner]
                if batch_size == 1:
                    other = np.random.randint(0, self.size() * self.n_envs, size=index.shape)
                    goals[:, part] = self._reached(other) if kind == "random" else self._commanded(other)
        return goals

    def _later(self, index: np.ndarray, gamma: float | None, absorbing: bool) -> np.ndarray:
        """
        :param index: Transitions
        :param gamma: The discount factor, or None for the last transition of the episode
        :param absorbing: See :meth:`sample_goals`
        :return: For each a transition of the same episode, itself or later, whose next state is the goal
        """
        position, env = np.divmod(index, self.n_envs)
        last = self._last[index]
        last = np.where(last >= 0, last, (self.pos - 1) % self.buffer_size)
        horizon = (last - position) % self.buffer_size + 1
        if gamma is None:
            offset = horizon
        else:
            uniform = np.random.random_sample(index.shape)
            offset = truncated_geometric(horizon, gamma, uniform)
            if absorbing:
                kept = self._kept[last * self.n_envs + env]
                terminated = (kept >= self.n_envs) & self._kept_terminated[kept]
                # All that lies beyond the termination is the final state.
                unlimited = truncated_geometric(np.full_like(horizon, np.iinfo(np.int32).max), gamma, uniform)
                offset = np.where(terminated, np.minimum(unlimited, horizon), offset)
        return (position + offset - 1) % self.buffer_size * self.n_envs + env

    def _reached(self, index: np.ndarray) -> np.ndarray:
        """:return: The achieved goals of the transitions' next states"""
        kept = self._kept[index]
        if "achieved_goal" in self._columns:
            return self._next_rows(index, kept)[..., self._columns["achieved_goal"]]
        return self._next_side("achieved_goal", index, kept)

    def _commanded(self, index: np.ndarray) -> np.ndarray:
        if "desired_goal" in self._columns:
            return self._rows[index, self._columns["desired_goal"]]
        return self._side["desired_goal"][index]

    def _to_batch(
        self,
        rows: np.ndarray,
        next_rows: np.ndarray,
        side: dict[str, np.ndarray],
        next_side: dict[str, np.ndarray],
        dones: np.ndarray,
        kinds: dict[str, slice],
        env: VecNormalize | None,
    ) -> GoalBatch:
        if env is not None:
            self._normalize(rows, side, env)
            self._normalize(next_rows, next_side, env)
        inputs, next_inputs = self.to_torch(rows, copy=False), self.to_torch(next_rows, copy=False)
        return GoalBatch(
            observations=self._as_dict(inputs, side),
            actions=inputs[:, self._action_columns],
            next_observations=self._as_dict(next_inputs, next_side),
            dones=self.to_torch(dones, copy=False),
            kinds=kinds,
            inputs=None if self._side else inputs,
            next_inputs=None if self._side else next_inputs,
        )

    def _normalize(self, rows: np.ndarray, side: dict[str, np.ndarray], env: VecNormalize) -> None:
        """Normalize rows and side arrays in place. A goal has the statistics of ``desired_goal``, as where the policy acts."""
        observations = {key: rows[:, columns].reshape(-1, *self._shapes[key]) for key, columns in self._columns.items()}
        normalized = env.normalize_obs({**observations, **side})
        assert isinstance(normalized, dict)
        for key, columns in self._columns.items():
            rows[:, columns] = normalized[key].reshape(len(rows), -1)
        side.update({key: normalized[key] for key in side})

    def _as_dict(self, rows: th.Tensor, side: dict[str, np.ndarray]) -> dict[str, th.Tensor]:
        return {
            key: (
                rows[:, self._columns[key]].reshape(-1, *self._shapes[key])
                if key in self._columns
                else self.to_torch(side[key], copy=False)
            )
            for key in self.observation_space.spaces
        }

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
        missing = self.buffer_size * self.n_envs - len(self._rows)

        def lengthen(array: np.ndarray) -> np.ndarray:
            longer = np.zeros((len(array) + missing, *array.shape[1:]), dtype=array.dtype)
            longer[: len(array)] = array
            return longer

        self._rows, self._kept, self._last = lengthen(self._rows), lengthen(self._kept), lengthen(self._last)
        self._side = {key: lengthen(array) for key, array in self._side.items()}
