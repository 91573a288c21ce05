"""Optuna's storages: databases and journals. One that cannot be opened is a one-line error."""

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from sb3_clearning.checks import UsageError

#: How often creating the tables of a storage is tried.
STORAGE_ATTEMPTS = 8
#: What a database or a file that is not one raises.
OPEN_ERRORS = (SQLAlchemyError, optuna.exceptions.StorageInternalError, OSError)


@contextlib.contextmanager
def _one_line_errors(storage: str) -> Iterator[None]:
    try:
        yield
    except OPEN_ERRORS as error:
        raise UsageError(f"The Optuna storage {storage} cannot be opened: {str(error).splitlines()[0]}") from error
    except ImportError as error:
        raise UsageError(f"The Optuna storage {storage} needs its database's driver: {error.__cause__ or error}") from error


def _file_of(storage: str) -> Path | None:
    """:return: The file of a journal or of an sqlite database; None for other databases"""
    if storage.endswith(".log"):
        return Path(storage)
    url = make_url(storage)
    is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:") and "uri" not in url.query
    return Path(str(url.database)) if is_file else None


def load_study(storage: str, study_name: str) -> optuna.Study:
    """:return: The study in a database's URL, or in a journal, whose path ends in ``.log``"""
    with _one_line_errors(storage):
        file = _file_of(storage)
        if file is not None and not file.is_file():  # Optuna would create it
            raise UsageError(f"There is no storage {storage}: {file} is not a file.")
        backend: Any = JournalStorage(JournalFileBackend(storage)) if storage.endswith(".log") else storage
        try:
            return optuna.load_study(study_name=study_name, storage=backend)
        except KeyError as error:
            raise UsageError(f"There is no study {study_name!r} in {storage}.") from error


def open_storage(storage: str) -> None:
    """Create the tables of a new database. Of two workers that do so at the same moment one gets an error and tries again."""
    if storage.endswith(".log"):
        return
    with _one_line_errors(storage):
        for attempt in range(STORAGE_ATTEMPTS):
            try:
                optuna.storages.RDBStorage(storage).remove_session()
                return
            except OPEN_ERRORS as error:
                if attempt == STORAGE_ATTEMPTS - 1 or isinstance(error, ArgumentError):  # not a database's URL
                    raise
                time.sleep(random.uniform(0.2, 1.0))
