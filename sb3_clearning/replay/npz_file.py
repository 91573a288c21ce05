"""Arrays of an .npz file in blocks of rows, so that the file may be larger than memory."""

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.lib import format as npy

from sb3_clearning.files.array_file import UnreadableFileError

#: What reading a damaged zip raises.
_DAMAGE = (OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, UnicodeDecodeError)


class Header(NamedTuple):
    """What an array's beginning says of it. ``start`` is where its values begin, in bytes."""

    shape: tuple[int, ...]
    dtype: np.dtype
    start: int

    @property
    def row_bytes(self) -> int:
        """:return: The size of a row"""
        return math.prod(self.shape[1:]) * self.dtype.itemsize


class NpzFile:
    """An open .npz file, compressed or not. Errors do not name it: the caller knows how it was asked for."""

    def __init__(self, path: Path):
        try:
            self._zip = zipfile.ZipFile(path)
        except FileNotFoundError as error:
            raise UnreadableFileError("There is no such file.") from error
        except _DAMAGE as error:
            raise UnreadableFileError(f"Not an .npz file, or a truncated one ({error}). Download or save it again.") from error
        self.names = [name.removesuffix(".npy") for name in self._zip.namelist() if name.endswith(".npy")]

    def __enter__(self) -> "NpzFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def header(self, name: str) -> Header:
        """:return: Shape and type of an array of numbers that has rows"""
        with _readable(name), self._zip.open(f"{name}.npy") as member:
            try:
                version = npy.read_magic(member)
                read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
                shape, by_columns, dtype = read(member)
            except _DAMAGE:
                raise
            except Exception as error:  # whatever the parser raises for foreign bytes
                raise UnreadableFileError(f"`{name}` is not an array of NumPy's ({error}). Save the file again.") from error
            start = member.tell()
        if dtype.kind not in "biuf":
            kind = "pickled Python objects, which could run code" if dtype.hasobject else f"the type {dtype}"
            raise UnreadableFileError(f"`{name}` holds {kind}: save it as an array of numbers.")
        if not shape or by_columns:
            raise UnreadableFileError(f"`{name}` is not stored in rows: save it with `np.ascontiguousarray`, one row a step.")
        found = Header(shape, dtype, start)
        if start + shape[0] * found.row_bytes != self._zip.getinfo(f"{name}.npy").file_size:
            raise UnreadableFileError(f"The array `{name}` is truncated. Download or save the file again.")
        return found

    def blocks(self, names: list[str], n_bytes: int) -> Iterator[dict[str, np.ndarray]]:
        """:return: Arrays of the same length in blocks of about ``n_bytes``. The last one checks the zip's checksums"""
        headers = {name: self.header(name) for name in names}
        n = headers[names[0]].shape[0]
        step = max(n_bytes // max(sum(header.row_bytes for header in headers.values()), 1), 1)
        with ExitStack() as stack:
            members = {}
            for name in names:
                with _readable(name):
                    members[name] = stack.enter_context(self._zip.open(f"{name}.npy"))
                    members[name].read(headers[name].start)
            for first in range(0, n, step):
                count = min(step, n - first)
                yield {name: _read_rows(name, members[name], headers[name], count) for name in names}


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise UnreadableFileError(
            f"The array `{name}` is truncated or damaged ({error}). Download or save the file again."
        ) from error


def _read_rows(name: str, member: IO[bytes], header: Header, count: int) -> np.ndarray:
    with _readable(name):
        data = member.read(count * header.row_bytes)
        if len(data) < count * header.row_bytes:
            raise EOFError(f"it ends after {len(data)} bytes of a block")
    return np.frombuffer(data, header.dtype).reshape(count, *header.shape[1:])
