"""The sweep over n_steps: its matrices, and its report of a table whose truth is known."""

import importlib
import json
import math
from pathlib import Path
from typing import Any

import pytest

from sb3_clearning.checks import UsageError
from sb3_clearning.experiments import n_steps
from sb3_clearning.experiments.suite.config import Run, Suite
from sb3_clearning.experiments.suite.run import FIELDS
from sb3_clearning.experiments.suite.scores import Scores
from sb3_clearning.experiments.tables.rows import write_rows

TRIALS = Path(__file__).parents[3] / "results" / "suite" / "trials.yml"
TASKS = ["PointUMaze-10k", "AdroitHand-10k", "SawyerDrawer-22k", "SawyerWindow-22k"]


@pytest.fixture(scope="module")
def runs() -> dict[str, list[Run]]:
    return Suite.load([TRIALS]).runs_of_each(n_steps.MATRICES)


def row(run: Run, step: int, success: float, any_time: str = "") -> dict[str, str]:
    values = {
        "task": run.task,
        "method": run.method,
        "seed": run.seed,
        "step": step,
        "success": success,
        "initial_success": 0.25,
    }
    values |= {"success_any_time": any_time, "initial": 2.0, "final": 2 - success, "commit": "abc", "versions": "torch=1"}
    return {name: str(value) for name, value in {**values, "settings": json.dumps(run.settings())}.items()}


def rows_of(runs: list[Run]) -> list[dict[str, str]]:
    """In the maze n = 1 with both seeds, n = 10 with the second, n = 5 half done and whole episodes with both."""
    found = []
    for run in [run for run in runs if run.task == TASKS[0]]:
        if run.method in ("n_1", "n_inf"):
            success = 0.5 if run.method == "n_inf" else 0.1
            found += [row(run, 5000, 0.9), row(run, 10_000, success + 0.2 * (run.seed - 200), "0.75")]
        elif (run.method, run.seed) == ("n_10", 201):
            found.append(row(run, 10_000, 0.8))
        elif run.method == "n_5":
            found.append(row(run, 5000, 0.6))
    return found


