"""
Files of named arrays and a JSON document, as safetensors. Reading one runs no code. They are written atomically and carry
their own checksum.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

#: Incremented when the layout changes so that older versions of the package cannot read it.
VERSION = 1

_PREFIX = "sb3_clearning."


class UnreadableFileError(ValueError):
    """The file is truncated, damaged, of another kind or version, or does not fit. Nothing was changed."""


def to_bytes(kind: str, content: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """:return: The bytes of a file of some kind ("buffer", "checkpoint", …) with a JSON document and arrays"""
    from safetensors.numpy import save

    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps(content, allow_nan=False)
    header = {"format": _PREFIX + kind, "version": str(VERSION), "content": text}
    return save(arrays, {**header, "sha256": _checksum(header, arrays)})


def from_bytes(kind: str, data: bytes, where: str = "The file") -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """:return: The JSON document of such a file and its arrays, which are read-only. Errors name it ``where``"""
    from safetensors.numpy import load

    try:
        arrays = load(data)
        header = _json(data[8 : 8 + int.from_bytes(data[:8], "little")].decode())["__metadata__"]
        found, version, text, checksum = (header[key] for key in ("format", "version", "content", "sha256"))
    except Exception as error:  # whatever the parsers raise for foreign bytes
        reason = f"{type(error).__name__}: {error}"[:200]
        raise UnreadableFileError(
            f"{where} is truncated, damaged, or was not written by sb3_clearning ({reason}). Nothing was changed."
        ) from error
    if found != _PREFIX + kind:
        raise UnreadableFileError(f"{where} holds {found!r}, not {_PREFIX + kind!r}. Nothing was changed.")
    if version != str(VERSION):
        raise UnreadableFileError(
            f"{where} has the layout's version {version!r}, and this sb3_clearning reads version {VERSION}: install the "
            "version of sb3_clearning that wrote it. Nothing was changed."
        )
    try:
        intact = _checksum({"format": found, "version": version, "content": text}, arrays) == checksum
        content = _json(text) if intact else {}
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
    except Exception as error:
        raise UnreadableFileError(f"{where} has no readable content ({error}). Nothing was changed.") from error
    if not intact:
        raise UnreadableFileError(f"{where} was damaged or changed: its checksum does not match. Nothing was changed.")
    return content, arrays


def write_arrays(path: Path, kind: str, content: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """Write a file of :func:`to_bytes` atomically, and return the SHA-256 of its bytes."""
    data = to_bytes(kind, content, arrays)
    write_whole(path, data)
    return hashlib.sha256(data).hexdigest()


def read_arrays(path: Path, kind: str, sha256: str | None = None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a file of :func:`write_arrays`, as :func:`from_bytes` does. ``sha256``: what its bytes must have, if known."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise UnreadableFileError(f"There is no file {path}.") from error
    except OSError as error:
        raise UnreadableFileError(f"{path} cannot be read: {error}.") from error
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise UnreadableFileError(f"{path} was damaged or changed: its checksum does not match. Nothing was changed.")
    return from_bytes(kind, data, str(path))


def under_prefix(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """:return: The arrays whose names start with a prefix, by the rest of their names"""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically, under a temporary name first: a crash leaves the old file or the new one."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} into: make it first.")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Make a renaming survive a power failure, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checksum(header: dict[str, str], arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        digest.update(np.asarray(array, order="C").reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _json(text: str) -> Any:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)
