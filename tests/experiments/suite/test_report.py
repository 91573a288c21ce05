"""The report against a table whose truth is known."""

import dataclasses
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from sb3_clearning.checks import UsageError
from sb3_clearning.experiments.paper import control_lines
from sb3_clearning.experiments.suite.config import Run, Suite
from sb3_clearning.experiments.suite.figures import plot_curves, plot_ratio
from sb3_clearning.experiments.suite.intervals import (
    IntervalEstimate,
    curve_estimates,
    interquartile_mean,
    probability_of_improvement,
)
from sb3_clearning.experiments.suite.report import cell, compare, ratio_sweep, results_table, time_to, verdicts, write_report
from sb3_clearning.experiments.suite.scores import ANY_TIME, FINAL, REMAINING, SUCCESS, Scores
from sb3_clearning.experiments.tables.rows import read_rows

pytest.importorskip("rliable")


def row(run: Run, step: int, success: float) -> dict[str, str]:
    values = {"task": run.task, "method": run.method, "seed": run.seed, "step": step, "success": success}
    values |= {
        "initial_success": 0.125,
        "initial": 2.0,
        "final": 2 - success,
        "minimum": 0,
        "average": 1,
        "change": -success,
        "seconds": step / 50,
        "steps_per_second": 50,
    }
    values |= {"settings": json.dumps(run.settings()), "versions": "torch=1", "commit": "abc"}
    return {name: str(value) for name, value in values.items()}


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite.load()


def test_intervals_are_the_same_in_every_report_and_leave_the_generator_alone() -> None:
    ours, theirs = np.random.default_rng(0).random((2, 5, 3))
    found = []
    for seed in (1, 2):
        np.random.seed(seed)
        found.append((interquartile_mean(ours), probability_of_improvement(ours, theirs)))
        assert np.random.random() == np.random.RandomState(seed).random()
    assert found[0] == found[1]
    assert found[0][0].low < found[0][0].value < found[0][0].high


def test_the_interval_of_a_mean_is_the_bootstrap_distributions() -> None:
    """Three seeds: all 27 equally likely samples can be listed."""
    values = np.array([0.1, 0.5, 0.6])
    means = sorted(float(np.mean(sample)) for sample in product(values, repeat=3))
    estimate = curve_estimates({1: values})[1]
    assert estimate.value == pytest.approx(0.4)
    assert estimate.n == 3
    # 2.5% are less than one of 27 samples: the limits are the smallest and the largest.
    assert (estimate.low, estimate.high) == (pytest.approx(means[0]), pytest.approx(means[-1]))


def test_steps_with_other_numbers_of_seeds_stay_apart() -> None:
    estimates = curve_estimates({10: np.array([0.2, 0.4]), 20: np.array([0.7]), 30: np.array([0.4, 0.6])})
    assert {step: (round(one.value, 6), one.n) for step, one in estimates.items()} == {
        10: (0.3, 2),
        20: (0.7, 1),
        30: (0.5, 2),
    }
    assert estimates[20].low == estimates[20].high == 0.7


def test_interquartile_mean_leaves_the_outer_quarters_out() -> None:
    scores = np.array([[0.0, 1.0], [0.4, 0.6], [0.5, 0.9], [0.1, 0.5]])
    middle = sorted(scores.ravel())[2:6]
    assert interquartile_mean(scores).value == pytest.approx(np.mean(middle))


def test_probability_of_improvement_counts_pairs_and_halves_ties() -> None:
    ours, theirs = np.array([[1.0, 0.5], [0.2, 0.5]]), np.array([[0.5, 0.5], [0.1, 0.9]])
    pairs = [(a > b) + 0.5 * (a == b) for task in range(2) for a in ours[:, task] for b in theirs[:, task]]
    assert probability_of_improvement(ours, theirs).value == pytest.approx(np.mean(pairs))


