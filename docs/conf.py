"""Sphinx configuration: ``make doc`` writes docs/_build/html. Warnings are errors."""

import os
import re
import sys
from configparser import ConfigParser
from pathlib import Path

import sphinx.application
from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.writers.html5 import HTML5Translator

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
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
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

# GitHub shows the same files, with these anchors, and formulas between dollars. Here they become MathML, without a network.
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath", "deflist"]
html_math_renderer = "mathml"
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
html_css_files = ["pages.css"]
html_js_files = ["wide.js"]
pygments_dark_style = "monokai"
html_copy_source = False
html_domain_indices = False
html_show_sourcelink = False


setup_cfg = ConfigParser(interpolation=None)
setup_cfg.read(ROOT / "setup.cfg")
html_theme_options = {"source_repository": setup_cfg["metadata"]["url"], "source_branch": "main", "source_directory": "docs/"}


def link_repository_files(app: object, page: str, source: list[str]) -> None:
    """
    GitHub shows links to files outside of docs/; here they become downloads, for Markdown files too.

    :param source: The page's text, in a list of length 1
    """
    folder = (DOCS / page).parent

    def link(match: re.Match[str]) -> str:
        inside = Path(os.path.normpath(folder / match[1])).is_relative_to(DOCS)
        return match[0] if inside else f"](path:{match[1]})"

    source[0] = re.sub(r"\]\((\.\./[^)#]+\.md)\)", link, source[0])


def inline_formula(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line as MathML."""
    self.body.append(f'<span class="formula">{mathml(node.astext(), as_block=False)}</span>')
    raise nodes.SkipNode


def block_formula(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula between lines as MathML."""
    self.body.append(f'<div class="formula">{mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def mathml(tex: str, as_block: bool) -> str:
    """:return: The formula. One that docutils cannot read is an error of the build"""
    return str(latex2mathml.tex2mathml(" ".join(tex.split()), as_block=as_block))


def escape_trailing_underscores(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """
    Escapes the underscore of ``:param lambda_:``, which reStructuredText would read as a reference and drop.

    :param lines: The docstring, changed in place
    """
    lines[:] = [re.sub(r"^(\s*:param \w+)_:", r"\1\\_:", line) for line in lines]


def setup(app: sphinx.application.Sphinx) -> None:
    """Connects the functions above to Sphinx's events."""
    app.add_html_math_renderer("mathml", (inline_formula, None), (block_formula, None))
    app.connect("source-read", link_repository_files)
    app.connect("autodoc-process-docstring", escape_trailing_underscores)
