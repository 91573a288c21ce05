"""
The replay buffer as arrays and JSON. A segment holds the steps added between two moments, so that a checkpoint writes only
what is new. The state of the episodes in progress is stored next to the segments.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sb3_clearning.files.array_file import UnreadableFileError, read_arrays, under_prefix, write_arrays
from sb3_clearning.files.json_values import encode_space
from sb3_clearning.replay.ring import EpisodeRing

#: How a transition ends: its episode is still in progress, was truncated after it, or terminated.
IN_PROGRESS, TRUNCATED, TERMINATED = 0, 1, 2

Arrays = dict[str, np.ndarray]


class Segment(NamedTuple):
    """
    Steps of a ring, counted from the first one ever added. ``end`` is the step after the last.

    :param arrays: ``rows`` ``(steps, n_envs, width)``, ``ends`` ``(steps, n_envs)``, the final states ``final`` of the ended
        transitions in their order, and for each non-float key ``side.KEY`` and ``final.KEY``
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
    :param segments: Segments in their order. Where one begins before the previous one ends, it overrides the overlap
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


def snapshot_segment(ring: EpisodeRing, first: int) -> Segment:
    """:return: A copy of all steps from ``first`` on that are not overwritten"""
    first = max(first, ring.oldest_step)
    places = np.arange(first, ring.total_added) % ring.buffer_size
    next_slot = ring.next_slot.reshape(ring.buffer_size, ring.n_envs)[places]
    final = next_slot >= ring.n_envs
    ends = np.where(final, np.where(ring.slot_terminated[next_slot], TERMINATED, TRUNCATED), IN_PROGRESS).astype(np.uint8)
    arrays: Arrays = {
        "rows": np.asarray(ring.rows.reshape(ring.buffer_size, ring.n_envs, -1)[places]),
        "ends": ends,
        "final": np.asarray(ring.slot_rows[next_slot[final]]),
    }
    for key, stored in ring.non_float.items():
        arrays[f"side.{key}"] = np.asarray(stored.reshape(ring.buffer_size, ring.n_envs, *ring.obs_shape[key])[places])
        arrays[f"final.{key}"] = np.asarray(ring.slot_non_float[key][next_slot[final]])
    return Segment(first, ring.total_added, arrays)


def snapshot_open_episodes(ring: EpisodeRing) -> tuple[dict[str, Any], Arrays]:
    """:return: The ring's sizes and spaces, and the state of the episodes in progress"""
    content = {
        "buffer_size": ring.buffer_size,
        "n_envs": ring.n_envs,
        "added": ring.total_added,
        "oldest": ring.oldest_step,
        **_spaces(ring),
    }
    newest = {
        "open": ring.in_progress.copy(),
        "length": ring.episode_steps.copy(),
        "newest": ring.newest_rows.copy(),
    }
    newest.update({f"newest.{key}": states.copy() for key, states in ring.newest_non_float.items()})
    return content, newest


def _spaces(ring: EpisodeRing) -> dict[str, Any]:
    return {"observation_space": encode_space(ring.observation_space), "action_space": encode_space(ring.action_space)}


def restore_ring(ring: EpisodeRing, content: dict[str, Any], open_episodes: Arrays, arrays: Arrays) -> None:
    """
    Replace everything by a snapshot with the same spaces and number of environments. All is checked first: if it raises, the
    ring is unchanged. A smaller ring keeps the newest steps. A larger one than a full snapshot counts its steps from the
    oldest that is left.

    :param content: The sizes and spaces of :func:`snapshot_open_episodes`, and ``open_episodes`` its arrays
    :param arrays: All steps as one segment
    """
    added, oldest = content["added"], content["oldest"]
    if not (isinstance(added, int) and isinstance(oldest, int) and 0 <= oldest <= added):
        raise UnreadableFileError(f"Invalid range of steps in the buffer: {str(oldest)[:50]} to {str(added)[:50]}.")
    n_steps = added - oldest
    if n_steps == 0:
        arrays = {name: np.zeros((0, *shape), dtype) for name, (shape, dtype) in _segment_layout(ring).items()}
    _check_arrays(ring, n_steps, open_episodes, arrays)
    _check_episodes(open_episodes["open"], open_episodes["length"], arrays["ends"])
    if n_steps > ring.buffer_size:
        arrays = Segment(oldest, added, arrays).cut(added - ring.buffer_size, added)
        n_steps = ring.buffer_size
    _fill(ring, added, n_steps, open_episodes, arrays)


