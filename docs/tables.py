"""Tables: read from results/, written as Markdown."""

import csv
from collections.abc import Callable
from pathlib import Path

Rows = list[dict[str, str]]
#: A region's lines from the folder of results; None if they have not been measured.
Region = Callable[[Path], list[str] | None]


def read(path: Path) -> Rows | None:
    """:return: Its rows; None if it is not there"""
    if not path.exists():
        return None
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def markdown(header: list[str], lines: list[list[str]]) -> list[str]:
    """:return: The lines of a table"""
    return [f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *lines)]


def grouped(rows: Rows, *columns: str) -> dict[tuple[str, ...], Rows]:
    """:return: The rows of each combination of these columns' values, the combinations sorted"""
    groups: dict[tuple[str, ...], Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return dict(sorted(groups.items()))


def success_of(rows: Rows, steps: list[int] | None = None) -> str:
    """
    :param rows: The rows of one run; if an evaluation is there twice, the newest counts
    :param steps: The evaluations to show, a dash for those that are missing. None: all
    :return: Success at each of them
    """
    if not rows:
        return "–"
    found = {int(row["step"]): float(row["success"]) for row in rows}
    return ", ".join(f"{found[step]:.2f}" if step in found else "–" for step in (steps or sorted(found)))