def test_missing_runs_are_shown_as_missing(suite: Suite) -> None:
    runs = suite.runs(["paper"], tasks=["SawyerReach-v0", "PointUMaze-v0"])
    reach = [run for run in runs if run.task == "SawyerReach-v0"]
    rows = [row(run, run.steps, 0.25) for run in reach if run.method == "clearning" and run.seed < 2]
    rows += [row(run, 5000, 0.1) for run in reach if run.method == "next_state"]
    rows += [row(run, run.steps, 0.75) for run in reach if run.method == "her_final"]
    scores = Scores(rows, runs)
    assert cell(scores, "SawyerReach-v0", "clearning", SUCCESS) == "0.25 [0.25, 0.25], 2 of 5 seeds"
    assert cell(scores, "SawyerReach-v0", "next_state", SUCCESS) == "unfinished (5,000 of 30,000)"
    assert cell(scores, "SawyerReach-v0", "her_final", FINAL) == "1.2500 (1 seed)"
    assert cell(scores, "SawyerReach-v0", "no_relabelling", SUCCESS) == "missing"
    assert scores.complete_tasks(scores.methods) == []
    reach_line, maze_line = verdicts(scores, ["next_state", "no_relabelling", "her_final"], SUCCESS)[2:]
    assert reach_line.endswith(
        "| 0.25 [0.25, 0.25], 2 of 5 seeds | her_final: 0.75 (1 seed) | undecided (worse, 1 seed) | "
        "next_state, no_relabelling |"
    )
    assert maze_line.endswith("| missing | – | – | next_state, no_relabelling, her_final |")


def test_what_the_episodes_begin_with_is_shown(suite: Suite) -> None:
    runs = suite.runs(["paper"], tasks=["SawyerReach-v0", "PointUMaze-v0"])
    scores = Scores([row(run, run.steps, 0.5) for run in runs if run.task == "SawyerReach-v0"], runs)
    for measure, start in ((SUCCESS, "0.12"), (FINAL, "2.0000")):
        header, _, reach, maze = results_table(scores, measure)
        assert header.startswith("| task | steps | at the start | clearning |")
        assert reach.startswith(f"| SawyerReach-v0 | 30,000 | {start} |")
        assert maze.startswith("| PointUMaze-v0 | 30,000 | – | missing |")


def test_ahead_level_and_behind() -> None:
    low, high, both = (
        IntervalEstimate(0.2, 0.1, 0.3, 3),
        IntervalEstimate(0.8, 0.7, 0.9, 3),
        IntervalEstimate(0.5, 0.2, 0.8, 3),
    )
    assert compare(high, low, SUCCESS.better) == "ahead"
    assert compare(high, low, FINAL.better) == "behind"
    assert compare(both, low, SUCCESS.better) == compare(both, high, FINAL.better) == "level"


def test_a_single_seed_decides_nothing() -> None:
    one, three = IntervalEstimate(0.8, 0.8, 0.8, 1), IntervalEstimate(0.2, 0.1, 0.3, 3)
    assert compare(one, three, SUCCESS.better) == compare(three, one, FINAL.better) == "undecided (better, 1 seed)"
    assert compare(one, three, FINAL.better) == compare(three, one, SUCCESS.better) == "undecided (worse, 1 seed)"
    assert compare(one, one, SUCCESS.better) == "level (1 seed)"


@pytest.mark.parametrize(
    ("clearning", "next_state", "reach", "push"),
    [
        ((0.9, 0.8), (0.5, 0.6), "agrees: ahead", "agrees: ahead"),
        ((0.9, 0.5), (0.6, 0.7), "agrees: level", "does not agree: level"),
        ((0.1, 0.2), (0.6, 0.7), "does not agree: behind", "does not agree: behind"),
        ((0.9,), (0.5, 0.6), "undecided (better, 1 seed)", "undecided (better, 1 seed)"),
        ((), (0.5, 0.6), "–", "–"),
    ],
)
def test_the_papers_main_figure(
    suite: Suite, clearning: tuple[float, ...], next_state: tuple[float, ...], reach: str, push: str
) -> None:
    tasks = ["SawyerReach-v0", "SawyerPush-v0"]
    runs = suite.runs(["paper"], tasks=tasks, methods=["clearning", "next_state", "her_final"])
    values = {"clearning": clearning, "next_state": next_state, "her_final": ()}
    rows = [row(run, run.steps, values[run.method][run.seed]) for run in runs if run.seed < len(values[run.method])]
    lines = control_lines(Scores(rows, runs), ["next_state", "her_final"])
    assert [(line.claim, line.verdict) for line in lines] == list(zip(tasks, (reach, push), strict=True))
    for line in lines:
        ours, theirs = line.ours.find("clearning"), line.ours.find("next_state")
        assert line.ours.endswith("missing")
        # The distance of a row is 2 less its success.
        assert (0 <= ours < theirs) == (bool(clearning) and np.mean(clearning) > np.mean(next_state))


