"""
Draws the package's import graph: docs/images/rooms.svg, written by ``generate.py``.

The rooms stand on a diagonal, in the order of import-linter's contract in pyproject.toml, their names on the left. A line
leaves the importing room to the right and enters the imported one from above. An import against the order would stand out:
below the diagonal, in red.
"""

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

import grimp

PACKAGE = "sb3_clearning"
#: Of the names; of a room's square; from a room to the next one; around everything
NAMES, SIDE, STEP, MARGIN = 88, 14, 24, 8


class Import(NamedTuple):
    """One room that imports from another."""

    importer: str
    imported: str


def rooms(pyproject: Path) -> list[str]:
    """:return: The rooms of the layers contract, from the top to the bottom"""
    contracts = tomllib.loads(pyproject.read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [name for layer in layers for name in re.split(r"[\s|:]+", layer)]


def imports() -> set[Import]:
    """:return: Which room imports from which, imports inside of functions included, those for annotations only left out"""
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    found = set()
    for module in graph.modules - {PACKAGE}:
        for imported in graph.find_modules_directly_imported_by(module) - {PACKAGE}:
            pair = Import(module.split(".")[1], imported.split(".")[1])
            if pair.importer != pair.imported:
                found.add(pair)
    return found


def diagram(order: list[str], edges: set[Import]) -> str:
    """
    :param order: The rooms, from the top to the bottom
    :return: The picture as SVG; a room that takes no part is left out
    """
    shown = [room for room in order if any(room in edge for edge in edges)]
    place = {room: MARGIN + SIDE // 2 + STEP * number for number, room in enumerate(shown)}
    height = 2 * MARGIN + SIDE + STEP * (len(shown) - 1)
    width, left = height + NAMES + SIDE, NAMES + SIDE
    lines, dots, boxes = [], [], []
    for edge in sorted(edges, key=lambda edge: (shown.index(edge.importer), shown.index(edge.imported))):
        start, end = place[edge.importer], place[edge.imported]
        line, dot = ("#a9bcdb", "#4a6da7") if start < end else ("#e6a8a0", "#c0392b")
        lines.append(f'<path d="M{left + start} {start} H{left + end} V{end}" stroke="{line}"/>')
        title = f"<title>{edge.importer} imports {edge.imported}</title>"
        dots.append(f'<circle cx="{left + end}" cy="{start}" r="3.5" fill="{dot}">{title}</circle>')
    for room, middle in place.items():
        lines.append(f'<path d="M{MARGIN + NAMES + 6} {middle} H{left + middle}" stroke="#ddd" stroke-dasharray="2 3"/>')
        corner = middle - SIDE // 2
        boxes.append(f'<rect x="{left + corner}" y="{corner}" width="{SIDE}" height="{SIDE}" rx="3"/>')
        boxes.append(f'<text x="{MARGIN + NAMES}" y="{middle + 5}" fill="#222" stroke="none">{room}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="sans-serif" font-size="14" role="img" aria-label="Which room imports from which">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            '<g fill="none" stroke-width="1.5">',
            *lines,
            "</g>",
            *dots,
            '<g fill="#eef3fb" stroke="#4a6da7" stroke-width="1.5" text-anchor="end">',
            *boxes,
            "</g>",
            "</svg>",
            "",
        ]
    )
