"""
Fills the marked regions of README.md and docs/*.md from results/: ``python docs/generate.py``, which ``make doc`` calls.

A region is ``<!-- name -->`` … ``<!-- /name -->`` on lines of their own, and holds a table; or
``<!-- note: name -->value<!-- /note -->`` within a line, and holds one value of results/notes.csv, results/task_facts.csv or
results/benchmarks.csv. A region without its results keeps its text. ``--check`` writes nothing and fails if something would
change.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

from regions import REGIONS, notes  # noqa: E402

BLOCK = re.compile(r"^<!-- (\w+) -->\n(.*?)^<!-- /\1 -->$", re.MULTILINE | re.DOTALL)
NOTE = re.compile(r"<!-- note: (\w+) -->(.*?)<!-- /note -->")


def filled(text: str, results: Path) -> tuple[str, set[str]]:
    """
    :param text: A page
    :param results: The folder of results
    :return: The page with its regions filled, and the names of those that have no results
    """
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


def main() -> int:
    """:return: The exit code: 1 if ``--check`` finds a page that is not what the results say"""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if something would change")
    options = parser.parse_args()
    stale = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = page.read_text()
        new, missing = filled(text, ROOT / "results")
        for name in sorted(missing):
            print(f"{page.name}: no results for {name} yet", file=sys.stderr)
        if new != text:
            stale.append(page.name)
            if not options.check:
                page.write_text(new)
    print(f"{'Stale' if options.check else 'Filled'}: {', '.join(stale) or 'nothing'}")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
