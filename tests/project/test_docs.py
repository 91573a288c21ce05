"""Everything that README and docs show: Python runs, commands parse, links lead somewhere, numbers are those of results/."""

import argparse
import configparser
import contextlib
import doctest
import importlib
import importlib.util
import inspect
import itertools
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sb3_clearning import CLearning
from sb3_clearning.experiments.tables.rows import read_rows, write_rows
from tests.support.hub_server import as_default_hub
from tests.support.pages import DOCS, PAGES, ROOT, anchors, blocks, commands, links
from tests.support.short_runs import shorten

#: Commands of other programs: looked at as far as a shell would, not further.
FOREIGN = {"git", "minari", "ray", "tensorboard", "cd", "docker"}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def pages_with(*languages: str) -> list[Path]:
    return [page for page in PAGES if any(block.language in languages for block in blocks(page))]


# -- Python ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", pages_with("python"), ids=name_of)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The blocks of a page follow each other, as a reader types them. A text block after one is its output."""
    pytest.importorskip("gymnasium_robotics")
    monkeypatch.chdir(tmp_path)
    shorten(monkeypatch)
    with contextlib.ExitStack() as stack:
        if "push_to_hub(" in page.read_text():
            stack.enter_context(as_default_hub(monkeypatch, tmp_path / "cache"))
        run_blocks(page, capsys)


def run_blocks(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    output = None
    for block in blocks(page):
        if block.not_run is not None:
            output = None
        elif block.language == "python":
            # Empty lines, so that a traceback has the page's own line numbers.
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), namespace)
            output = capsys.readouterr().out
        elif block.language == "text" and output is not None:
            assert_output(block.text, output, f"{name_of(page)}, line {block.line}")
            output = None
        else:
            output = None


def assert_output(shown: str, printed: str, where: str) -> None:
    same = doctest.OutputChecker().check_output(shown.replace("…", "..."), printed, doctest.ELLIPSIS)
    assert same, f"{where} shows\n{shown}\nbut it is\n{printed}"


def test_papers_settings_are_those_of_its_file() -> None:
    yaml = pytest.importorskip("yaml")
    file = yaml.safe_load((ROOT / "zoo_configs" / "paper.yml").read_text())["default"]
    (shown,) = (block.text for block in blocks(ROOT / "docs" / "algorithm.md") if "stochastic_actor=True" in block.text)
    given: dict[str, Any] = {}
    exec(shown, {"env": None, "CLearning": lambda *args, **kwargs: given.update(kwargs)})
    defaults = inspect.signature(CLearning).parameters
    for name in set(file) - {"n_timesteps", "policy", "policy_kwargs"}:
        assert given.get(name, defaults[name].default) == file[name], name
    assert {"net_arch": [256, 256], **given["policy_kwargs"]} == eval(file["policy_kwargs"])


def test_output_is_compared() -> None:
    assert_output("one\n…\nthree\n", "one\ntwo\nthree\n", "here")
    with pytest.raises(AssertionError, match="here shows"):
        assert_output("1.0\n", "1.1\n", "here")


def test_how_to_pages_begin_with_code() -> None:
    """Within the first two screens, so some 250 words."""
    toctree = re.search(r":caption: How to\n(?:.*\n)*?\n((?:\w+\n)+)", (DOCS / "index.md").read_text())
    assert toctree is not None
    pages = toctree[1].split()
    assert "tuning" in pages
    before = {page: len((DOCS / f"{page}.md").read_text().split("```")[0].split()) for page in pages}
    assert {page: words for page, words in before.items() if words > 250} == {}


def test_no_line_begins_with_a_note() -> None:
    """Markdown would take the whole line for HTML, and show its links and backticks as they are."""
    for page in PAGES:
        for number, line in enumerate(page.read_text().splitlines(), 1):
            assert not line.lstrip().startswith("<!-- note"), f"{name_of(page)}, line {number}"


def test_blocks_have_known_languages() -> None:
    known = {"python", "bash", "console", "text", "yaml", "{toctree}", "{eval-rst}", "{include}"}
    for page in PAGES:
        for block in blocks(page):
            assert block.language in known, f"{name_of(page)}, line {block.line}: {block.language!r}"


# -- commands ----------------------------------------------------------------------------------------------------------


class Parsed(Exception):
    """The command line was accepted."""


def all_commands() -> Iterator[Any]:
    for page in PAGES:
        for block in blocks(page):
            if block.language in ("bash", "console") and block.not_run is None:
                for number, command in enumerate(commands(block)):
                    yield pytest.param(command, id=f"{name_of(page)}:{block.line}:{number}")


