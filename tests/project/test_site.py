"""The built pages: no warnings, and as they look in a browser, wide and on a phone."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.browser import look_at
from tests.support.pages import ROOT

#: Of the window, in pixels: a laptop's and a phone's.
WIDTHS = (1280, 420)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("myst_parser")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(ROOT / "docs"), str(folder)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.slow
def test_pages_build_without_warnings(site: Path) -> None:
    assert (site / "index.html").exists()


@pytest.mark.slow
def test_pages_fit_their_window(site: Path, tmp_path: Path) -> None:
    """No page scrolls to the right, no column is out of sight without a sign of it, every formula and picture is shown."""
    pages = [page.relative_to(site).as_posix() for page in sorted(site.rglob("*.html"))]
    # Listings of the sources have no tables, and their lines scroll.
    pages = [page for page in pages if not page.startswith(("_modules/", "_static/"))]
    seen = look_at(site, pages, WIDTHS, tmp_path / "profile")
    assert [(look["width"], look["page"]) for look in seen] == [(width, page) for width in WIDTHS for page in pages]
    assert {look["page"]: look["problems"] for look in seen if look["problems"]} == {}
    assert sum(look["formulas"] for look in seen) > 100
    assert sum(look["tables"] for look in seen) > 100


BAD = {
    "wide.html": ("<p style='width: 2000px'>far</p>", "the page is 2000 px wide"),
    "cut.html": (
        "<div class='table-wrapper' style='overflow: hidden'><table><tr><td>one</td>"
        "<td><p style='width: 2000px'>two</p></td></tr></table></div>",
        "no sign of the column two",
    ),
    "hidden.html": ("<table><tr><td>one</td><td style='display: none'>gone</td></tr></table>", "a cell is hidden: gone"),
    "tex.html": (r"<p>The sum $\gamma^t r_t$ of rewards</p>", r"raw TeX: $\gamma^t r_t$"),
    "formula.html": (
        "<div style='overflow: auto'><math><mi style='display: block; width: 2000px'>x</mi></math></div>",
        "no sign of a formula's end: x",
    ),
    "list.html": ("<table class='list'><tr><td>one</td><td>nameless</td></tr></table>", "a cell is hidden: nameless"),
    "picture.html": ("<img src='missing.png'>", "no picture: "),
    "good.html": (
        "<p class='more-columns'>More</p><div class='table-wrapper' style='overflow: auto'><table><tr>"
        r"<td><p style='width: 2000px'>a</p></td></tr></table></div>"
        r"<p><code>$\gamma_t$</code> costs $5 or $6 <math><mi>x</mi><mo>=</mo><mi>y</mi></math></p>",
        "",
    ),
}


def test_pages_that_do_not_fit_are_noticed(tmp_path: Path) -> None:
    for name, (content, _) in BAD.items():
        page = f"<!doctype html><body style='margin: 0'><article>{content}</article></body>"
        (tmp_path / name).write_text(page)
    for look in look_at(tmp_path, list(BAD), WIDTHS, tmp_path / "profile"):
        expected = BAD[look["page"]][1]
        assert len(look["problems"]) == bool(expected), look
        assert "".join(look["problems"]).startswith(expected)
