"""Sphinx configuration: ``make doc`` writes docs/_build/html. Warnings are errors."""

import re
import sys
from pathlib import Path

import sphinx.application

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sb3_clearning import __version__  # noqa: E402

project = "sb3_clearning"
author = "The sb3_clearning developers"
copyright = author
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosectionlabel",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

# GitHub shows the same files, with these anchors. Formulas of the pages are plain text: MathJax needs the net.
myst_heading_anchors = 3
autosectionlabel_prefix_document = True
suppress_warnings = ["autosectionlabel.*"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
python_maximum_signature_line_length = 100
add_module_names = False

copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"sb3_clearning {release}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_copy_source = False
html_show_sourcelink = False


def link_repository_files(app: object, page: str, source: list[str]) -> None:
    """
    GitHub shows links to files outside of docs/; here they become downloads, for Markdown files too.

    :param source: The page's text, in a list of length 1
    """
    source[0] = re.sub(r"\]\((\.\./[^)#]+\.md)\)", r"](path:\1)", source[0])


def escape_trailing_underscores(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """
    Escapes the underscore of ``:param lambda_:``, which reStructuredText would read as a reference and drop.

    :param lines: The docstring, changed in place
    """
    lines[:] = [re.sub(r"^(\s*:param \w+)_:", r"\1\\_:", line) for line in lines]


def setup(app: sphinx.application.Sphinx) -> None:
    """Connects the functions above to Sphinx's events."""
    app.connect("source-read", link_repository_files)
    app.connect("autodoc-process-docstring", escape_trailing_underscores)