def test_the_other_trials_of_the_docs_leave_them_out(
    runs: dict[str, list[Run]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(TRIALS.parents[2] / "docs")
    rows = rows_of(runs["n_steps"])
    rows += [{**rows[0], "method": "other"}]
    (tmp_path / "suite").mkdir()
    write_rows(tmp_path / "suite" / "trials.csv", [{name: row.get(name) or "0" for name in FIELDS} for row in rows], FIELDS)
    lines = importlib.import_module("choices").trials()(tmp_path)
    assert [line.split("|")[2].strip() for line in lines[2:]] == ["`other`"]


def test_the_matrices(runs: dict[str, list[Run]]) -> None:
    sweep, variants = (runs[name] for name in n_steps.MATRICES)
    assert list(dict.fromkeys(run.task for run in sweep)) == TASKS
    order = [1, 10, 5, 20, 3, 50, math.inf]
    assert [run.arguments["n_steps"] for run in sweep] == [n for n in order for _ in range(8)]  # four tasks, two seeds
    assert all(run.arguments["lambda_"] == 1 for run in sweep)
    limits = [run.arguments["w_clip"] * (1 - run.arguments["gamma"]) for run in sweep if run.arguments["n_steps"] > 1]
    assert limits == pytest.approx([1.0] * len(limits))  # the default with one step
    assert len(variants) == 4 * 2 * 2 + 2 * 4 * 2 + 3 * 2
    for run in variants:
        base = next(one for one in sweep if (one.task, one.method, one.seed) == (run.task, "n_10", run.seed))
        changed = [name for name, value in run.arguments.items() if base.arguments.get(name) != value]
        assert len(changed) == 1, run.name
        assert base.arguments.keys() <= run.arguments.keys()


def test_the_table_shows_what_is_there_and_what_is_missing(runs: dict[str, list[Run]]) -> None:
    lines = n_steps.table(Scores(rows_of(runs["n_steps"]), runs["n_steps"]))[2:]
    assert len(lines) == 4 * 7
    assert lines[:7] == [
        "| PointUMaze-10k | `n_1` | 1 | 10,000 | 2 of 2 | 0.25 | 0.20 | 200: 0.10, 201: 0.30 | 0.75 | 1.8000 |",
        "| PointUMaze-10k | `n_3` | 3 | 10,000 | 0 of 2 | 0.25 | missing | – | – | – |",
        "| PointUMaze-10k | `n_5` | 5 | 10,000 | 0 of 2 | 0.25 | unfinished (5,000 of 10,000) | – | – | – |",
        "| PointUMaze-10k | `n_10` | 10 | 10,000 | 1 of 2 | 0.25 | 0.80 | 201: 0.80 | – | 1.2000 |",
        "| PointUMaze-10k | `n_20` | 20 | 10,000 | 0 of 2 | 0.25 | missing | – | – | – |",
        "| PointUMaze-10k | `n_50` | 50 | 10,000 | 0 of 2 | 0.25 | missing | – | – | – |",
        "| PointUMaze-10k | `n_inf` | ∞ | 10,000 | 2 of 2 | 0.25 | 0.60 | 200: 0.50, 201: 0.70 | 0.75 | 1.4000 |",
    ]
    assert all("| 0 of 2 | – | missing |" in line for line in lines[7:])


def test_the_picture_has_a_line_of_means_and_a_dot_for_each_seed(
    runs: dict[str, list[Run]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure_module = pytest.importorskip("matplotlib.figure")
    figures: list[Any] = []
    monkeypatch.setattr(figure_module.Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    n_steps.plot(Scores(rows_of(runs["n_steps"]), runs["n_steps"]), tmp_path / "n_steps.png")
    (axes,) = figures[0].axes
    means = {line.get_label().split(" ")[0]: line for line in axes.lines if not line.get_label().startswith("_")}
    assert list(means) == TASKS
    maze = means[TASKS[0]]
    assert maze.get_label().endswith("(missing: 3, 5, 20, 50)")
    assert list(maze.get_ydata()) == pytest.approx([0.2, 0.8, 0.6])
    assert list(maze.get_xdata()) == pytest.approx([1, 10, 125], rel=0.05)  # apart from the other tasks' by a little
    dots = [value for line in axes.lines if line.get_label().startswith("_") for value in line.get_ydata()]
    assert sorted(dots) == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.8])
    assert axes.get_xscale() == "log"
    labels = dict(zip(axes.get_xticks(), (label.get_text() for label in axes.get_xticklabels()), strict=True))
    assert labels == {1: "1", 3: "3", 5: "5", 10: "10", 20: "20", 50: "50", 125: "∞"}


def test_the_command_writes_the_report_of_the_rows_so_far(runs: dict[str, list[Run]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    table = tmp_path / "trials.csv"
    options = ["--table", str(table), "--config", str(TRIALS), "--output", str(tmp_path / "out")]
    with pytest.raises(SystemExit):
        n_steps.main(options)
    fields = [name for name in FIELDS if name != "success_any_time"]  # an older table
    for rows in ([], rows_of(runs["n_steps"])):
        write_rows(table, [{name: row.get(name, "") for name in fields} for row in rows], fields)
        n_steps.main(options)
        assert (tmp_path / "out" / "n_steps.png").read_bytes().startswith(b"\x89PNG")
        text = (tmp_path / "out" / "n_steps.md").read_text()
        assert text.count("| `n_10_stochastic` | 10 |") == 1
        assert ("200: 0.10, 201: 0.30 | – | 1.8000 |" in text) == ("Commits: abc." in text) == bool(rows)
    rows[0]["settings"] = "{}"
    write_rows(table, [{name: row.get(name, "") for name in fields} for row in rows], fields)
    with pytest.raises(UsageError, match="made with other settings"):
        n_steps.main(options)
