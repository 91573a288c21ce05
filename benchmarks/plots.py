"""Cost against size, for each benchmark that has sizes."""

import re
from pathlib import Path

from benchmarks.timing import Row


def _size(setting: str) -> float:
    """:return: The first number of a setting that grows in its benchmark"""
    match = re.search(r"batch (\d+)", setting) if "batch" in setting else re.search(r"[\d,]+", setting)
    assert match is not None
    return float((match.group(1) if match.groups() else match.group()).replace(",", ""))


def _environments(setting: str) -> float:
    match = re.search(r"(\d+) environments", setting)
    return float(match.group(1)) if match else 1.0


def plot(rows: list[Row], path: Path) -> None:
    """
    :param rows: The rows
    :param path: The picture to write
    """
    from matplotlib.figure import Figure

    panels = {
        "sampling 256": ("ms", "transitions in the buffer", "ms for a batch of 256"),
        "adding": ("steps/s", "environments", "steps of all environments a second"),
        "throughput": ("transitions/s", "environments", "transitions a second, no updates"),
        "throughput, random actions": ("transitions/s", "environments", "transitions a second, no updates"),
    }
    chosen = {name: panel for name, panel in panels.items() if any(row.benchmark == name for row in rows)}
    batches = [row for row in rows if row.benchmark == "updates" and row.unit == "updates/s" and "256, 256" in row.setting]
    # Three columns: labels stay readable at a page's width.
    lines = -(-(len(chosen) + 3) // 3)
    figure = Figure(figsize=(10, 3.2 * lines), layout="constrained")
    axes = list(figure.subplots(lines, 3).ravel())
    for ax in axes[len(chosen) + 3 :]:
        ax.axis("off")
    axes = axes[: len(chosen) + 3]
    for (name, (unit, x, y)), ax in zip(chosen.items(), axes, strict=False):
        picked = [row for row in rows if row.benchmark == name and row.unit == unit]
        for subject in dict.fromkeys(row.subject for row in picked):
            line = [row for row in picked if row.subject == subject]
            ax.plot([_size(row.setting) for row in line], [row.value for row in line], marker="o", label=subject)
        ax.set(xscale="log", yscale="log", xlabel=x, ylabel=y, title=name)
    loops = [row for row in rows if row.benchmark == "whole loop" and row.unit == "steps/s" and "FetchReach" in row.setting]
    networks = [row for row in rows if row.benchmark == "updates" and row.unit == "updates/s" and "batch 256" in row.setting]
    for ax, picked, title, key, y in (
        (axes[-3], batches, "batch size", lambda row: _size(row.setting), "updates a second"),
        (axes[-2], networks, "network width", lambda row: float(re.findall(r"\[(\d+)", row.setting)[0]), "updates a second"),
        (axes[-1], loops, "environments", lambda row: _environments(row.setting), "environment steps a second"),
    ):
        picked = [row for row in picked if "1 thread" in row.setting]
        for subject in dict.fromkeys(row.subject for row in picked):
            points = {key(row): row.value for row in picked if row.subject == subject}
            ax.plot(sorted(points), [points[size] for size in sorted(points)], marker="o", label=subject)
        ax.set(xscale="log", yscale="log", xlabel=title, ylabel=y, title=f"{y.split()[-3]} against {title}")
    for ax in axes:
        ax.grid(alpha=0.3)
        ax.xaxis.set_minor_formatter("")
        if ax.get_legend_handles_labels()[0]:
            ax.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)
