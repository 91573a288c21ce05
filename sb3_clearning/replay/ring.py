"""EpisodeRing: a ring of transitions of parallel environments, and how steps and episodes are added."""

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sb3_clearning.false_ends import ADVICE, ends_are_false, equal_rows
from sb3_clearning.replay.device_array import DeviceArray
from sb3_clearning.replay.experience import Transitions
from sb3_clearning.replay.ring_storage import RingStorage


class EpisodeRing(RingStorage):
    """The part of :class:`GoalReplayBuffer` that adds transitions."""

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

        An info with ``terminal_observation`` says that ``next_obs`` is what a vectorized environment gave as the final
        observation. Whether it is false (:mod:`sb3_clearning.false_ends`) is known when the next step is added, or at once if
        ``terminal_observation`` is None. A false one is removed: the episode then ends one step earlier.

        :param obs: ``(n_envs, …)`` per key
        :param next_obs: Where ``done``, the final observations and not those of the reset
        :param action: Scaled to [-1, 1]
        :param reward: Not read
        :param infos: Read where ``done``, for ``TimeLimit.truncated`` and ``terminal_observation``
        """
        self._check_step(obs, next_obs, action, done, infos)
        if self._unverified is not None:
            self._verify_ends(obs)
        n_envs, first = self.n_envs, self.pos * self.n_envs
        on_host = self.buffer_device is None
        rows = self.rows[first : first + n_envs] if on_host else np.empty((n_envs, self.action_columns.stop), np.float32)
        # One call for all keys: with few environments, the number of calls is what a step costs.
        floats = [obs[key].reshape(n_envs, -1) for key in self.columns]
        np.concatenate([*floats, action.reshape(n_envs, -1)], axis=1, out=rows, casting="unsafe")
        if not on_host:
            self.rows[first : first + n_envs] = rows
        self._continue_episodes(rows, obs)
        if self.full:
            overwritten = self.next_slot[first : first + n_envs]
            self.free_slots.extend(overwritten[overwritten >= n_envs].tolist())

        if self.columns:
            floats = [next_obs[key].reshape(n_envs, -1) for key in self.columns]
            newest = self.newest_rows
            np.concatenate(floats, axis=1, out=newest, casting="unsafe")
            if not on_host:
                self.slot_rows[:n_envs] = newest
        for key, stored in self.non_float.items():
            stored[first : first + n_envs] = obs[key].reshape(n_envs, *self.obs_shape[key])
            self.slot_non_float[key][:n_envs] = next_obs[key].reshape(n_envs, *self.obs_shape[key])
            if not on_host:
                self.newest_non_float[key][:] = next_obs[key].reshape(n_envs, *self.obs_shape[key])
        self.next_slot[first : first + n_envs] = self._pending
        self.episode_end[first : first + n_envs] = -1
        self.in_progress[:] = True
        self.episode_steps += 1

        self.total_added += 1
        self.pos += 1
        if self.pos == self.buffer_size:
            self.full = True
            self.pos = 0
        ended = np.asarray(done).nonzero()[0]
        if len(ended):
            self._end(ended, [infos[env] for env in ended.tolist()])

    def _end(self, envs: np.ndarray, infos: list[dict[str, Any]]) -> None:
        """End the episodes of environments, given by index and with their infos, after the newest step."""
        lengths = self.episode_steps[envs]
        self._close(envs, np.array([not info.get("TimeLimit.truncated", False) for info in infos]))
        finals = [info.get("terminal_observation", False) for info in infos]
        kinds = set(map(type, finals))  # nearly always one, and then no loop over environments is needed
        if type(None) in kinds:
            missing = np.array([final is None for final in finals])
            self._drop_ends(envs[missing], lengths[missing])
        if kinds - {bool, type(None)}:
            given = slice(None) if len(kinds) == 1 else [final is not None and final is not False for final in finals]
            self._unverified = envs[given], lengths[given]

    def _verify_ends(self, obs: dict[str, np.ndarray]) -> None:
        """Remove the final observations of the newest step that are false, now that the first ones that follow are known."""
        assert self._unverified is not None
        (envs, lengths), self._unverified = self._unverified, None
        flat = {key: obs[key].reshape(self.n_envs, -1) for key in self.obs_shape}
        # Nearly all differ in the first number already, and a comparison of all would cost more than adding a step.
        if "observation" in self.columns:
            numbers = self.newest_rows[envs, self.columns["observation"].start]
            likely = numbers == flat["observation"][envs, 0].astype(np.float32)
            envs, lengths = envs[likely], lengths[likely]
        if not len(envs):
            return
        newest = (self.pos - 1) % self.buffer_size * self.n_envs + envs
        final, before = {}, {}
        for key, columns in self.columns.items():
            final[key], before[key] = self.newest_rows[envs, columns], np.asarray(self.rows[newest, columns])
        for key, stored in self.non_float.items():
            final[key], before[key] = self.newest_non_float[key][envs], np.asarray(stored[newest])
        first = {key: flat[key][envs].astype(value.dtype) for key, value in final.items()}
        false = equal_rows(final, first) & ends_are_false(before, first)
        self._drop_ends(envs[false], lengths[false])

    def _check_step(
        self, obs: dict[str, np.ndarray], next_obs: dict[str, np.ndarray], action: np.ndarray, done: np.ndarray, infos: list
    ) -> None:
        """Raise an error before anything is written, so that an invalid step leaves the buffer unchanged."""
        try:
            fits = action.size == self.n_envs * self.action_dim and len(done) == self.n_envs == len(infos)
            for key, size in self._sizes:
                fits &= obs[key].size == size == next_obs[key].size
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"A step needs arrays for every key of {list(self.obs_shape)}, but {error!r}.") from error
        if not fits:
            found = {key: (np.shape(obs[key]), np.shape(next_obs[key])) for key in self.obs_shape}
            raise ValueError(
                f"A step of {self.n_envs} environments needs the shapes {self.obs_shape} and {self.action_dim} actions for "
                f"each, not {found} and {np.shape(action)}, with {len(done)} dones and {len(infos)} infos."
            )

    def _continue_episodes(self, rows: np.ndarray, obs: dict[str, np.ndarray]) -> None:
        """Continue the episodes with the given states. Close those whose environment was reset in between."""
        previous = (self.pos - 1) % self.buffer_size * self.n_envs
        before = self.next_slot[previous : previous + self.n_envs]
        same = rows[:, : self.n_features] == self.newest_rows
        if not self.non_float and same.all() and self.in_progress.all():
            before[:] = -1
        else:
            continues = same[:, self._state_columns].all(axis=1)
            for key, newest in self.newest_non_float.items():
                if key != "desired_goal":  # not part of the state
                    continues &= (obs[key].reshape(self.n_envs, -1) == newest.reshape(self.n_envs, -1)).all(axis=1)
            self._truncate(self.in_progress & ~continues)
            before[self.in_progress] = -1

    def _truncate(self, envs: np.ndarray) -> None:
        """:param envs: ``(n_envs,)``, whose episodes end as truncated"""
        index = envs.nonzero()[0]
        if len(index):
            self._close(index, np.zeros(len(index), dtype=bool))

    def _close(self, envs: np.ndarray, terminated: np.ndarray) -> None:
        """End the episodes of environments, given by index, at their newest row: its next state gets its own slot."""
        self.reserve_slots(len(envs))
        slots = self.free_slots[-len(envs) :]
        del self.free_slots[-len(envs) :]
        newest = (self.pos - 1) % self.buffer_size
        self.slot_rows[slots] = self.slot_rows[envs]
        for stored in self.slot_non_float.values():
            stored[slots] = stored[envs]
        self.slot_terminated[slots] = terminated
        self.next_slot[newest * self.n_envs + envs] = slots
        lengths = self.episode_steps[envs]
        self._mark_end(envs, lengths, newest)
        if self.full and (longest := int(lengths.max())) > self.buffer_size:
            self._warn_once(
                f"The start of an episode was overwritten before its end: it has {longest} steps, and of the replay buffer's "
                f"{self.buffer_size * self.n_envs} transitions each of {self.n_envs} environments has {self.buffer_size}. Set "
                f"`buffer_size` to {longest * self.n_envs} or more."
            )
        self.in_progress[envs] = False
        self.episode_steps[envs] = 0

    def _mark_end(self, envs: np.ndarray, lengths: np.ndarray, end: int) -> None:
        """Mark the rows of episodes, the last of which is at the ring position ``end``. One write per step, amortized."""
        lengths = np.minimum(lengths, self.buffer_size)
        start = end + 1 - int(lengths[0])
        if len(lengths) == 1 or (lengths == lengths[0]).all():  # one slice, or two over the ring's seam
            episode_end = self.episode_end.reshape(self.buffer_size, self.n_envs)
            episode_end[max(start, 0) : end + 1, envs] = end
            if start < 0:
                episode_end[start:, envs] = end
        else:
            steps_back = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            self.episode_end[(end - steps_back) % self.buffer_size * self.n_envs + np.repeat(envs, lengths)] = end

    def _drop_ends(self, envs: np.ndarray, lengths: np.ndarray) -> None:
        """
        Remove the newest transitions of environments, whose episodes they ended: their next states are false.

        A ring has no holes. So the row becomes a copy of a true transition, in an episode of one step: of the one before it
        or, at the very first step, of another environment's.

        :param lengths: The numbers of steps in the episodes
        """
        if not len(envs):
            return
        self._warn_once(ADVICE)
        newest, before = ((self.pos - back) % self.buffer_size for back in (1, 2))
        rows = newest * self.n_envs + envs
        if self.size() > 1:
            donors = before * self.n_envs + envs
            longer = lengths > 1
            if longer.any():
                self._end_before(rows[longer], donors[longer])
                self._mark_end(envs[longer], np.minimum(lengths[longer], self.buffer_size) - 1, before)
        else:
            others = np.setdiff1d(np.arange(self.n_envs), envs)
            if not len(others):
                self.reset()  # nothing that is stored is true
                return
            donors = newest * self.n_envs + np.resize(others, len(envs))
        slots, sources = self.next_slot[rows], self.next_slot[donors]
        self.rows[rows] = self.rows[donors]
        self.slot_rows[slots] = self.slot_rows[sources]
        for key, stored in self.non_float.items():
            stored[rows] = stored[donors]
            self.slot_non_float[key][slots] = self.slot_non_float[key][sources]
        self.slot_terminated[slots] = (sources >= self.n_envs) & self.slot_terminated[sources]
        self.episode_end[rows] = newest

    def _end_before(self, rows: np.ndarray, before: np.ndarray) -> None:
        """Truncate episodes at the transitions ``before``: the states of the rows that follow are the final ones."""
        self.reserve_slots(len(rows))
        slots = self.free_slots[-len(rows) :]
        del self.free_slots[-len(rows) :]
        self.slot_rows[slots] = self.rows[rows, : self.n_features]
        for key, stored in self.slot_non_float.items():
            stored[slots] = self.non_float[key][rows]
        self.slot_terminated[slots] = False
        self.next_slot[before] = slots

    def reserve_slots(self, n: int) -> None:
        """:param n: How many slots must be free; their number is doubled until they are"""

        def double(array: Any) -> Any:
            return array.doubled() if isinstance(array, DeviceArray) else np.concatenate([array, np.zeros_like(array)])

        while len(self.free_slots) < n:
            old = len(self.slot_rows)
            self.slot_rows = double(self.slot_rows)
            self.slot_non_float = {key: double(stored) for key, stored in self.slot_non_float.items()}
            self.slot_terminated = double(self.slot_terminated)
            self.free_slots.extend(range(old, 2 * old))

    def truncate_last_trajectory(self) -> None:
        """Truncate the episodes in progress: the environments are about to be reset or replaced."""
        self._unverified = None  # what comes next need not follow
        self._truncate(self.in_progress)

    def add_transitions(self, transitions: Transitions) -> int:
        """:return: The number of transitions that were added, see :meth:`add_pieces`"""
        return self.add_pieces([transitions], len(transitions.actions))

    def add_pieces(self, pieces: Iterable[Transitions], total: int) -> int:
        """
        Add a sequence of transitions that comes in pieces of whole episodes. A buffer of several environments gets as many
        parts of equal length; up to ``n_envs - 1`` transitions that are left over are not added. After an error or Ctrl-C the
        buffer is unchanged.

        :param total: Number of transitions in all of them. If the buffer holds fewer, the newest stay
        :return: The number of transitions that were added
        """
        length = min(total // self.n_envs, self.buffer_size)
        with self._all_or_nothing(length):
            self.truncate_last_trajectory()
            # The place of a piece in the sequence of those that stay, which environment `env` gets from `env * length` on.
            first = min(self.buffer_size * self.n_envs - total, 0)
            missing = total
            for piece in pieces:
                end = first + len(piece.actions)
                for env in range(self.n_envs):
                    start, stop = max(first, env * length), min(end, (env + 1) * length)
                    if start < stop:
                        self._write(env, start - env * length, piece.take(slice(start - first, stop - first)))
                first, missing = end, missing - len(piece.actions)
            if missing:
                raise ValueError(f"The dataset changed while it was read: it had {total} transitions, then {total - missing}.")
            self.total_added += length
            self.full = self.full or self.pos + length >= self.buffer_size
            self.pos = (self.pos + length) % self.buffer_size
        return total // self.n_envs * self.n_envs

    @contextmanager
    def _all_or_nothing(self, length: int) -> Iterator[None]:
        """Undo the writing of ``length`` rows per environment if the block ends early. The overwritten ones are held twice."""
        filled, wrapped = self.size() * self.n_envs, self.pos + length - self.buffer_size
        spans = [slice(self.pos * self.n_envs, (self.pos + length - max(wrapped, 0)) * self.n_envs)]
        spans.append(slice(max(wrapped, 0) * self.n_envs))
        arrays = [self.rows, *self.non_float.values()]
        # Of a ring that is not full, what lies beyond is zero.
        overwritten = [
            (array, span, array[span][: max(filled - (span.start or 0), 0)].copy()) for array in arrays for span in spans
        ]
        indices = [(array, array[:filled].copy()) for array in (self.next_slot, self.episode_end)]
        names = ("slot_rows", "slot_non_float", "slot_terminated", "free_slots", "in_progress", "episode_steps", "_unverified")
        small = {name: copy.deepcopy(getattr(self, name)) for name in (*names, "total_added", "full", "pos")}
        try:
            yield
        except BaseException:
            for array, span, old in overwritten:
                array[span][: len(old)], array[span][len(old) :] = old, 0
            for array, old in indices:
                array[:filled], array[filled:] = old, 0
            vars(self).update(small)
            raise

    def _write(self, env: int, first: int, new: Transitions) -> None:
        """Write whole episodes to rows of one environment, from ``first`` steps after ``pos`` on. None is in progress."""
        self._check_transitions(new)
        n = len(new.actions)
        positions = (self.pos + first + np.arange(n)) % self.buffer_size
        rows = positions * self.n_envs + env
        ends = new.terminations | new.truncations | self._resets(new)
        last = np.flatnonzero(ends)

        overwritten = self.next_slot[rows]
        self.free_slots.extend(overwritten[overwritten >= self.n_envs].tolist())
        self.reserve_slots(len(last))
        slots = self.free_slots[-len(last) :]
        del self.free_slots[-len(last) :]
        for key, columns in self.columns.items():
            self.rows[rows, columns] = new.observations[key].reshape(n, -1)
            self.slot_rows[slots, columns] = new.next_observations[key][last].reshape(len(last), -1)
        for key, stored in self.non_float.items():
            stored[rows] = new.observations[key].reshape(n, *self.obs_shape[key])
            self.slot_non_float[key][slots] = new.next_observations[key][last].reshape(len(last), *self.obs_shape[key])
        self.rows[rows, self.action_columns] = new.actions
        self.slot_terminated[slots] = new.terminations[last]
        self.next_slot[rows] = -1
        self.next_slot[rows[last]] = slots
        self.episode_end[rows] = positions[last[np.searchsorted(last, np.arange(n))]]

    def _resets(self, new: Transitions) -> np.ndarray:
        """:return: ``(n,)``, where the next state is not the following one as it is stored, and at the last transition"""
        n = len(new.actions)
        resets = np.arange(n) == n - 1
        for key in self.obs_shape:
            if key != "desired_goal":  # not part of the state
                dtype = np.dtype(np.float32) if key in self.columns else self.non_float[key].dtype
                state, following = new.observations[key][1:].astype(dtype), new.next_observations[key][:-1].astype(dtype)
                resets[:-1] |= (state != following).any(axis=tuple(range(1, state.ndim)))
        return resets

    def _check_transitions(self, new: Transitions) -> None:
        """Raise an error before anything is written."""
        n = len(new.actions)
        parts = {key: (new.observations[key].shape, new.next_observations[key].shape) for key in self.obs_shape}
        sizes = {key: n * int(np.prod(shape)) for key, shape in self.obs_shape.items()}
        fits = all(int(np.prod(shape)) == sizes[key] for key, shapes in parts.items() for shape in shapes)
        if not fits or new.actions.shape != (n, self.action_dim) or not len(new.terminations) == len(new.truncations) == n:
            raise ValueError(
                f"{n} transitions need the shapes {self.obs_shape} and {self.action_dim} actions for each, not {parts} and "
                f"{new.actions.shape}, with {len(new.terminations)} terminations and {len(new.truncations)} truncations."
            )
