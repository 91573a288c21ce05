"""
A folder of checkpoints. A checkpoint is one file that appears whole, by a renaming, after the segments of the buffer that it
names; files are never changed, and removed only when no checkpoint that is kept names them.
"""

import contextlib
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sb3_clearning.files.array_file import UnreadableFileError, read_arrays, write_arrays
from sb3_clearning.replay.ring_file import (
    Segment,
    join_segments,
    oldest_step,
    settled_until,
    take_head,
    take_segment,
)

if TYPE_CHECKING:
    from sb3_clearning.replay.ring import EpisodeRing

_CHECKPOINT = re.compile(r"checkpoint-(\d{6,12})\.safetensors")
_SEGMENT = re.compile(r"buffer-\d{6,12}-\d{1,18}-\d{1,18}\.safetensors")


def number_of(path: Path) -> int:
    """
    :param path: A checkpoint's file
    :return: Its number
    """
    return int(path.stem.rpartition("-")[2])


class Checkpoint(NamedTuple):
    """
    A checkpoint that was read whole.

    :param path: Its file
    :param content: Its JSON document
    :param arrays: Its arrays
    :param buffer: The buffer's steps, as one segment's arrays
    """

    path: Path
    content: dict[str, Any]
    arrays: dict[str, np.ndarray]
    buffer: dict[str, np.ndarray]


class CheckpointFolder:
    """
    :param folder: The folder
    """

    def __init__(self, folder: Path):
        self.folder = folder
        # The ring whose steps are in the segments, known by its storage, and up to which step these are final.
        self._storage: np.ndarray | None = None
        self._settled = 0
        self._segments: list[dict[str, Any]] = []
        self._kept: dict[Path, list[dict[str, Any]]] = {}

    def paths(self) -> list[Path]:
        """:return: The files of checkpoints, the newest first"""
        if not self.folder.is_dir():
            return []
        found = (path for path in self.folder.iterdir() if _CHECKPOINT.fullmatch(path.name))
        return sorted(found, key=number_of, reverse=True)

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, number: int, content: dict[str, Any], arrays: dict[str, np.ndarray], ring: "EpisodeRing") -> Path:
        """
        :param number: The number of the checkpoint, which counts up
        :param content: Its JSON document
        :param arrays: Its arrays
        :param ring: The buffer, of which what is new goes into a segment
        :return: The checkpoint's file
        """
        if self._storage is not ring.rows:  # another buffer than last time, or emptied since
            self._storage, self._settled, self._segments = ring.rows, 0, []
        oldest, first = oldest_step(ring), max(self._settled, oldest_step(ring))
        segments = [segment for segment in self._segments if segment["end"] > oldest and segment["first"] < first]
        if first < ring.total_added:
            segment = take_segment(ring, first)
            path = self.folder / f"buffer-{number:06d}-{segment.first}-{segment.end}.safetensors"
            sha256 = write_arrays(path, "segment", {"first": segment.first, "end": segment.end}, segment.arrays)
            segments.append({"file": path.name, "first": segment.first, "end": segment.end, "sha256": sha256})
        head, newest = take_head(ring)
        content = {**content, "number": number, "buffer": {**head, "segments": segments}}
        path = self.folder / f"checkpoint-{number:06d}.safetensors"
        write_arrays(path, "checkpoint", content, {**arrays, **{f"buffer/{name}": array for name, array in newest.items()}})
        self._segments, self._settled = segments, settled_until(ring)
        self._kept[path] = segments
        return path

    def remove_old(self, newest: Path, keep: int) -> None:
        """
        :param newest: The newest checkpoint
        :param keep: How many stay, the newest included
        """
        kept = [path for path in self.paths() if number_of(path) <= number_of(newest)][:keep]
        named = {segment["file"] for path in kept for segment in self._kept.get(path, ())}
        if not all(path in self._kept for path in kept):
            return  # of a run before this one, and nobody has read it yet
        stale = [path for path in self.paths() if path not in kept]
        stale += [path for path in self.folder.iterdir() if _SEGMENT.fullmatch(path.name) and path.name not in named]
        stale += [path for path in self.folder.glob(".*.part")]
        for path in stale:  # checkpoints first: none is left without its segments
            self._kept.pop(path, None)
            with contextlib.suppress(OSError):
                path.unlink()

    # -- reading -------------------------------------------------------------------------------------------------------

    def newest(self) -> Checkpoint:
        """:return: The newest whole checkpoint"""
        paths = self.paths()
        if not paths:
            raise UnreadableFileError(f"There is no checkpoint in {self.folder}.")
        errors = []
        for path in paths:
            try:
                checkpoint = self._read(path)
            except UnreadableFileError as error:
                errors.append(str(error))
                continue
            if errors:
                warnings.warn(f"The newest whole checkpoint is {path}: {' '.join(errors)}", stacklevel=3)
            return checkpoint
        raise UnreadableFileError(f"No checkpoint in {self.folder} is whole: {' '.join(errors)}")

    def _read(self, path: Path) -> Checkpoint:
        content, arrays = read_arrays(path, "checkpoint")
        try:
            segments = []
            head = content["buffer"]
            for named in head["segments"]:
                if not _SEGMENT.fullmatch(named["file"]):
                    raise UnreadableFileError(f"{path} names a segment {named['file'][:100]!r}.")
                read, parts = read_arrays(self.folder / named["file"], "segment", named["sha256"])
                segments.append(Segment(int(read["first"]), int(read["end"]), parts))
            buffer = join_segments(segments, head["oldest"], head["added"])
        except UnreadableFileError:
            raise
        except Exception as error:  # a file of ours with a checksum of its own, but other things in it
            raise UnreadableFileError(f"{path} is not a checkpoint ({type(error).__name__}: {error}).") from error
        return Checkpoint(path, content, arrays, buffer)

    def go_on(self, checkpoint: Checkpoint, ring: "EpisodeRing") -> None:
        """
        Let the next checkpoint write only what is new since this one.

        :param checkpoint: The checkpoint
        :param ring: The buffer that was made from it
        """
        head = checkpoint.content["buffer"]
        # A ring that counts its steps anew, as it is larger, has them written anew.
        self._storage = ring.rows if ring.total_added == head["added"] else None
        self._settled, self._segments = settled_until(ring), head["segments"]
        self._kept[checkpoint.path] = self._segments
        for path in self.paths():
            if number_of(path) < number_of(checkpoint.path):
                with contextlib.suppress(UnreadableFileError, KeyError, TypeError):
                    self._kept[path] = read_arrays(path, "checkpoint")[0]["buffer"]["segments"]
