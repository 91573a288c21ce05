"""The pages of the documentation, taken apart: code blocks, headings, links."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SITE = sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")] + SITE

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w{}-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*$")


class Block(NamedTuple):
    """
    A fenced block.

    :param language: What stands behind the fence
    :param text: The text in it
    :param line: The number of its first line
    :param not_run: Why it is not run, or None
    """

    language: str
    text: str
    line: int
    not_run: str | None


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in FENCE.finditer(text):
        reason = NOT_RUN.search(text[: match.start()])
        line = text[: match.start("text")].count("\n") + 1
        found.append(Block(match["language"], match["text"], line, reason[1] if reason else None))
    return found


def without_code(page: Path) -> str:
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """The anchors of the headings, by GitHub's rule, which MyST has too."""
    result: set[str] = set()
    for heading in re.findall(r"^#+ +(.*)$", FENCE.sub("", page.read_text()), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 1
        while anchor in result:
            anchor, number = f"{anchor}-{number}", number + 1
        result.add(anchor)
    return result


def links(page: Path) -> Iterator[str]:
    yield from LINK.findall(without_code(page))


def commands(block: Block) -> list[str]:
    """The commands of a bash block (all lines) or of a console block (those after a dollar), with continued lines joined."""
    lines: list[str] = []
    continued = False
    for line in block.text.splitlines():
        start = line.startswith("$ ")
        if continued:
            lines[-1] = lines[-1][:-1] + line
        elif block.language == "bash" or start:
            lines.append(line[2:] if start else line)
        else:
            continue
        continued = line.endswith("\\")
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
