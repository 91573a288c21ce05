"""Tables as CSV files: a row per evaluation."""

import csv
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def append_row(path: Path, row: Mapping[str, Any], fields: Sequence[str]) -> None:
    """
    :param path: A CSV file; it gets its header with the first row
    :param row: The row to append
    :param fields: The columns
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fields)
        if new:
            writer.writeheader()
        writer.writerow(row)


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], fields: Sequence[str]) -> None:
    """
    Replace the whole table, in one moment for those who read it.

    :param path: A CSV file
    :param rows: The rows
    :param fields: The columns
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # The process's own name: several writers each replace the table by a whole one.
    half = path.with_name(f".{path.name}.{os.getpid()}")
    with half.open("w", newline="") as file:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        writer.writerows(rows)
        file.flush()
        os.fsync(file.fileno())  # after a power cut, too, the name stands on a whole table
    half.replace(path)


def add_columns(path: Path, fields: Sequence[str]) -> None:
    """
    Give an older table the columns that it does not have, empty in its rows.

    :param path: A CSV file; if it does not exist, nothing is done
    :param fields: The columns
    """
    rows = read_rows(path)
    if rows and list(rows[0]) != list(fields):
        write_rows(path, ({name: row.get(name, "") for name in fields} for row in rows), fields)


def replace_row(path: Path, row: Mapping[str, Any], fields: Sequence[str]) -> None:
    """
    Put a row into a table that has one for each value of its first column.

    :param path: A CSV file
    :param row: The row, in the place of the one with the same value
    :param fields: The columns
    """
    others = [other for other in read_rows(path) if other[fields[0]] != row[fields[0]]]
    write_rows(path, sorted([*others, row], key=lambda one: str(one[fields[0]])), fields)


def read_rows(path: Path) -> list[dict[str, str]]:
    """
    :param path: A CSV file
    :return: Its rows; none if it does not exist
    """
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def spread(values: Sequence[float], digits: int) -> str:
    """
    :param values: The values of the seeds
    :param digits: How many digits to show
    :return: Their mean and standard deviation
    """
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ± {deviation:.{digits}f}"
