"""Docstrings of the package."""

import ast
import re
from pathlib import Path

import sb3_clearning


def test_no_docstring_has_the_quotes_of_a_string_that_was_split() -> None:
    stray = []
    for path in Path(sb3_clearning.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
                text = ast.get_docstring(node, clean=False) or ""
                if re.search(r'\s"\n\s*"', text):
                    stray.append(f"{path.name}: {text[:80]}")
    assert stray == []
