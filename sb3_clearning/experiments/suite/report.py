"""The report of a matrix: tables in Markdown and pictures, from the rows of the table alone."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from sb3_clearning.experiments.suite.config import Run
from sb3_clearning.experiments.suite.figures import plot_curves, plot_estimates, plot_ratio
from sb3_clearning.experiments.suite.intervals import (
    IntervalEstimate,
    estimate_of,
    interquartile_mean,
    probability_of_improvement,
)
from sb3_clearning.experiments.suite.scores import ANY_TIME, FINAL, NEVER, REMAINING, SUCCESS, Measure, Scores
from sb3_clearning.experiments.tables.rows import Rows, markdown
from sb3_clearning.goal_td3.goal_td3 import RELABELLING
from sb3_clearning.replay.goal_buffer import goal_slices

#: The method that the others are held against.
OURS = "clearning"
#: The success rates for which the report says when they are reached.
LEVELS = (0.5, 0.9, 0.95)
#: A table with more methods has them as its lines.
WIDEST = 8
#: Of two times three values that are drawn alike, the larger three are those of one side in 2 of 20 cases.
CHANCE = (
    "Level: the intervals overlap. Intervals of three seeds are narrow: of two methods that are alike one comes out ahead in "
    "10% of the comparisons (with two seeds each, in 33%)."
)
#: What the tables of steps and minutes say.
TIME_TO = (
    "The first evaluation with this success rate: medians over the runs, in which one that never has it counts as the "
    "slowest. In brackets: how many of the runs have it. Minutes are processor time of training on one core, and are left "
    "out where not every run has measured them."
)


def text_of(estimate: IntervalEstimate, digits: int) -> str:
    """:return: The value, its interval and the number of seeds"""
    if estimate.n == 1:
        return f"{estimate.value:.{digits}f} (1 seed)"
    return f"{estimate.value:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def cell(scores: Scores, task: str, method: str, measure: Measure) -> str:
    """:return: What the table says of a task and method: the estimate at the runs' end, or how much is missing"""
    wanted = len(scores.seeds(task, method))
    if wanted == 0:
        return "–"
    values = scores.final(task, method, measure)
    if not len(values):
        # Without it the rows are from before this was measured.
        return "–" if len(scores.final(task, method, SUCCESS)) else scores.state(task, method)
    text = text_of(estimate_of(values), measure.digits)
    return text if len(values) == wanted else f"{text}, {len(values)} of {wanted} seeds"


def results_table(scores: Scores, measure: Measure) -> list[str]:
    """:return: The lines of the table of tasks and methods"""
    return _grid(scores, lambda task, method: cell(scores, task, method, measure), measure)


def _grid(scores: Scores, text: Callable[[str, str], str], at_the_start: Measure | None = None) -> list[str]:
    """:return: The lines of a table with a text for each task and method, in the form that is narrower"""
    if len(scores.methods) > WIDEST:
        header = ["method", *(f"{task} ({steps_of(scores, task)})" for task in scores.tasks)]
        return markdown(header, [[method, *(text(task, method) for task in scores.tasks)] for method in scores.methods])
    lines = []
    for task in scores.tasks:
        start = [scores.at_the_start(task, at_the_start)] if at_the_start else []
        lines.append([task, steps_of(scores, task), *start, *(text(task, method) for method in scores.methods)])
    return markdown(["task", "steps", *(["at the start"] if at_the_start else []), *scores.methods], lines)


def time_to(scores: Scores, task: str, method: str, level: float) -> str:
    """
    :return: The steps and minutes to a success rate: medians over the seeds, where a run that does not reach it counts as
        one that never ends, and how many runs reach it
    """
    runs = scores.reached(task, method, level)
    if not runs:
        return cell(scores, task, method, SUCCESS)
    n_reached = sum(run is not NEVER for run in runs)
    count = f"{n_reached} of {len(runs)}"
    steps = statistics.median(run.steps for run in runs)
    if math.isinf(steps):
        return f"not reached ({count})"
    minutes = [run.minutes for run in runs if run.minutes is not None]
    time = f", {statistics.median(minutes):.1f} min" if len(minutes) == len(runs) else ""
    return f"{steps:,.0f}{time} ({count})"


