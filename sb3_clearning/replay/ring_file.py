"""
The replay buffer as arrays and JSON. A segment holds the steps added between two moments, so that a checkpoint writes only
what is new. The state of the episodes in progress is stored next to the segments.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer

from sb3_clearning.files.array_file import UnreadableFileError, read_arrays, write_arrays
from sb3_clearning.files.json_values import encode_space
from sb3_clearning.replay.transitions import Transitions

#: How a transition ends: its episode is still in progress, was truncated after it, or terminated.
IN_PROGRESS, TRUNCATED, TERMINATED = 0, 1, 2

Arrays = dict[str, np.ndarray]


class Segment(NamedTuple):
    """
    Steps of a ring, counted from the first one ever added.

    :param first: The first step
    :param end: The step after the last
    :param arrays: ``rows`` ``(steps, n_envs, width)``, ``ends`` ``(steps, n_envs)``, the final states ``final`` of the ended
        transitions in their order, and for each key that is not of floats ``side.KEY`` and ``final.KEY``
    """

    first: int
    end: int
    arrays: Arrays

    def cut(self, start: int, stop: int) -> Arrays:
        """:return: The arrays of the steps from ``start`` to before ``stop``"""
        steps = slice(start - self.first, stop - self.first)
        ends = self.arrays["ends"]
        before, within = int(np.count_nonzero(ends[: steps.start])), int(np.count_nonzero(ends[steps]))
        finals = slice(before, before + within)
        return {name: array[finals if name.startswith("final") else steps] for name, array in self.arrays.items()}


def join_segments(segments: list[Segment], oldest: int, added: int) -> Arrays:
    """
    :param segments: Segments in their order. Where one begins before the previous one ends, it replaces that end
    :param oldest: The first step to take
    :param added: The step after the last
    :return: The arrays of one segment from ``oldest`` to ``added``
    """
    parts: list[Arrays] = []
    reached = added
    for segment in reversed(segments):
        if segment.end < reached or segment.first >= reached or len(segment.arrays["ends"]) != segment.end - segment.first:
            raise UnreadableFileError("The buffer's segments are not contiguous.")
        start = max(segment.first, oldest)
        parts.append(segment.cut(start, reached))
        reached = start
        if reached <= oldest:
            break
    if reached != oldest:
        raise UnreadableFileError("The buffer's oldest segments are missing.")
    if not parts:
        return {}
    return {name: np.concatenate([part[name] for part in reversed(parts)]) for name in parts[0]}


class RingFiles(DictReplayBuffer):
    """The part of :class:`EpisodeRing` that saves and restores its content."""

    observation_space: spaces.Dict
    total_added: int
    n_features: int
    action_columns: slice
    rows: np.ndarray
    non_float: Arrays
    next_slot: np.ndarray
    episode_end: np.ndarray
    slot_rows: np.ndarray
    slot_non_float: Arrays
    slot_terminated: np.ndarray
    free_slots: list[int]
    in_progress: np.ndarray
    episode_steps: np.ndarray

    @property
    def has_open_episodes(self) -> bool:
        """:return: Whether an episode is in progress"""
        return bool(self.in_progress.any())

    @property
    def storage(self) -> np.ndarray:
        """:return: The stored rows. It is another array after :meth:`reset`, so it identifies the content"""
        return self.rows

    @property
    def oldest_step(self) -> int:
        """:return: The oldest step that is not overwritten"""
        return self.total_added - self.size()

    @property
    def immutable_until(self) -> int:
        """:return: The first step that can still change: the start of the oldest episode in progress"""
        longest = int(self.episode_steps[self.in_progress].max()) if self.has_open_episodes else 0
        return self.total_added - min(longest, self.size())

    def snapshot_segment(self, first: int) -> Segment:
        """
        :param first: The first step to take
        :return: A copy of all steps from there on that are not overwritten
        """
        first = max(first, self.oldest_step)
        places = np.arange(first, self.total_added) % self.buffer_size
        kept = self.next_slot.reshape(self.buffer_size, self.n_envs)[places]
        final = kept >= self.n_envs
        ends = np.where(final, np.where(self.slot_terminated[kept], TERMINATED, TRUNCATED), IN_PROGRESS).astype(np.uint8)
        arrays: Arrays = {
            "rows": self.rows.reshape(self.buffer_size, self.n_envs, -1)[places],
            "ends": ends,
            "final": self.slot_rows[kept[final]],
        }
        for key, side in self.non_float.items():
            arrays[f"side.{key}"] = side.reshape(self.buffer_size, self.n_envs, *self.obs_shape[key])[places]
            arrays[f"final.{key}"] = self.slot_non_float[key][kept[final]]
        return Segment(first, self.total_added, arrays)

    def snapshot_open_episodes(self) -> tuple[dict[str, Any], Arrays]:
        """:return: The ring's sizes and spaces, and the state of the episodes in progress"""
        content = {
            "buffer_size": self.buffer_size,
            "n_envs": self.n_envs,
            "added": self.total_added,
            "oldest": self.oldest_step,
            "observation_space": encode_space(self.observation_space),
            "action_space": encode_space(self.action_space),
        }
        newest = {
            "open": self.in_progress.copy(),
            "length": self.episode_steps.copy(),
            "newest": self.slot_rows[: self.n_envs].copy(),
        }
        newest.update({f"newest.{key}": kept[: self.n_envs].copy() for key, kept in self.slot_non_float.items()})
        return content, newest

    def restore(self, content: dict[str, Any], open_episodes: Arrays, arrays: Arrays) -> None:
        """
        Replace everything by a snapshot with the same spaces and number of environments. All is checked first: if it raises,
        the ring is unchanged. A smaller ring keeps the newest steps. A larger one than a full snapshot counts its steps from
        the oldest that is left.

        :param content: The sizes and spaces of :meth:`snapshot_open_episodes`
        :param open_episodes: Its arrays
        :param arrays: All steps as one segment
        """
        added, oldest = content["added"], content["oldest"]
        if not (isinstance(added, int) and isinstance(oldest, int) and 0 <= oldest <= added):
            raise UnreadableFileError(f"Invalid range of steps in the buffer: {str(oldest)[:50]} to {str(added)[:50]}.")
        n_steps = added - oldest
        if n_steps == 0:
            arrays = {name: np.zeros((0, *shape), dtype) for name, (shape, dtype) in self._segment_layout().items()}
        self._check_arrays(n_steps, open_episodes, arrays)
        _check_episodes(open_episodes["open"], open_episodes["length"], arrays["ends"])
        if n_steps > self.buffer_size:
            arrays = Segment(oldest, added, arrays).cut(added - self.buffer_size, added)
            n_steps = self.buffer_size
        self._fill(added, n_steps, open_episodes, arrays)

    def _fill(self, added: int, n_steps: int, open_episodes: Arrays, arrays: Arrays) -> None:
        if n_steps < min(added, self.buffer_size):  # of a smaller, full ring: the rows that it lost are missing
            added = n_steps
        places = np.arange(added - n_steps, added) % self.buffer_size
        ends = arrays["ends"]
        n_final = int(np.count_nonzero(ends))
        kept = np.full(ends.shape, -1, dtype=np.int32)
        kept[ends != IN_PROGRESS] = np.arange(self.n_envs, self.n_envs + n_final)
        if n_steps:
            kept[-1, open_episodes["open"]] = np.flatnonzero(open_episodes["open"])
        # The step at which the episode of each transition ends: the next ended one of its environment, or -1.
        steps = np.where(ends != IN_PROGRESS, np.arange(n_steps)[:, None], n_steps)
        last = np.minimum.accumulate(steps[::-1], axis=0)[::-1]
        last = np.where(last < n_steps, places[np.minimum(last, n_steps - 1)], -1).astype(np.int32) if n_steps else last

        self.reset()
        self._reserve_slots(n_final)
        self.total_added, self.pos, self.full = added, added % self.buffer_size, n_steps == self.buffer_size
        shape = (self.buffer_size, self.n_envs)
        self.rows.reshape(*shape, -1)[places] = arrays["rows"]
        self.next_slot.reshape(shape)[places] = kept
        self.episode_end.reshape(shape)[places] = last
        aside = slice(self.n_envs, self.n_envs + n_final)
        self.slot_rows[: self.n_envs], self.slot_rows[aside] = open_episodes["newest"], arrays["final"]
        for key, side in self.non_float.items():
            side.reshape(*shape, *self.obs_shape[key])[places] = arrays[f"side.{key}"]
            self.slot_non_float[key][: self.n_envs] = open_episodes[f"newest.{key}"]
            self.slot_non_float[key][aside] = arrays[f"final.{key}"]
        self.slot_terminated[aside] = ends[ends != IN_PROGRESS] == TERMINATED
        self.free_slots = list(range(self.n_envs + n_final, len(self.slot_rows)))
        self.in_progress[:], self.episode_steps[:] = open_episodes["open"], open_episodes["length"]

    def _reserve_slots(self, n: int) -> None:
        raise NotImplementedError

    def add_transitions(self, transitions: Transitions) -> int:
        """Add transitions of episodes, one environment after the other."""
        raise NotImplementedError

    def truncate_last_trajectory(self) -> None:
        """End the episodes in progress, as truncated."""
        raise NotImplementedError

    def transitions(self) -> Transitions:
        """:return: All that is stored, one environment after the other and each in order of time"""
        raise NotImplementedError

    def save(self, path: str | Path) -> None:
        """
        Write everything to a file of arrays and JSON. Unlike a pickle, it runs no code when it is loaded.

        :param path: The file, usually ``….safetensors``; it is written atomically
        """
        content, open_episodes = self.snapshot_open_episodes()
        arrays = self.snapshot_segment(0).arrays
        arrays.update({f"head/{name}": array for name, array in open_episodes.items()})
        write_arrays(Path(path), "buffer", content, arrays)

    def load(self, path: str | Path) -> None:
        """
        Replace everything by what :meth:`save` wrote. A smaller buffer keeps the newest transitions; one with another number
        of environments gets the episodes one after the other. If the file is damaged or does not fit, nothing is changed.

        :param path: The file
        """
        content, everything = read_arrays(Path(path), "buffer")
        open_episodes = {name.removeprefix("head/"): array for name, array in everything.items() if name.startswith("head/")}
        arrays = {name: array for name, array in everything.items() if not name.startswith("head/")}
        ours = {"observation_space": encode_space(self.observation_space), "action_space": encode_space(self.action_space)}
        theirs = {name: content.get(name) for name in ours}
        if ours != theirs:
            raise UnreadableFileError(f"{path} holds a buffer of other spaces: {str(theirs)[:500]}, not {str(ours)[:500]}.")
        try:
            if content["n_envs"] == self.n_envs:
                self.restore(content, open_episodes, arrays)
            else:
                self._restore_other(content, open_episodes, arrays)
        except (KeyError, TypeError, IndexError, OverflowError, MemoryError) as error:
            raise UnreadableFileError(f"{path} is not a buffer ({type(error).__name__}: {error}).") from error

    def _restore_other(self, content: dict[str, Any], open_episodes: Arrays, arrays: Arrays) -> None:
        """Restore a snapshot with another number of environments. Its episodes in progress are truncated."""
        n_envs, n_steps = content["n_envs"], content["added"] - content["oldest"]
        if not isinstance(n_envs, int) or not 0 < n_envs <= 2**16 or not 0 <= n_steps <= 2**40:
            raise UnreadableFileError(f"Invalid number of environments in the buffer: {str(n_envs)[:50]}.")
        if "ends" not in arrays or arrays["ends"].shape != (n_steps, n_envs):
            raise UnreadableFileError("The buffer's arrays do not fit its number of steps and environments.")
        if n_steps == 0:
            self.reset()
            return
        source = type(self)(n_steps * n_envs, self.observation_space, self.action_space, self.device, n_envs=n_envs)
        source.restore(content, open_episodes, arrays)
        source.truncate_last_trajectory()
        stored = source.transitions()
        # Only the newest that fit, so that none is added just to be overwritten.
        newest = slice(max(len(stored.actions) - self.buffer_size * self.n_envs, 0), None)
        self.reset()
        self.add_transitions(
            Transitions(
                {key: value[newest] for key, value in stored.observations.items()},
                {key: value[newest] for key, value in stored.next_observations.items()},
                *(array[newest] for array in (stored.actions, stored.terminations, stored.truncations)),
            ),
        )

    def _non_float_dtypes(self) -> list[tuple[str, np.dtype]]:
        return [(key, array.dtype) for key, array in self.non_float.items()]

    def _segment_layout(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """:return: For each array of a segment the shape of one item, and its type"""
        layout: dict[str, tuple[tuple[int, ...], Any]] = {
            "rows": ((self.n_envs, self.action_columns.stop), np.float32),
            "ends": ((self.n_envs,), np.uint8),
            "final": ((self.n_features,), np.float32),
        }
        for key, dtype in self._non_float_dtypes():
            layout[f"side.{key}"] = ((self.n_envs, *self.obs_shape[key]), dtype)
            layout[f"final.{key}"] = (self.obs_shape[key], dtype)
        return layout

    def _check_arrays(self, n_steps: int, open_episodes: Arrays, arrays: Arrays) -> None:
        n_final = int(np.count_nonzero(arrays["ends"])) if "ends" in arrays else 0
        expected = {
            name: (n_final if name.startswith("final") else n_steps, *shape, np.dtype(dtype))
            for name, (shape, dtype) in self._segment_layout().items()
        }
        expected_open = {
            "open": (self.n_envs, np.dtype(bool)),
            "length": (self.n_envs, np.dtype(np.int64)),
            "newest": (self.n_envs, self.n_features, np.dtype(np.float32)),
            **{f"newest.{key}": (self.n_envs, *self.obs_shape[key], dtype) for key, dtype in self._non_float_dtypes()},
        }
        for wanted, given in ((expected, arrays), (expected_open, open_episodes)):
            found = {name: (*array.shape, array.dtype) for name, array in given.items()}
            if found != wanted:
                raise UnreadableFileError(
                    f"The buffer's arrays do not fit: {str(found)[:300]} instead of {str(wanted)[:300]}."
                )
            if not all(np.isfinite(array).all() for array in given.values()):
                raise UnreadableFileError("The buffer's arrays hold NaN or inf.")


def _check_episodes(in_progress: np.ndarray, length: np.ndarray, ends: np.ndarray) -> None:
    """Raise an error unless the flags describe episodes that could have been added."""
    n_steps = len(ends)
    if ends.size and ends.max() > TERMINATED:
        raise UnreadableFileError("Unknown kind of episode end in the buffer's file.")
    started = n_steps > 0
    ended = ends != IN_PROGRESS
    since_end = np.where(ended.any(axis=0), ended[::-1].argmax(axis=0), n_steps) if started else 0
    lengths_fit = np.where(since_end < n_steps, length == since_end, length >= n_steps) if started else ~in_progress
    if not np.where(in_progress, lengths_fit & (length > 0) & started, (length == 0) & (since_end == 0)).all():
        raise UnreadableFileError("The episodes in progress do not fit the buffer's steps.")
