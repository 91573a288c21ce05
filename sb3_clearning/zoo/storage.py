"""Optuna's storages of studies: databases and journals. Those that can not be opened are one line."""

import random
import time
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from sb3_clearning.zoo.input_error import InputError

#: How often a storage is tried before it counts as out of reach.
STORAGE_ATTEMPTS = 8


def _file_of(storage: str) -> Path | None:
    """:return: The file of a journal or of an sqlite database; None for other databases"""
    if storage.endswith(".log"):
        return Path(storage)
    url = make_url(storage)
    is_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:") and "uri" not in url.query
    return Path(str(url.database)) if is_file else None


def load_study(storage: str, study_name: str) -> optuna.Study:
    """
    :param storage: as for rl-zoo3: a database's address, or the path of a journal, which ends in ``.log``
    :param study_name: the study's name
    :return: the study
    """
    try:
        file = _file_of(storage)
        if file is not None and not file.is_file():  # Optuna would make it
            raise InputError(f"There is no storage {storage}: {file} is not a file.")
        backend: Any = JournalStorage(JournalFileBackend(storage)) if storage.endswith(".log") else storage
        return optuna.load_study(study_name=study_name, storage=backend)
    except KeyError as error:
        raise InputError(f"There is no study {study_name!r} in {storage}.") from error
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError, OSError) as error:
        raise InputError(f"The Optuna storage {storage} can not be opened: {str(error).splitlines()[0]}") from error
    except ImportError as error:
        raise InputError(f"The Optuna storage {storage} needs its database's driver: {error.__cause__ or error}") from error


def open_storage(storage: str) -> None:
    """
    Make the tables of a new Optuna storage. Of two workers that do so at the same moment one gets an error, and only has to
    look again.

    :param storage: the address of a database, or a journal's path, for which there is nothing to do
    """
    if storage.endswith(".log"):
        return
    for attempt in range(STORAGE_ATTEMPTS):
        try:
            optuna.storages.RDBStorage(storage).remove_session()
            return
        except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
            if attempt == STORAGE_ATTEMPTS - 1 or isinstance(error, ArgumentError):  # no address of a database
                reason = str(error).splitlines()[0]
                raise InputError(f"The Optuna storage {storage} can not be opened: {reason}") from error
            time.sleep(random.uniform(0.2, 1.0))
        except ImportError as error:
            raise InputError(
                f"The Optuna storage {storage} needs its database's driver: {error.__cause__ or error}"
            ) from error