@pytest.fixture
def parse_only(monkeypatch: pytest.MonkeyPatch) -> None:
    parse_args = argparse.ArgumentParser.parse_args

    def parse_and_stop(self: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> None:
        parse_args(self, *args, **kwargs)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)


@pytest.mark.parametrize("command", list(all_commands()))
def test_command_parses(
    command: str, parse_only: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(command, comments=True)
    while re.fullmatch(r"[A-Z_0-9]+=\S*", words[0]):
        words.pop(0)
    if "…" in words:
        words = words[: words.index("…")]
    program = words[0]
    if program == "make":
        for target in words[1:]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"no target {target}"
    elif program == "pip":
        check_pip(words[1:])
    elif program == "python" or program.endswith("/python"):
        check_python(words[1:], monkeypatch, capsys)
    elif program == "rl_zoo3":  # the console script
        check_python(["-m", f"rl_zoo3.{words[1]}", *words[2:]], monkeypatch, capsys)
    else:
        assert program in FOREIGN, f"unknown program {program}"


def check_pip(words: list[str]) -> None:
    assert words[0] in ("install", "uninstall")
    extras = configparser.ConfigParser(interpolation=None)
    extras.read(ROOT / "setup.cfg")
    for before, word in itertools.pairwise(words):
        if before in ("-c", "--constraint", "-r"):
            assert (ROOT / word).exists(), word
        for extra in re.findall(r"\[([\w,-]+)\]", word if word.startswith((".", "sb3_clearning")) else ""):
            for name in extra.split(","):
                assert name in extras["options.extras_require"], f"no extra {name}"


def check_python(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if words[0] == "-m":
        words = words[1:]
        if words[0].startswith("rl_zoo3"):
            pytest.importorskip("rl_zoo3")
            import sb3_clearning.zoo

            sb3_clearning.zoo.register()
        place: str = words[0]
        run = runpy.run_module
    else:
        place = str(ROOT / words[0])
        run = runpy.run_path  # type: ignore[assignment]
        assert Path(place).exists(), words[0]
    monkeypatch.setattr(sys, "argv", words)
    # A parser that accepts `--help` is all that some of them have before they work.
    with pytest.raises((Parsed, SystemExit)) as stop:
        run(place, run_name="__main__")
    if stop.type is SystemExit:
        pytest.fail(f"{shlex.join(words)}: {stop.value}\n{capsys.readouterr().err[-1500:]}")


# -- links -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"https?://", link):
            assert re.fullmatch(r"https?://[\w.-]+\.\w+(/\S*)?", link), link
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)}: {link} is not there"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name_of(page)}: {link}: {sorted(anchors(target))}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_source_files_that_are_named_exist(page: Path) -> None:
    """By their path in the package, as `runs/run_session.py`, or from the root."""
    for path in re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text()):
        assert any((root / path).exists() for root in (ROOT, ROOT / "sb3_clearning")), f"{name_of(page)}: {path}"


def test_pages_are_in_the_table_of_contents() -> None:
    listed = {
        line
        for block in blocks(DOCS / "index.md")
        if block.language == "{toctree}"
        for line in block.text.splitlines()
        if line and not line.startswith(":")
    }
    assert listed == {page.stem for page in DOCS.glob("*.md")} - {"index"} | {"results/index"}
    (results,) = (block.text for block in blocks(DOCS / "results" / "index.md") if block.language == "{toctree}")
    assert set(results.split()) - {":hidden:"} == {page.stem for page in (DOCS / "results").glob("*.md")} - {"index"}


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_numbers_are_those_of_the_results(page: Path, generate: ModuleType) -> None:
    text = page.read_text()
    assert generate.filled(text, ROOT / "results")[0] == text, "run `python docs/generate.py`"


def test_numbers_that_were_changed_are_noticed(generate: ModuleType) -> None:
    text = (DOCS / "results" / "defaults.md").read_text()
    changed = text.replace("0.98, 1.00, 1.00", "0.98, 1.00, 0.10")
    assert changed != text
    assert generate.filled(changed, ROOT / "results")[0] == text
    noted = text.replace("-->10 to 30<!--", "-->10 to 31<!--")
    assert noted != text
    assert generate.filled(noted, ROOT / "results")[0] == text
    text = (ROOT / "docs" / "performance.md").read_text()
    timed = re.sub(r"(note: sampling_large -->)[\d.]+", r"\g<1>9.99", text)
    assert timed != text
    assert generate.filled(timed, ROOT / "results")[0] == text