def steps_of(scores: Scores, task: str) -> str:
    """:return: The number of steps of the runs on a task"""
    return " / ".join(f"{steps:,}" for steps in sorted({s for (name, _), s in scores.steps.items() if name == task}))


def compare(ours: IntervalEstimate, theirs: IntervalEstimate, better: int) -> str:
    """:return: "ahead", "behind", or "level" if the intervals overlap. A single seed has none, so that nothing is decided"""
    if min(ours.n, theirs.n) == 1:
        if ours.value == theirs.value:
            return "level (1 seed)"
        return f"undecided ({'better' if (ours.value - theirs.value) * better > 0 else 'worse'}, 1 seed)"
    if max(ours.low, theirs.low) <= min(ours.high, theirs.high):
        return "level"
    return "ahead" if (ours.value - theirs.value) * better > 0 else "behind"


def verdicts(scores: Scores, rivals: Sequence[str], measure: Measure) -> list[str]:
    """:return: The lines of a table: on each task the best rival, and whether ours is ahead of it, level with it or behind"""
    lines = []
    for task in scores.tasks:
        ours = scores.final(task, OURS, measure)
        found = {method: scores.final(task, method, measure) for method in rivals if scores.seeds(task, method)}
        estimates = {method: estimate_of(values) for method, values in found.items() if len(values)}
        missing = ", ".join(method for method, values in found.items() if not len(values)) or "–"
        own = cell(scores, task, OURS, measure)
        if not len(ours) or not estimates:
            lines.append([task, own, "–", "–", missing])
            continue
        best = max(estimates, key=lambda method: measure.better * estimates[method].value)
        verdict = compare(estimate_of(ours), estimates[best], measure.better)
        lines.append([task, own, f"{best}: {cell(scores, task, best, measure)}", verdict, missing])
    return markdown(["task", OURS, "best reward-free baseline", f"{OURS} is", "baselines without a finished run"], lines)


def ratio_sweep(scores: Scores, task: str) -> dict[float, str]:
    """
    :return: For each share of random goals, in rising order, the method whose goals are else next states. It is the share
        that a batch has, of whole goals: of 256 one is the least
    """
    found = {}
    for method in scores.methods:
        arguments = scores.arguments(task, method)
        relabel = arguments.get("relabel")
        if isinstance(relabel, str):
            relabel = RELABELLING.get(relabel)
        if isinstance(relabel, dict) and set(relabel) <= {"next", "random"}:
            part = goal_slices(relabel, arguments["batch_size"]).get("random", slice(0, 0))
            found[(part.stop - part.start) / arguments["batch_size"]] = method
    return dict(sorted(found.items()))


def aggregates(scores: Scores, tasks: Sequence[str], methods: Sequence[str], path: Path) -> list[str]:
    """:return: The lines of the section on all tasks together, on which all methods have finished runs"""
    means = {
        measure.name: {name: interquartile_mean(scores.matrix(tasks, name, measure)) for name in methods}
        for measure in (SUCCESS, REMAINING)
    }
    rivals = [method for method in methods if method != OURS]
    improvement = {
        measure.name: {
            name: probability_of_improvement(
                measure.better * scores.matrix(tasks, OURS, measure), measure.better * scores.matrix(tasks, name, measure)
            )
            for name in rivals
        }
        for measure in (SUCCESS, REMAINING)
        if OURS in methods and rivals
    }
    groups = {f"IQM of the {name}": found for name, found in means.items()}
    groups |= {f"P({OURS} better), {name}": found for name, found in improvement.items()}
    plot_estimates(groups, path)
    n_seeds = {method: len(scores.matrix(tasks, method, SUCCESS)) for method in methods}
    lines = [
        [
            method,
            str(n_seeds[method]),
            *(text_of(found[method], 3) for found in means.values()),
            *(text_of(found[method], 2) if method in found else "–" for found in improvement.values()),
        ]
        for method in methods
    ]
    better = f", and the probability that a run of {OURS} is better than one of the other method on a random task"
    return [
        f"Interquartile means over {len(tasks)} tasks ({', '.join(tasks)}), on which every method has a finished run"
        f"{better if improvement else ''}; 95% stratified bootstrap intervals. Of each method as many seeds count as it has "
        "on every one of the tasks. The remaining distance is the final one divided by the initial one.",
        "",
        *markdown(["method", "seeds", *groups], lines),
        "",
        f"![Aggregates]({path.name})",
        "",
    ]


