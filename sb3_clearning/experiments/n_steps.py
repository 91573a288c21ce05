"""
How many steps of an episode should a target of C-learning look ahead? Success of CLearning over ``n_steps``.

``python -m sb3_clearning.experiments n_steps`` writes results/n_steps.md and .png from the rows that results/suite/trials.csv
has so far. The runs are the suite's: ``suite --config results/suite/trials.yml --matrix n_steps --output trials``.
"""

import math
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sb3_clearning.experiments.suite.config import Run, Suite
from sb3_clearning.experiments.suite.scores import ANY_TIME, FINAL, SUCCESS, Scores
from sb3_clearning.experiments.tables.page import DPI, WIDTH
from sb3_clearning.experiments.tables.rows import markdown, read_rows
from sb3_clearning.experiments.tables.sweep import RESULTS, command_line

SWEEP = "n_steps"
#: The matrices that are shown, with the title of each.
MATRICES = {SWEEP: "The sweep", "n_step_variants": "n = 10 with one thing changed"}
HEADER = (
    *("task", "method", "n", "steps", "seeds", "success at the start", "success", "success of each seed"),
    *("success at any time", "final distance"),
)


def n_of(scores: Scores, task: str, method: str) -> float:
    """:return: The ``n_steps`` of a method; infinite for whole episodes"""
    return float(scores.arguments(task, method).get("n_steps", 1))


def text_of(n: float) -> str:
    """:return: A number of steps as text"""
    return "∞" if math.isinf(n) else f"{n:.0f}"


def methods_by_n(scores: Scores, task: str) -> list[str]:
    """:return: The methods of a task in the order of their ``n_steps``; equal ones in the matrix's order"""
    methods = [method for method in scores.methods if scores.seeds(task, method)]
    return sorted(methods, key=lambda method: n_of(scores, task, method))


def table(scores: Scores) -> list[str]:
    """:return: The lines of its table: a line for each task and method, whether it has rows or not"""

    def mean(values: dict[int, float], digits: int) -> str:
        return f"{np.mean(list(values.values())):.{digits}f}" if values else "–"

    lines = []
    for task in scores.tasks:
        for method in methods_by_n(scores, task):
            success, wanted = scores.ends(task, method, SUCCESS), len(scores.seeds(task, method))
            lines.append(
                [
                    *(task, f"`{method}`", text_of(n_of(scores, task, method)), f"{scores.steps[task, method]:,}"),
                    *(f"{len(success)} of {wanted}", scores.at_the_start(task, SUCCESS)),
                    mean(success, 2) if success else scores.state(task, method),
                    ", ".join(f"{seed}: {value:.2f}" for seed, value in sorted(success.items())) or "–",
                    mean(scores.ends(task, method, ANY_TIME), 2),
                    mean(scores.ends(task, method, FINAL), FINAL.digits),
                ]
            )
    return markdown(HEADER, lines)


def plot(scores: Scores, path: Path) -> None:
    """Draw the picture."""
    numbers = sorted({n_of(scores, task, method) for task in scores.tasks for method in methods_by_n(scores, task)})
    # A log axis has no place for infinity: it goes to the right end.
    places = {n: 2.5 * max(filter(math.isfinite, numbers), default=1) if math.isinf(n) else n for n in numbers}
    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    axes = figure.subplots()
    for number, task in enumerate(scores.tasks):
        found = {n_of(scores, task, method): scores.ends(task, method, SUCCESS) for method in methods_by_n(scores, task)}
        measured = {n: list(values.values()) for n, values in found.items() if values}
        aside = 1.02 ** (number - (len(scores.tasks) - 1) / 2)  # so that tasks do not cover each other
        for n, values in measured.items():
            axes.plot([places[n] * aside] * len(values), values, ".", color=f"C{number}", alpha=0.5)
        missing = ", ".join(text_of(n) for n in found if n not in measured)
        label = f"{task} (missing: {missing})" if missing else task
        means = [float(np.mean(values)) for values in measured.values()]
        axes.plot([places[n] * aside for n in measured], means, "o-", color=f"C{number}", label=label)
    axes.set(xscale="log", ylim=(-0.05, 1.05), xlabel="n (steps before the bootstrap)", ylabel="success rate")
    axes.set_xticks([places[n] for n in numbers], [text_of(n) for n in numbers])
    axes.set_xticks([], minor=True)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    figure.suptitle("CLearning with n-step targets:\nmean over seeds, each seed a dot", fontsize=11)
    figure.savefig(path, dpi=DPI)


def write_report(rows: list[dict[str, str]], runs: dict[str, list[Run]], folder: Path) -> Path:
    """:return: The Markdown file"""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        "# CLearning with n-step targets",
        "",
        "Made by `python -m sb3_clearning.experiments n_steps` from results/suite/trials.csv. Success at the end of "
        "evaluation episodes, whose seeds are apart from training's and from those of the results; means over training seeds. "
        "n = ∞: the whole rest of the episode.",
        "",
    ]
    for matrix, own in runs.items():
        scores = Scores(rows, own)
        lines += [f"## {MATRICES[matrix]}", "", *table(scores), ""]
        if matrix == SWEEP:
            plot(scores, folder / "n_steps.png")
            lines += ["![Success over n](n_steps.png)", ""]
    lines += Scores(rows, list({run.name: run for own in runs.values() for run in own}.values())).provenance()
    document = folder / "n_steps.md"
    document.write_text("\n".join([*lines, ""]))
    return document


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = command_line("n_steps", __doc__)
    trials = RESULTS / "suite" / "trials.csv"
    parser.add_argument("--table", type=Path, default=trials, help="the rows: trials.csv, or suite.csv of an output folder")
    parser.add_argument("--config", type=Path, default=trials.with_suffix(".yml"), help="the file with the matrices")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where n_steps.md and n_steps.png are written")
    options = parser.parse_args(argv)
    if not options.table.exists():
        parser.error(f"there is no {options.table}")
    runs = Suite.load([options.config]).runs_of_each(MATRICES)
    print(write_report(read_rows(options.table), runs, options.output).read_text())