def test_the_best_baseline_is_the_best_by_the_measure(suite: Suite) -> None:
    runs = suite.runs(["paper"], tasks=["SawyerReach-v0"])
    success = {"clearning": 0.9, "next_state": 0.3, "her_final": 0.5, "sb3_td3_her": 1.0}
    scores = Scores([row(run, run.steps, success.get(run.method, 0.0)) for run in runs], runs)
    rivals = [method for method in scores.methods if method not in ("clearning", *suite.non_baselines())]
    variants = ["appendix_shares", "full_bootstrap", "lambda_default"]
    with_reward = ["sb3_td3_her", "sb3_sac_her", "sb3_tqc_her"]
    assert suite.non_baselines() == ["log_prob", "one_step", *with_reward, "zero_actions", *variants]
    for measure in (SUCCESS, FINAL):
        *_, line = verdicts(scores, rivals, measure)
        assert "her_final: " in line
        assert "| undecided (better, 1 seed) | – |" in line


@pytest.mark.parametrize("changed", [{"arguments": {"lambda_": 0.1}}, {"episodes": 5}, {"env_kwargs": {"arm_goal": False}}])
def test_rows_with_other_settings_are_refused(suite: Suite, changed: dict[str, object]) -> None:
    runs = suite.runs(["paper"], tasks=["PointUMaze-v0"], methods=["clearning"])
    rows = [row(run, run.steps, 0.5) for run in runs]
    Scores(rows, runs)
    rows[1]["settings"] = json.dumps({**runs[1].settings(), **changed})
    with pytest.raises(
        UsageError, match=r"1 runs in the table were made with other settings \(PointUMaze-v0/clearning/seed_1\)"
    ):
        Scores(rows, runs)
    Scores(rows, [runs[0], runs[2]])  # rows that the matrix does not have are not looked at


def test_the_sweep_is_found_in_the_tables_arguments(suite: Suite) -> None:
    runs = suite.runs(["maze_ratio"])
    scores = Scores([row(run, run.steps, 0.5) for run in runs], runs)
    found = ratio_sweep(scores, "PointUMaze-v0")
    # The shares that a batch of 256 has.
    assert list(found) == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.98, 0.995, 1.0], abs=1 / 256)
    assert (found[255 / 256], found[0.5]) == ("ratio_0.995", "next_state")


def test_remaining_distance_is_a_share() -> None:
    assert REMAINING.of({"final": "0.5", "initial": "2.0"}) == pytest.approx(0.25)


