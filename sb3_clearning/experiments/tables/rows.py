"""Tables as CSV files: a row per evaluation."""

import csv
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sb3_clearning.files.array_file import write_whole

Rows = list[dict[str, str]]


def append_row(path: Path, row: Mapping[str, Any], fields: Sequence[str]) -> None:
    """Append a row to a CSV file. A new file gets its header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fields)
        if new:
            writer.writeheader()
        writer.writerow(row)


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], fields: Sequence[str]) -> None:
    """Write a CSV file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fields)
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue().encode())


def add_columns(path: Path, fields: Sequence[str]) -> None:
    """Add the columns that an older CSV file lacks, empty in its rows."""
    rows = read_rows(path)
    if rows and list(rows[0]) != list(fields):
        write_rows(path, ({name: row.get(name, "") for name in fields} for row in rows), fields)


def replace_row(path: Path, row: Mapping[str, Any], fields: Sequence[str]) -> None:
    """Add a row, or overwrite the one with the same value in the first column."""
    others = [other for other in read_rows(path) if other[fields[0]] != row[fields[0]]]
    write_rows(path, sorted([*others, row], key=lambda one: str(one[fields[0]])), fields)


def read_rows(path: Path) -> Rows:
    """:return: The rows of a CSV file; no rows if it does not exist"""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def has_rows(rows: Rows, columns: Sequence[str], wanted: Iterable[Iterable[Any]]) -> bool:
    """:return: Whether there is a row for each combination of values of the columns"""
    return {tuple(map(str, values)) for values in wanted} <= {tuple(row[name] for name in columns) for row in rows}


def spread(values: Iterable[float], digits: int) -> str:
    """:return: Mean and standard deviation over seeds; one seed has no deviation"""
    values = list(values)
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def markdown(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> list[str]:
    """:return: The lines of a Markdown table"""
    return [f"| {' | '.join(map(str, line))} |" for line in (header, ["---"] * len(header), *lines)]


def write_report(path: Path, title: str, text: str, lines: Sequence[str], rows: Rows) -> None:
    """Write a Markdown report with the provenance of its newest row."""
    origin = f"Commit {rows[-1]['commit']}; {rows[-1]['versions']}."
    path.write_text("\n".join([f"# {title}", "", text, *lines, "", origin, ""]))
