"""
Finds words that CONTRIBUTING.md avoids, in sources and pages: ``python docs/prose.py``, which ``make lint`` calls.

The table "avoid, write" there is the only list. An expression may begin with a capital, and go over a line's end.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = re.compile(r"^\| avoid \| write \|\n\|[-| ]+\|\n((?:\|.*\n)+)", re.MULTILINE)
SUFFIXES = (".cfg", ".ipynb", ".md", ".py", ".toml", ".yml")


def words(glossary: str) -> dict[str, str]:
    """
    :param glossary: The text of CONTRIBUTING.md
    :return: What to write, for each expression to avoid
    """
    table = TABLE.search(glossary)
    if table is None:
        raise ValueError("CONTRIBUTING.md has no table with the columns 'avoid' and 'write'")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]
    return {word.strip(): write for avoid, write in rows for word in avoid.split(",")}


def findings(text: str, avoided: dict[str, str]) -> list[tuple[int, str, str]]:
    """:return: Line number, expression and what to write, for every avoided expression"""
    found = []
    for word, write in avoided.items():
        # ``is None`` is Python: case matters, but for the first letter. A comment's next line begins with its mark.
        pattern = rf"\b(?i:{re.escape(word[0])})" + r"(?:[ \t]|\n[ \t#]*)+".join(map(re.escape, word[1:].split(" "))) + r"\b"
        for match in re.finditer(pattern, text):
            found.append((text.count("\n", 0, match.start()) + 1, word, write))
    return sorted(found)


def main(root: Path = ROOT) -> int:
    """:return: The exit code: 1 if something is found"""
    glossary = (root / "CONTRIBUTING.md").read_text()
    avoided, lines = words(glossary), []
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    paths = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    for path in paths:
        if path.endswith(SUFFIXES) and not path.startswith("results/") and (root / path).exists():
            text = (root / path).read_text()
            if path == "CONTRIBUTING.md":
                text = TABLE.sub(lambda table: "\n" * table[0].count("\n"), text)
            lines += [f"{path}:{line}: {word!r}: write {write}" for line, word, write in findings(text, avoided)]
    print("\n".join(lines) or f"None of {len(avoided)} expressions to avoid in {len(paths)} files.")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