def test_success_at_any_time_is_shown_where_it_was_measured(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sb3_clearning.experiments.suite.intervals.REPETITIONS", 50)
    runs = suite.runs(["paper"], tasks=["SawyerReach-v0"], methods=["clearning", "next_state", "her_final"])
    old = [row(run, run.steps, 0.25) for run in runs if run.method != "her_final"]
    assert "any time" not in write_report("old", old, runs, [], tmp_path).read_text()
    # Of an older table that got the column, and of new runs.
    rows = [{**one, "success_any_time": "0.75" if one["method"] == "clearning" and one["seed"] != "2" else ""} for one in old]
    scores = Scores(rows, runs)
    assert cell(scores, "SawyerReach-v0", "clearning", ANY_TIME) == "0.75 [0.75, 0.75], 4 of 5 seeds"
    assert cell(scores, "SawyerReach-v0", "next_state", ANY_TIME) == "–"
    assert cell(scores, "SawyerReach-v0", "her_final", ANY_TIME) == "missing"
    text = write_report("new", rows, runs, [], tmp_path).read_text()
    _, found, section = text.partition("## Success at any time\n\n")
    assert found
    assert section.splitlines()[:3] == results_table(scores, ANY_TIME)
    assert (tmp_path / "new_success_any_time.png").exists()


def test_steps_and_minutes_to_a_success_rate(suite: Suite) -> None:
    runs = suite.runs(["paper"], tasks=["SawyerReach-v0"], methods=["clearning", "next_state", "one_step", "her_final"])
    curves = {
        ("clearning", 0): [0.1, 0.5, 0.4, 1.0, 0.2, 0.2],
        ("clearning", 1): [0.6, 0.9, 0.9, 0.9, 0.9, 0.9],
        ("clearning", 2): [0.0, 0.0, 0.0, 0.0, 0.5, 0.9],
        ("next_state", 0): [0.5, 0.5, 0.5, 0.5, 0.5, 0.5],
        ("next_state", 1): [0.4, 0.4, 0.4, 0.4, 0.4, 0.4],
        ("one_step", 0): [0.9],  # not done: it does not count
    }
    rows = []
    for run in runs:
        for step, success in zip(run.evaluations(), curves.get((run.method, run.seed), []), strict=False):
            rows.append({**row(run, step, success), "cpu_seconds": str(step * 0.06) if run.method == "clearning" else ""})
    scores = Scores(rows, runs)
    found = {
        (method, level): time_to(scores, "SawyerReach-v0", method, level) for method in scores.methods for level in (0.5, 0.95)
    }
    assert found["clearning", 0.5] == "10,000, 10.0 min (3 of 3)"
    assert found["clearning", 0.95] == "not reached (1 of 3)"
    assert time_to(scores, "SawyerReach-v0", "clearning", 0.9) == "20,000, 20.0 min (3 of 3)"
    assert found["next_state", 0.5] == "not reached (1 of 2)"  # the median of a number and never
    assert found["next_state", 0.95] == "not reached (0 of 2)"
    assert found["one_step", 0.5] == "unfinished (5,000 of 30,000)"
    assert found["her_final", 0.5] == "missing"


def test_minutes_are_shown_where_they_were_measured(suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_clearning.experiments.suite.intervals.REPETITIONS", 50)
    runs = suite.runs(["paper"], tasks=["SawyerReach-v0"], methods=["clearning", "next_state"])
    rows = [row(run, step, 0.5) for run in runs for step in run.evaluations()]
    text = write_report("without", rows, runs, [], tmp_path).read_text()
    assert "| SawyerReach-v0 | 30,000 | 5,000 (5 of 5) | 5,000 (5 of 5) |" in text
    assert "over processor minutes" not in text
    measured = [{**one, "cpu_seconds": str(int(one["step"]) * 0.01 * (1 + int(one["seed"])))} for one in rows]
    assert Scores(measured, runs).minutes("SawyerReach-v0", "clearning")[10_000] == pytest.approx(10_000 * 0.03 / 60)
    drawn: list[list[float]] = []
    plot = Axes.plot

    def watch(axes: Axes, *xy: Any, **style: Any) -> Any:
        drawn.append(list(xy[0]))
        return plot(axes, *xy, **style)

    monkeypatch.setattr("matplotlib.axes.Axes.plot", watch)
    text = write_report("with", measured, runs, [], tmp_path).read_text()
    assert "## Success over processor minutes" in text
    assert (tmp_path / "with_minutes.png").exists()
    assert pytest.approx([step * 0.03 / 60 for step in runs[0].evaluations()]) in drawn


def test_the_report_is_written_from_rows_alone(suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb3_clearning.experiments.suite.intervals.REPETITIONS", 50)
    monkeypatch.setattr("sb3_clearning.experiments.suite.intervals.IMPROVEMENT_REPETITIONS", 10)
    runs = suite.runs(["maze_ratio"], methods=["clearning", "next_state", "ratio_0.9", "ratio_0.995"])
    runs += suite.runs(["paper"], tasks=["SawyerReach-v0"], methods=["clearning"])
    rows = [row(run, step, run.seed / 4) for run in runs for step in run.evaluations() if run.method != "ratio_0.9"]
    text = write_report("some", rows, runs, [], tmp_path).read_text()
    assert "missing" in text
    assert "14 of 17 runs are done" in text
    assert "Commits: abc." in text
    linked = {line.split("](")[1].rstrip(")") for line in text.splitlines() if line.startswith("![")}
    assert linked == {path.name for path in tmp_path.glob("*.png")}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.glob("*.png"))


def test_all_tasks_together_counts_the_seeds_that_every_task_has(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sb3_clearning.experiments.suite.intervals.REPETITIONS", 50)
    monkeypatch.setattr("sb3_clearning.experiments.suite.intervals.IMPROVEMENT_REPETITIONS", 10)
    tasks = ["SawyerReach-v0", "PointUMaze-v0"]
    runs = suite.runs(["paper"], tasks=tasks, methods=["clearning", "next_state"])
    runs += suite.runs(["maze_ratio"], methods=["ratio_0.9"])  # not on every task: it has no part in this
    rows = [row(run, run.steps, 0.5) for run in runs if (run.task, run.method, run.seed) != (tasks[0], "next_state", 2)]
    text = write_report("some", rows, runs, [], tmp_path).read_text()
    _, found, together = text.partition("## All tasks together")
    assert found
    lines = [line.split(" | ")[:3] for line in together.splitlines() if line.startswith("| ")]
    assert [line[:2] for line in lines[2:]] == [["| clearning", "5"], ["| next_state", "4"]]
    assert lines[2][2] == "0.500 [0.500, 0.500]"


@pytest.mark.parametrize(
    ("methods", "marked"),
    [(("ratio_0.1", "ratio_0.3", "next_state"), None), (("ratio_0.9", "ratio_0.98", "ratio_0.995"), 1.93)],
)
def test_the_prediction_is_marked_only_within_the_sweep(
    suite: Suite, tmp_path: Path, methods: tuple[str, ...], marked: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = suite.runs(["maze_ratio"])
    scores = Scores([row(run, run.steps, 0.5) for run in runs], runs)
    found = {ratio: method for ratio, method in ratio_sweep(scores, "PointUMaze-v0").items() if method in methods}
    lines: list[float] = []
    monkeypatch.setattr("matplotlib.axes.Axes.axvline", lambda _, x, **__: lines.append(x))
    plot_ratio(scores, "PointUMaze-v0", found, 0.99, None, tmp_path / "ratio.png")
    # In both panels, at 0.995 between 251 / 256 and 255 / 256.
    assert lines == pytest.approx([] if marked is None else [marked, marked], abs=1e-4)


@pytest.mark.parametrize("matrix", ["paper", "longer", "lookahead", "discounts", "maze_ratio", "ablation"])
def test_the_committed_report_is_that_of_the_committed_table(suite: Suite, matrix: str) -> None:
    folder = Path(__file__).parents[3] / "results" / "suite"
    scores = Scores(read_rows(folder / "suite.csv"), suite.runs_of_each([matrix])[matrix])
    lines = (folder / f"{matrix}.md").read_text().splitlines()
    for measure in (SUCCESS, FINAL):
        table = results_table(scores, measure)
        assert any(lines[start : start + len(table)] == table for start in range(len(lines))), measure.name


def test_curves_of_many_methods_have_colors(suite: Suite, tmp_path: Path) -> None:
    runs = [dataclasses.replace(suite.run("SawyerReach-v0", "clearning", 0), method=f"m{place}") for place in range(40)]
    plot_curves(Scores([row(run, run.steps, 0.5) for run in runs], runs), SUCCESS, tmp_path / "many.png")
    assert (tmp_path / "many.png").exists()
