"""The check of words: one table in CONTRIBUTING.md, and what it finds."""

import runpy
import subprocess
from pathlib import Path

import pytest

from tests.support.pages import ROOT

CHECK = runpy.run_path(str(ROOT / "docs" / "prose.py"))
TABLE = "# Words\n\n| avoid | write |\n|---|---|\n| must needs | has to |\n| has null, have null | there is no |\n\nend\n"


def test_table_is_read() -> None:
    assert CHECK["words"](TABLE) == {"must needs": "has to", "has null": "there is no", "have null": "there is no"}
    assert len(CHECK["words"]((ROOT / "CONTRIBUTING.md").read_text())) > 30


def test_missing_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="no table"):
        CHECK["words"]("# Words\n")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("It must needs.\n", [1]),
        ("It\nMust needs, and they have null.\n", [2, 2]),
        ("# a comment that must\n    # needs end\n", [1]),
        ("he has Null\n    a must need\n", []),
        ("mustneeds, has nullity\n", []),
    ],
)
def test_expressions_are_found_as_words(text: str, lines: list[int]) -> None:
    assert [line for line, *_ in CHECK["findings"](text, CHECK["words"](TABLE))] == lines


def test_what_it_finds_makes_it_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "CONTRIBUTING.md").write_text(TABLE)
    assert CHECK["main"](tmp_path) == 0, capsys.readouterr().out
    (tmp_path / "page.md").write_text("One\nmay not, or must needs.\n")
    assert CHECK["main"](tmp_path) == 1
    assert "page.md:2: 'must needs': write has to" in capsys.readouterr().out
