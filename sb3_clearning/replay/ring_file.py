"""
The replay buffer as arrays and JSON. Segments hold what was added between two moments, so that a checkpoint writes only what
is new. The head holds the rest, the state of the episodes in progress.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sb3_clearning.files.array_file import UnreadableFileError, read_arrays, write_arrays
from sb3_clearning.files.json_values import encode_space

if TYPE_CHECKING:
    from sb3_clearning.replay.ring import EpisodeRing

#: How a transition ends: its episode continues, was truncated after it, or terminated.
CONTINUES, TRUNCATED, TERMINATED = 0, 1, 2


class Segment(NamedTuple):
    """
    Steps of a ring, counted from the first that was ever added.

    :param first: The first step
    :param end: The step after the last
    :param arrays: ``rows`` ``(steps, n_envs, width)``, ``ends`` ``(steps, n_envs)``, the final states ``final`` of the ended
        transitions in their order, and for each key that is not of floats ``side.KEY`` and ``final.KEY``
    """

    first: int
    end: int
    arrays: dict[str, np.ndarray]


def settled_until(ring: "EpisodeRing") -> int:
    """:return: The step before which nothing changes any more: that of the oldest episode in progress"""
    longest = int(ring.episode_steps[ring.in_progress].max()) if ring.in_progress.any() else 0
    return ring.total_added - min(longest, ring.size())


def oldest_step(ring: "EpisodeRing") -> int:
    """:return: The oldest step that is not overwritten"""
    return ring.total_added - ring.size()


def take_segment(ring: "EpisodeRing", first: int) -> Segment:
    """
    :param ring: A ring
    :param first: The first step to take; at least the oldest that is left
    :return: All from there on, copied
    """
    first = max(first, oldest_step(ring))
    positions = np.arange(first, ring.total_added) % ring.buffer_size
    slot = ring.next_slot.reshape(ring.buffer_size, ring.n_envs)[positions]
    final = slot >= ring.n_envs
    ends = np.where(final, np.where(ring.slot_terminated[slot], TERMINATED, TRUNCATED), CONTINUES).astype(np.uint8)
    arrays: dict[str, np.ndarray] = {
        "rows": ring.rows.reshape(ring.buffer_size, ring.n_envs, -1)[positions],
        "ends": ends,
        "final": ring.slot_rows[slot[final]],
    }
    for key, stored in ring.non_float.items():
        arrays[f"side.{key}"] = stored.reshape(ring.buffer_size, ring.n_envs, *ring.obs_shape[key])[positions]
        arrays[f"final.{key}"] = ring.slot_non_float[key][slot[final]]
    return Segment(first, ring.total_added, arrays)


def take_head(ring: "EpisodeRing") -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """
    :param ring: A ring
    :return: Its sizes and spaces, and the state of the episodes in progress
    """
    content = {
        "buffer_size": ring.buffer_size,
        "n_envs": ring.n_envs,
        "added": ring.total_added,
        "oldest": oldest_step(ring),
        "observation_space": encode_space(ring.observation_space),
        "action_space": encode_space(ring.action_space),
    }
    newest = {
        "open": ring.in_progress.copy(),
        "length": ring.episode_steps.copy(),
        "newest": ring.slot_rows[: ring.n_envs].copy(),
    }
    newest.update({f"newest.{key}": slot[: ring.n_envs].copy() for key, slot in ring.slot_non_float.items()})
    return content, newest


def join_segments(segments: list[Segment], oldest: int, added: int) -> dict[str, np.ndarray]:
    """
    :param segments: Segments in their order, each from where the one before it ends, or earlier (then it replaces its end)
    :param oldest: The first step to take
    :param added: The step after the last
    :return: The arrays of one segment from ``oldest`` to ``added``
    """
    parts: list[dict[str, np.ndarray]] = []
    reached = added
    for segment in reversed(segments):
        if segment.end < reached or segment.first >= reached or len(segment.arrays["ends"]) != segment.end - segment.first:
            raise UnreadableFileError("The buffer's segments do not follow each other.")
        start = max(segment.first, oldest)
        parts.append(_cut(segment, start, reached))
        reached = start
        if reached <= oldest:
            break
    if reached != oldest:
        raise UnreadableFileError("The buffer's oldest segments are missing.")
    if not parts:
        return {}
    return {name: np.concatenate([part[name] for part in reversed(parts)]) for name in parts[0]}


def _cut(segment: Segment, start: int, stop: int) -> dict[str, np.ndarray]:
    """:return: The part of a segment from one step to another"""
    steps = slice(start - segment.first, stop - segment.first)
    ends = segment.arrays["ends"]
    before, within = int(np.count_nonzero(ends[: steps.start])), int(np.count_nonzero(ends[steps]))
    finals = slice(before, before + within)
    return {name: array[finals if name.startswith("final") else steps] for name, array in segment.arrays.items()}


def restore_ring(
    ring: "EpisodeRing", content: dict[str, Any], head: dict[str, np.ndarray], arrays: dict[str, np.ndarray]
) -> None:
    """
    Fill a ring of the same spaces and number of environments. All is checked first: if it raises, the ring is unchanged.

    :param ring: The ring; a smaller one gets the newest steps, and one that is larger than a ring that has wrapped around
        counts from the oldest step that is left
    :param content: The sizes and spaces
    :param head: The state of the episodes in progress
    :param arrays: All steps as one segment
    """
    added, oldest = content["added"], content["oldest"]
    if not (isinstance(added, int) and isinstance(oldest, int) and 0 <= oldest <= added):
        raise UnreadableFileError(f"A buffer with the steps from {str(oldest)[:50]} to {str(added)[:50]} is invalid.")
    n_steps = added - oldest
    if n_steps == 0:
        arrays = _empty(ring)
    _check_arrays(ring, n_steps, head, arrays)
    _check_episodes(head["open"], head["length"], arrays["ends"])
    if n_steps > ring.buffer_size:
        segment = Segment(oldest, added, arrays)
        oldest = added - ring.buffer_size
        arrays, n_steps = _cut(segment, oldest, added), ring.buffer_size
    _fill(ring, added, n_steps, head, arrays)


def _fill(ring: "EpisodeRing", added: int, n_steps: int, head: dict[str, np.ndarray], arrays: dict[str, np.ndarray]) -> None:
    if n_steps < min(added, ring.buffer_size):  # from a smaller ring that has wrapped around: its oldest rows are lost
        added = n_steps
    positions = np.arange(added - n_steps, added) % ring.buffer_size
    ends = arrays["ends"]
    n_final = int(np.count_nonzero(ends))
    slot = np.full(ends.shape, -1, dtype=np.int32)
    slot[ends != CONTINUES] = np.arange(ring.n_envs, ring.n_envs + n_final)
    if n_steps:
        slot[-1, head["open"]] = np.flatnonzero(head["open"])
    # The step at which the episode of each transition ends: the next ended one of its environment, or -1.
    steps = np.where(ends != CONTINUES, np.arange(n_steps)[:, None], n_steps)
    last = np.minimum.accumulate(steps[::-1], axis=0)[::-1]
    last = np.where(last < n_steps, positions[np.minimum(last, n_steps - 1)], -1).astype(np.int32) if n_steps else last

    ring.reset()
    ring.total_added, ring.pos, ring.full = added, added % ring.buffer_size, n_steps == ring.buffer_size
    shape = (ring.buffer_size, ring.n_envs)
    ring.rows.reshape(*shape, -1)[positions] = arrays["rows"]
    ring.next_slot.reshape(shape)[positions] = slot
    ring.episode_end.reshape(shape)[positions] = last
    for key, stored in ring.non_float.items():
        stored.reshape(*shape, *ring.obs_shape[key])[positions] = arrays[f"side.{key}"]
        ring.slot_non_float[key] = np.concatenate([head[f"newest.{key}"], arrays[f"final.{key}"]])
    ring.slot_rows = np.concatenate([head["newest"], arrays["final"]])
    ring.slot_terminated = np.append(np.zeros(ring.n_envs, dtype=bool), ends[ends != CONTINUES] == TERMINATED)
    ring.free_slots = []
    ring.in_progress[:], ring.episode_steps[:] = head["open"], head["length"]


def save_ring(ring: "EpisodeRing", path: Path) -> None:
    """
    :param ring: A ring
    :param path: The file to write it to
    """
    content, head = take_head(ring)
    arrays = take_segment(ring, 0).arrays
    write_arrays(path, "buffer", content, {**arrays, **{f"head/{name}": array for name, array in head.items()}})


def load_ring(ring: "EpisodeRing", path: Path) -> None:
    """
    :param ring: A ring of the same spaces
    :param path: A file of :func:`save_ring`
    """
    content, everything = read_arrays(path, "buffer")
    head = {name.removeprefix("head/"): array for name, array in everything.items() if name.startswith("head/")}
    arrays = {name: array for name, array in everything.items() if not name.startswith("head/")}
    ours = {"observation_space": encode_space(ring.observation_space), "action_space": encode_space(ring.action_space)}
    theirs = {name: content.get(name) for name in ours}
    if ours != theirs:
        raise UnreadableFileError(f"{path} holds a buffer of other spaces: {str(theirs)[:500]}, not {str(ours)[:500]}.")
    try:
        if content["n_envs"] == ring.n_envs:
            restore_ring(ring, content, head, arrays)
        else:
            _restore_other(ring, content, head, arrays)
    except (KeyError, TypeError, IndexError, OverflowError, MemoryError) as error:
        raise UnreadableFileError(f"{path} is not a buffer ({type(error).__name__}: {error}).") from error


def _restore_other(
    ring: "EpisodeRing", content: dict[str, Any], head: dict[str, np.ndarray], arrays: dict[str, np.ndarray]
) -> None:
    """Fill a ring of another number of environments: the episodes in progress are truncated."""
    n_envs, n_steps = content["n_envs"], content["added"] - content["oldest"]
    if not isinstance(n_envs, int) or not 0 < n_envs <= 2**16 or not 0 <= n_steps <= 2**40:
        raise UnreadableFileError(f"A buffer of {str(n_envs)[:50]} environments is invalid.")
    if "ends" not in arrays or arrays["ends"].shape != (n_steps, n_envs):
        raise UnreadableFileError("The buffer's arrays do not fit its number of steps and environments.")
    if n_steps == 0:
        ring.reset()
        return
    source = type(ring)(n_steps * n_envs, ring.observation_space, ring.action_space, ring.device, n_envs=n_envs)
    restore_ring(source, content, head, arrays)
    source.truncate_last_trajectory()
    stored = source.transitions()
    ring.reset()
    # Only the newest steps fit: the others need not be added first.
    ring.add_transitions(stored.take(slice(max(len(stored.actions) - ring.buffer_size * ring.n_envs, 0), None)))


def _empty(ring: "EpisodeRing") -> dict[str, np.ndarray]:
    return {name: np.zeros((0, *shape), dtype) for name, (shape, dtype) in _layout(ring).items()}


def _layout(ring: "EpisodeRing") -> dict[str, tuple[tuple[int, ...], Any]]:
    """:return: For each array of a segment the shape of one item, and its type"""
    layout: dict[str, tuple[tuple[int, ...], Any]] = {
        "rows": ((ring.n_envs, ring.rows.shape[1]), np.float32),
        "ends": ((ring.n_envs,), np.uint8),
        "final": ((ring.n_features,), np.float32),
    }
    for key, stored in ring.non_float.items():
        layout[f"side.{key}"] = ((ring.n_envs, *ring.obs_shape[key]), stored.dtype)
        layout[f"final.{key}"] = (ring.obs_shape[key], stored.dtype)
    return layout


def _check_arrays(ring: "EpisodeRing", n_steps: int, head: dict[str, np.ndarray], arrays: dict[str, np.ndarray]) -> None:
    n_final = int(np.count_nonzero(arrays["ends"])) if "ends" in arrays else 0
    expected = {
        name: (n_final if name.startswith("final") else n_steps, *shape, np.dtype(dtype))
        for name, (shape, dtype) in _layout(ring).items()
    }
    expected_head = {
        "open": (ring.n_envs, np.dtype(bool)),
        "length": (ring.n_envs, np.dtype(np.int64)),
        "newest": (ring.n_envs, ring.n_features, np.dtype(np.float32)),
        **{f"newest.{key}": (ring.n_envs, *ring.obs_shape[key], stored.dtype) for key, stored in ring.non_float.items()},
    }
    for wanted, given in ((expected, arrays), (expected_head, head)):
        found = {name: (*array.shape, array.dtype) for name, array in given.items()}
        if found != wanted:
            raise UnreadableFileError(f"The buffer's arrays do not fit: {str(found)[:300]} instead of {str(wanted)[:300]}.")
        if not all(np.isfinite(array).all() for array in given.values()):
            raise UnreadableFileError("The buffer's arrays hold NaN or inf.")


def _check_episodes(in_progress: np.ndarray, length: np.ndarray, ends: np.ndarray) -> None:
    """Raise an error unless the flags describe episodes that could have been added."""
    n_steps = len(ends)
    if ends.size and ends.max() > TERMINATED:
        raise UnreadableFileError("The buffer's file has an unknown kind of episode end.")
    started = n_steps > 0
    after_last = np.where((ends != CONTINUES).any(axis=0), (ends[::-1] != CONTINUES).argmax(axis=0), n_steps) if started else 0
    lengths_fit = np.where(after_last < n_steps, length == after_last, length >= n_steps) if started else ~in_progress
    if not np.where(in_progress, lengths_fit & (length > 0) & started, (length == 0) & (after_last == 0)).all():
        raise UnreadableFileError("The buffer's file describes impossible episodes.")