def write_report(name: str, rows: Rows, runs: Sequence[Run], non_baselines: Iterable[str], folder: Path) -> Path:
    """:return: The Markdown file"""
    folder.mkdir(parents=True, exist_ok=True)
    scores = Scores(rows, runs)
    n_done = sum(len(scores.final(task, method, SUCCESS)) for task in scores.tasks for method in scores.methods)
    lines = [
        f"# Suite: {name}",
        "",
        f"{n_done} of {len(runs)} runs are done. Means over seeds at the end of the runs, with 95% stratified bootstrap "
        "intervals (rliable), which for up to three seeds are just the smallest and the largest value. Deterministic "
        "policies; evaluation episodes have seeds apart from training's. At the start: what these episodes begin with.",
        "",
    ]
    any_time = any(len(scores.final(task, method, ANY_TIME)) for task in scores.tasks for method in scores.methods)
    for measure in (SUCCESS, ANY_TIME, FINAL) if any_time else (SUCCESS, FINAL):
        path = folder / f"{name}_{measure.column}.png"
        plot_curves(scores, measure, path)
        lines += [f"## {measure.name.capitalize()}", "", *results_table(scores, measure), ""]
        lines += [f"![Learning curves]({path.name})", ""]
    if any(scores.minutes(task, method) for task in scores.tasks for method in scores.methods):
        path = folder / f"{name}_minutes.png"
        plot_curves(scores, SUCCESS, path, over_minutes=True)
        lines += ["## Success over processor minutes", "", "Of training alone, on one core.", ""]
        lines += [f"![Learning curves over minutes]({path.name})", ""]
    lines += ["## Steps and minutes to a success rate", "", TIME_TO, ""]
    for level in LEVELS:
        lines += [f"To {level}:", "", *_grid(scores, partial(time_to, scores, level=level)), ""]
    rivals = [method for method in scores.methods if method not in {OURS, *non_baselines}]
    if OURS in scores.methods and rivals and len(scores.methods) <= WIDEST:
        lines += ["## Against the best reward-free baseline", "", CHANCE, ""]
        lines += ["By success rate:", "", *verdicts(scores, rivals, SUCCESS), ""]
        lines += ["By final distance:", "", *verdicts(scores, rivals, FINAL), ""]
    methods = [method for method in scores.methods if all(scores.seeds(task, method) for task in scores.tasks)]
    tasks = scores.complete_tasks(methods)
    if len(tasks) > 1 and methods:
        lines += ["## All tasks together", "", *aggregates(scores, tasks, methods, folder / f"{name}_aggregate.png")]
    for task in scores.tasks:
        ratios = ratio_sweep(scores, task)
        if len(ratios) > 2:
            path = folder / f"{name}_ratio_{task}.png"
            gamma = scores.arguments(task, next(iter(ratios.values())))["gamma"]
            plot_ratio(scores, task, ratios, gamma, OURS if OURS in scores.methods else None, path)
            lines += [f"## The relabelling ratio on {task}", "", f"![Ratio]({path.name})", ""]
    document = folder / f"{name}.md"
    document.write_text("\n".join([*lines, *scores.provenance(), ""]))
    return document