def test_regions_are_whole(generate: ModuleType) -> None:
    """A marker with a slip would leave its region as it is, forever."""
    for page in PAGES:
        text = page.read_text()
        marks = re.findall(r"<!-- (/?)(\w+)(?:: \w+)? -->", text)
        opened = [name for slash, name in marks if not slash]
        assert opened == [name for slash, name in marks if slash], page
        found = len(generate.BLOCK.findall(text)) + len(generate.NOTE.findall(text))
        assert found == len(opened), page


def test_unknown_region_is_an_error(generate: ModuleType) -> None:
    with pytest.raises(ValueError, match="no region 'nothing'"):
        generate.filled("<!-- nothing -->\n<!-- /nothing -->", ROOT / "results")


def test_core_regions_are_of_the_defaults(generate: ModuleType, tmp_path: Path) -> None:
    for name in ("core.csv", "core_raw_observations.csv"):
        rows = read_rows(ROOT / "results" / name)
        fields = [*rows[0], "evaluation_seed"]
        others = [{**row, "success": "0", "final": "9"} for row in rows]
        tried = [{**row, "arguments": '{"gamma": 0.5}'} for row in others]
        elsewhere = [{**row, "evaluation_seed": "5"} for row in others]
        write_rows(tmp_path / name, [*rows, *tried, *elsewhere], fields)
    for region in ("core", "core_curve", "core_seeds", "core_raw_and_standardized"):
        assert generate.REGIONS[region](tmp_path) == generate.REGIONS[region](ROOT / "results"), region


def test_time_of_a_setting_counts_once(generate: ModuleType, tmp_path: Path) -> None:
    """All settings take a minute, each in several rows."""
    time = {"seconds": "61.0", "cpu_seconds": "60.0"}
    ratios = [{"gamma": gamma, "method": "q", "lambda": "0.5", "seed": seed, **time} for gamma in "123" for seed in "01"]
    walks = [{"task": "hopper", "method": "td", "gamma": gamma, "seed": seed, **time} for gamma in "123" for seed in "01"]
    for name, rows in (("relabel_ratio", ratios), ("locomotion", walks)):
        write_rows(tmp_path / f"{name}.csv", rows, list(rows[0]))
    lines = generate.REGIONS["prediction_time"](tmp_path)
    assert lines[2:] == ["| `relabel_ratio` | 3.0 |", "| `locomotion` | 2.0 |"]


def test_regions_without_results_keep_their_text(generate: ModuleType, tmp_path: Path) -> None:
    text = "<!-- core -->\nold\n<!-- /core -->"
    assert generate.filled(text, tmp_path) == (text, {"core"})


# -- the diagram of rooms ----------------------------------------------------------------------------------------------


def test_diagram_is_that_of_the_imports(generate: ModuleType) -> None:
    drawn = ROOT / "docs" / "images" / "rooms.svg"
    assert generate.generated()[drawn] == drawn.read_text(), "run `python docs/generate.py`"


def test_diagram_misses_no_import_of_the_sources(generate: ModuleType) -> None:
    """Compared with the lines themselves: ``from sb3_clearning.room…`` in a room's files, except for annotations only."""
    package, written = ROOT / "sb3_clearning", set()
    for path in package.rglob("*.py"):
        importer = path.relative_to(package).with_suffix("").parts[0]
        source = re.sub(r"^if TYPE_CHECKING:\n(?: .*\n|\n)+", "", path.read_text(), flags=re.MULTILINE)
        for imported in re.findall(r"^\s*(?:from|import) sb3_clearning\.(\w+)", source, flags=re.MULTILINE):
            if importer not in ("__init__", imported):
                written.add((importer, imported))
    assert written
    assert written <= generate.rooms.imports()


def test_import_against_the_order_is_drawn_in_red(generate: ModuleType) -> None:
    edge = generate.rooms.Import
    right = generate.rooms.diagram(["top", "bottom"], {edge("top", "bottom")})
    wrong = generate.rooms.diagram(["top", "bottom"], {edge("bottom", "top")})
    assert "#c0392b" not in right
    assert "#c0392b" in wrong


# -- the pages ---------------------------------------------------------------------------------------------------------


def test_names_with_a_trailing_underscore_are_shown_whole(tmp_path: Path) -> None:
    """In reStructuredText ``lambda_`` is a reference: without conf.py's hook the reference shows ``lambda``."""
    pytest.importorskip("myst_parser")
    only_api = ["-D", "root_doc=api", "-D", "include_patterns=api.md", "-D", "extensions=myst_parser,sphinx.ext.autodoc"]
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", *only_api, str(ROOT / "docs"), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    parameters = re.findall(r"<strong>(\w+)</strong> –", (tmp_path / "api.html").read_text())
    assert "lambda_" in parameters
    assert "lambda" not in parameters
