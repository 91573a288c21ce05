"""
Fills the marked regions of README.md and docs/*.md from results/ and draws the import graph (docs/images/rooms.svg):
``python docs/generate.py``, which ``make doc`` calls.

A region is ``<!-- name -->`` … ``<!-- /name -->`` on lines of their own, and holds a table; or
``<!-- note: name -->value<!-- /note -->`` within a line, and holds one value of results/notes.csv, results/task_facts.csv or
results/benchmarks.csv. A region without its results keeps its text. ``--check`` writes nothing and fails if a file is stale.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import rooms  # noqa: E402
from regions import REGIONS, notes  # noqa: E402

BLOCK = re.compile(r"^<!-- (\w+) -->\n(.*?)^<!-- /\1 -->$", re.MULTILINE | re.DOTALL)
NOTE = re.compile(r"<!-- note: (\w+) -->(.*?)<!-- /note -->")


def filled(text: str, results: Path) -> tuple[str, set[str]]:
    """:return: The page with its regions filled, and the names of those that have no results"""
    missing: set[str] = set()
    values = notes(results)

    def block(match: re.Match[str]) -> str:
        name = match[1]
        if name not in REGIONS:
            raise ValueError(f"There is no region {name!r}: it is one of {sorted(REGIONS)}")
        lines = REGIONS[name](results)
        if lines is None:
            missing.add(name)
            return match[0]
        return "\n".join([f"<!-- {name} -->", *lines, f"<!-- /{name} -->"])

    def note(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise ValueError(f"None of results/notes.csv, task_facts.csv and benchmarks.csv has a note {match[1]!r}")
        return f"<!-- note: {match[1]} -->{values[match[1]]}<!-- /note -->"

    return NOTE.sub(note, BLOCK.sub(block, text)), missing


def generated() -> dict[Path, str]:
    """:return: What each generated file, or page with generated regions, should hold"""
    files = {ROOT / "docs" / "images" / "rooms.svg": rooms.diagram(rooms.rooms(ROOT / "pyproject.toml"), rooms.imports())}
    pages = sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts)
    for page in (ROOT / "README.md", *pages):
        files[page], missing = filled(page.read_text(), ROOT / "results")
        for name in sorted(missing):
            print(f"{page.name}: no results for {name} yet", file=sys.stderr)
    return files


def main() -> int:
    """:return: The exit code: 1 if ``--check`` finds a stale file"""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a file is stale")
    options = parser.parse_args()
    stale = {path: text for path, text in generated().items() if not path.exists() or path.read_text() != text}
    if not options.check:
        for path, text in stale.items():
            path.write_text(text)
    print(f"{'Stale' if options.check else 'Filled'}: {', '.join(path.name for path in stale) or 'nothing'}")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