def _fill(ring: EpisodeRing, added: int, n_steps: int, open_episodes: Arrays, arrays: Arrays) -> None:
    if n_steps < min(added, ring.buffer_size):
        added = n_steps  # The snapshot came from a smaller, full ring: renumber its steps from 0.
    places = np.arange(added - n_steps, added) % ring.buffer_size
    ends = arrays["ends"]
    n_final = int(np.count_nonzero(ends))
    next_slot = np.full(ends.shape, -1, dtype=np.int32)
    next_slot[ends != IN_PROGRESS] = np.arange(ring.n_envs, ring.n_envs + n_final)
    if n_steps:
        next_slot[-1, open_episodes["open"]] = np.flatnonzero(open_episodes["open"])
    # The step at which the episode of each transition ends: the next ended one of its environment, or -1.
    steps = np.where(ends != IN_PROGRESS, np.arange(n_steps)[:, None], n_steps)
    end = np.minimum.accumulate(steps[::-1], axis=0)[::-1]
    episode_end = np.where(end < n_steps, places[np.minimum(end, n_steps - 1)], -1).astype(np.int32) if n_steps else end

    ring.reset()
    ring.reserve_slots(n_final)
    ring.total_added, ring.pos, ring.full = added, added % ring.buffer_size, n_steps == ring.buffer_size
    shape = (ring.buffer_size, ring.n_envs)
    ring.rows.reshape(*shape, -1)[places] = arrays["rows"]
    ring.next_slot.reshape(shape)[places] = next_slot
    ring.episode_end.reshape(shape)[places] = episode_end
    final_slots = slice(ring.n_envs, ring.n_envs + n_final)
    ring.slot_rows[: ring.n_envs], ring.slot_rows[final_slots] = open_episodes["newest"], arrays["final"]
    for key, stored in ring.non_float.items():
        stored.reshape(*shape, *ring.obs_shape[key])[places] = arrays[f"side.{key}"]
        ring.slot_non_float[key][: ring.n_envs] = open_episodes[f"newest.{key}"]
        ring.slot_non_float[key][final_slots] = arrays[f"final.{key}"]
    ring.copy_newest_to_host()
    ring.slot_terminated[final_slots] = ends[ends != IN_PROGRESS] == TERMINATED
    ring.free_slots = list(range(ring.n_envs + n_final, len(ring.slot_rows)))
    ring.in_progress[:], ring.episode_steps[:] = open_episodes["open"], open_episodes["length"]


def save_ring(ring: EpisodeRing, path: Path) -> None:
    """Write everything to a file, atomically."""
    content, open_episodes = snapshot_open_episodes(ring)
    arrays = snapshot_segment(ring, 0).arrays
    arrays.update({f"head/{name}": array for name, array in open_episodes.items()})
    write_arrays(path, "buffer", content, arrays)


def load_ring(ring: EpisodeRing, path: Path) -> None:
    """
    Replace everything by what :func:`save_ring` wrote. If the file is damaged or does not fit, nothing is changed. A ring with
    another number of environments than the saved one gets the episodes one after the other.
    """
    content, everything = read_arrays(path, "buffer")
    arrays = {name: array for name, array in everything.items() if not name.startswith("head/")}
    ours = _spaces(ring)
    theirs = {name: content.get(name) for name in ours}
    if ours != theirs:
        raise UnreadableFileError(f"{path} holds a buffer of other spaces: {str(theirs)[:500]}, not {str(ours)[:500]}.")
    restore = restore_ring if content.get("n_envs") == ring.n_envs else _restore_other
    try:
        restore(ring, content, under_prefix(everything, "head/"), arrays)
    except (KeyError, TypeError, IndexError, OverflowError, MemoryError) as error:
        raise UnreadableFileError(f"{path} is not a buffer ({type(error).__name__}: {error}).") from error


def _restore_other(ring: EpisodeRing, content: dict[str, Any], open_episodes: Arrays, arrays: Arrays) -> None:
    """Restore a snapshot with another number of environments. Its episodes in progress are truncated."""
    n_envs, n_steps = content["n_envs"], content["added"] - content["oldest"]
    if not isinstance(n_envs, int) or not 0 < n_envs <= 2**16 or not 0 <= n_steps <= 2**40:
        raise UnreadableFileError(f"Invalid number of environments in the buffer: {str(n_envs)[:50]}.")
    if "ends" not in arrays or arrays["ends"].shape != (n_steps, n_envs):
        raise UnreadableFileError("The buffer's arrays do not fit its number of steps and environments.")
    if n_steps == 0:
        ring.reset()
        return
    source = type(ring)(n_steps * n_envs, ring.observation_space, ring.action_space, ring.device, n_envs=n_envs)
    restore_ring(source, content, open_episodes, arrays)
    source.truncate_last_trajectory()
    ring.reset()
    ring.add_transitions(source.transitions())


def _segment_layout(ring: EpisodeRing) -> dict[str, tuple[tuple[int, ...], Any]]:
    """:return: For each array of a segment the shape of one item, and its type"""
    layout: dict[str, tuple[tuple[int, ...], Any]] = {
        "rows": ((ring.n_envs, ring.action_columns.stop), np.float32),
        "ends": ((ring.n_envs,), np.uint8),
        "final": ((ring.n_features,), np.float32),
    }
    for key, stored in ring.non_float.items():
        layout[f"side.{key}"] = ((ring.n_envs, *ring.obs_shape[key]), stored.dtype)
        layout[f"final.{key}"] = (ring.obs_shape[key], stored.dtype)
    return layout


def _check_arrays(ring: EpisodeRing, n_steps: int, open_episodes: Arrays, arrays: Arrays) -> None:
    n_final = int(np.count_nonzero(arrays["ends"])) if "ends" in arrays else 0
    expected = {
        name: (n_final if name.startswith("final") else n_steps, *shape, np.dtype(dtype))
        for name, (shape, dtype) in _segment_layout(ring).items()
    }
    expected_open = {
        "open": (ring.n_envs, np.dtype(bool)),
        "length": (ring.n_envs, np.dtype(np.int64)),
        "newest": (ring.n_envs, ring.n_features, np.dtype(np.float32)),
        **{f"newest.{key}": (ring.n_envs, *ring.obs_shape[key], stored.dtype) for key, stored in ring.non_float.items()},
    }
    for wanted, given in ((expected, arrays), (expected_open, open_episodes)):
        found = {name: (*array.shape, array.dtype) for name, array in given.items()}
        if found != wanted:
            raise UnreadableFileError(f"The buffer's arrays do not fit: {str(found)[:300]} instead of {str(wanted)[:300]}.")
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
