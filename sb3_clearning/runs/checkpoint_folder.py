"""
A folder of checkpoints. A checkpoint is one file, written atomically after the segments of the buffer that it names. Files are
never changed, and removed only when no remaining checkpoint names them.
"""

import contextlib
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sb3_clearning.files.array_file import UnreadableFileError, read_arrays, under_prefix, write_arrays
from sb3_clearning.replay.ring import EpisodeRing
from sb3_clearning.replay.ring_file import Segment, join_segments, restore_ring, snapshot_open_episodes, snapshot_segment

_CHECKPOINT = re.compile(r"checkpoint-(\d{6,12})\.safetensors")
_SEGMENT = re.compile(r"buffer-\d{6,12}-\d{1,18}-\d{1,18}\.safetensors")


def _number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


class Checkpoint(NamedTuple):
    """A checkpoint, completely read. ``buffer`` are the buffer's steps, as one segment's arrays."""

    path: Path
    content: dict[str, Any]
    arrays: dict[str, np.ndarray]
    buffer: dict[str, np.ndarray]

    def restore_buffer(self, ring: EpisodeRing) -> None:
        """:param ring: Gets the checkpoint's buffer"""
        restore_ring(ring, self.content["buffer"], under_prefix(self.arrays, "buffer/"), self.buffer)


class CheckpointFolder:
    """The checkpoints of a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        # The number of the last checkpoint of this run; None: that of the newest file.
        self._last_number: int | None = None
        # The rows of the ring whose steps are in the segments (`reset` makes new ones), and up to which step these are final.
        self._rows: np.ndarray | None = None
        self._immutable_until = 0
        self._segments: list[dict[str, Any]] = []
        self._segments_of: dict[Path, list[dict[str, Any]]] = {}

    def paths(self) -> list[Path]:
        """:return: The files of checkpoints, the newest first"""
        if not self.folder.is_dir():
            return []
        found = (path for path in self.folder.iterdir() if _CHECKPOINT.fullmatch(path.name))
        return sorted(found, key=_number, reverse=True)

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, content: dict[str, Any], arrays: dict[str, np.ndarray], ring: EpisodeRing) -> Path:
        """:return: The checkpoint's file. It is written after a segment of what is new in the buffer"""
        if self._last_number is None:
            self._last_number = max(map(_number, self.paths()), default=0)
        number = self._last_number + 1
        if self._rows is not ring.rows:  # another buffer than last time, or emptied since
            self._rows, self._immutable_until, self._segments = ring.rows, 0, []
        first = max(self._immutable_until, ring.oldest_step)
        segments = [named for named in self._segments if named["end"] > ring.oldest_step and named["first"] < first]
        if first < ring.total_added:
            segment = snapshot_segment(ring, first)
            path = self.folder / f"buffer-{number:06d}-{segment.first}-{segment.end}.safetensors"
            sha256 = write_arrays(path, "segment", {"first": segment.first, "end": segment.end}, segment.arrays)
            segments.append({"file": path.name, "first": segment.first, "end": segment.end, "sha256": sha256})
        buffer, open_episodes = snapshot_open_episodes(ring)
        content = {**content, "number": number, "buffer": {**buffer, "segments": segments}}
        arrays = {**arrays, **{f"buffer/{name}": array for name, array in open_episodes.items()}}
        path = self.folder / f"checkpoint-{number:06d}.safetensors"
        write_arrays(path, "checkpoint", content, arrays)
        self._last_number, self._segments, self._immutable_until = number, segments, ring.immutable_until
        self._segments_of[path] = segments
        return path

    def remove_old(self, newest: Path, keep: int) -> None:
        """Keep the newest checkpoint and those before it, ``keep`` in all."""
        kept = [path for path in self.paths() if _number(path) <= _number(newest)][:keep]
        named = {segment["file"] for path in kept for segment in self._segments_of.get(path, ())}
        if not all(path in self._segments_of for path in kept):
            return  # of an earlier run, and not read yet
        stale = [path for path in self.paths() if path not in kept]
        stale += [path for path in self.folder.iterdir() if _SEGMENT.fullmatch(path.name) and path.name not in named]
        stale += self.folder.glob(".*.part")
        for path in stale:  # checkpoints first, so that none is left without its segments
            self._segments_of.pop(path, None)
            with contextlib.suppress(OSError):
                path.unlink()

    # -- reading -------------------------------------------------------------------------------------------------------

    def read_newest(self) -> Checkpoint:
        """:return: The newest checkpoint that is complete"""
        errors = []
        for path in self.paths():
            try:
                checkpoint = self._read(path)
            except UnreadableFileError as error:
                errors.append(str(error))
                continue
            if errors:
                warnings.warn(f"Newer checkpoints cannot be read, using {path}: {' '.join(errors)}", stacklevel=3)
            return checkpoint
        if not errors:
            raise UnreadableFileError(
                f"There is no checkpoint in {self.folder}: start a run with `callback=ResumableCheckpoint(folder)`."
            )
        raise UnreadableFileError(f"No checkpoint in {self.folder} is complete: {' '.join(errors)}")

    def _read(self, path: Path) -> Checkpoint:
        content, arrays = read_arrays(path, "checkpoint")
        try:
            segments = []
            head = content["buffer"]
            for named in head["segments"]:
                if not _SEGMENT.fullmatch(named["file"]):
                    raise UnreadableFileError(f"{path} refers to an invalid buffer file: {named['file'][:100]!r}.")
                read, parts = read_arrays(self.folder / named["file"], "segment", named["sha256"])
                segments.append(Segment(int(read["first"]), int(read["end"]), parts))
            buffer = join_segments(segments, head["oldest"], head["added"])
        except UnreadableFileError:
            raise
        except Exception as error:  # the checksum is right, but the content is not a checkpoint's
            raise UnreadableFileError(f"{path} is not a checkpoint ({type(error).__name__}: {error}).") from error
        return Checkpoint(path, content, arrays, buffer)

    def continue_from(self, checkpoint: Checkpoint, ring: EpisodeRing) -> None:
        """Let the next checkpoint write only what is new since this one, from which the buffer was restored."""
        buffer = checkpoint.content["buffer"]
        self._last_number = checkpoint.content["number"]
        # A larger ring that restarted its count of steps is written completely.
        self._rows = ring.rows if ring.total_added == buffer["added"] else None
        self._immutable_until, self._segments = ring.immutable_until, buffer["segments"]
        self._segments_of[checkpoint.path] = self._segments
        for path in self.paths():
            if _number(path) < _number(checkpoint.path):
                with contextlib.suppress(UnreadableFileError, KeyError, TypeError):
                    self._segments_of[path] = read_arrays(path, "checkpoint")[0]["buffer"]["segments"]
