"""The pictures of the report."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sb3_clearning.experiments.suite.intervals import IntervalEstimate, curve_estimates, estimate_of
from sb3_clearning.experiments.suite.scores import ANY_TIME, FINAL, SUCCESS, Measure, Scores
from sb3_clearning.experiments.tables.page import DPI, WIDTH

#: Of panels: labels stay readable at a page's width.
COLUMNS = 2


def _tidy(axes: Axes) -> None:
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def plot_curves(scores: Scores, measure: Measure, path: Path, over_minutes: bool = False) -> None:
    """
    Learning curves: a panel for each task, with the 95% interval where a method has several seeds.

    :param over_minutes: Over processor minutes, where they were measured, instead of steps
    """
    columns = min(COLUMNS, len(scores.tasks))
    lines = -(-len(scores.tasks) // columns)
    figure = Figure(figsize=(WIDTH, 2 * lines + 1 + 0.2 * -(-len(scores.methods) // 3)), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    grays = max(len(scores.methods), 30)
    colors = {m: f"C{place}" if place < 10 else f"{0.9 * place / grays:.2f}" for place, m in enumerate(scores.methods)}
    for panel in panels[len(scores.tasks) :]:
        panel.axis("off")
    for panel, task in zip(panels, scores.tasks, strict=False):
        missing = []
        for method in scores.methods:
            estimates = curve_estimates(scores.curve(task, method, measure))
            if over_minutes:
                minutes = scores.minutes(task, method)
                estimates = {step: one for step, one in estimates.items() if step in minutes}
            if not estimates:
                missing += [method] if scores.seeds(task, method) else []
                continue
            steps = [minutes[step] if over_minutes else step / 1000 for step in estimates]
            panel.plot(steps, [one.value for one in estimates.values()], ".-", color=colors[method])
            low, high = [one.low for one in estimates.values()], [one.high for one in estimates.values()]
            panel.fill_between(steps, low, high, color=colors[method], alpha=0.2, linewidth=0)
        last = max(steps for (name, _), steps in scores.steps.items() if name == task)
        panel.set_xlim(0, None if over_minutes else 1.02 * last / 1000)
        panel.set_title(task, fontsize=10)
        panel.set_ylim(*((-0.05, 1.05) if measure in (SUCCESS, ANY_TIME) else (0, None)))
        _tidy(panel)
        if missing:
            text = "missing:\n" + "\n".join(missing)
            panel.text(0.02, 0.98, text, transform=panel.transAxes, ha="left", va="top", fontsize=6, color="gray")
    for panel in panels[len(scores.tasks) - columns : len(scores.tasks)]:
        panel.set_xlabel("processor minutes" if over_minutes else "thousand environment steps")
    handles = [figure.axes[0].plot([], [], ".-", color=colors[method], label=method)[0] for method in scores.methods]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 3), frameon=False)
    title = f"{measure.name.capitalize()}, mean over seeds and\n95% bootstrap interval (one seed: the line alone)"
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=DPI)


def plot_estimates(groups: dict[str, dict[str, IntervalEstimate]], path: Path) -> None:
    """Estimates with their intervals, a panel for each group."""
    most = max(len(estimates) for estimates in groups.values())
    columns = min(2, len(groups))
    lines = -(-len(groups) // columns)
    figure = Figure(figsize=(4.6 * columns, (0.35 * most + 0.8) * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel in panels[len(groups) :]:
        panel.axis("off")
    for panel, (title, estimates) in zip(panels, groups.items(), strict=False):
        for place, (_name, one) in enumerate(reversed(estimates.items())):
            if one.n > 1:
                panel.plot([one.low, one.high], [place, place], color="C0", alpha=0.35, linewidth=8, solid_capstyle="butt")
            panel.plot(one.value, place, "|", color="black", markersize=14)
        panel.set_yticks(range(len(estimates)), list(reversed(estimates)))
        panel.set_ylim(-0.7, len(estimates) - 0.3)
        panel.set_title(title, fontsize=10)
        if title.startswith("P("):
            panel.axvline(0.5, color="gray", linestyle="--", linewidth=1)
            panel.set_xlim(0, 1)
        _tidy(panel)
    figure.savefig(path, dpi=130)


def plot_ratio(scores: Scores, task: str, ratios: dict[float, str], gamma: float, reference: str | None, path: Path) -> None:
    """
    The relabelling ratio of Q-learning, with the paper's prediction (1 + gamma) / 2 marked.

    :param ratios: For each share of random goals its method, in rising order
    :param reference: A method to draw as a horizontal line: C-learning, which has no such ratio
    """
    figure = Figure(figsize=(WIDTH, 6.4), layout="constrained")
    places = np.arange(len(ratios))
    predicted = (1 + gamma) / 2
    for panel, measure in zip(figure.subplots(2, 1), (SUCCESS, FINAL), strict=True):
        found: dict[int, IntervalEstimate] = {}
        for place, method in enumerate(ratios.values()):
            values = scores.final(task, method, measure)
            if len(values):
                found[place] = estimate_of(values)
                panel.plot([place] * len(values), values, ".", color="C0", alpha=0.4)
            else:
                panel.text(
                    place, 0.5, "missing", rotation=90, ha="center", transform=panel.get_xaxis_transform(), color="gray"
                )
        panel.plot(list(found), [one.value for one in found.values()], "o-", color="C0", label="Q-learning (GoalTD3)")
        panel.fill_between(
            list(found), [one.low for one in found.values()], [one.high for one in found.values()], color="C0", alpha=0.2
        )
        # The places are evenly apart, whatever the ratios: the interesting ones crowd below 1.
        if min(ratios) <= predicted <= max(ratios):
            mark = float(np.interp(predicted, list(ratios), places))
            panel.axvline(mark, color="black", linestyle=":", label=f"(1 + γ) / 2 = {predicted:.4g}")
        if reference is not None and len(values := scores.final(task, reference, measure)):
            one = estimate_of(values)
            panel.axhline(one.value, color="C1", linestyle="--", label=reference)
            panel.axhspan(one.low, one.high, color="C1", alpha=0.15, linewidth=0)
        panel.set_xticks(places, [f"{ratio:.3g}" for ratio in ratios])
        panel.set(xlabel="share of random goals", ylabel=measure.name)
        panel.set_ylim(*((-0.05, 1.05) if measure == SUCCESS else (0, None)))
        _tidy(panel)
    figure.axes[0].legend(frameon=False, fontsize=8)
    title = f"The relabelling ratio on {task}:\nmean over seeds, 95% bootstrap interval, each seed a dot"
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=DPI)
