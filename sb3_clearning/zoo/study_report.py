"""A study as files: trials, plots and a summary. rl-zoo3 only shows its plots."""

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.trial import TrialState
from optuna.visualization import matplotlib as visualization

from sb3_clearning.zoo.storage import load_study


def write_report(study: optuna.Study, folder: Path, n_best: int = 5) -> None:
    """Write ``trials.csv``, ``importances.png``, ``slices.png`` and a summary of the ``n_best`` trials, ``study.md``."""
    import matplotlib

    matplotlib.use("agg")
    complete = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    if len(complete) < 2:
        raise SystemExit(f"The study {study.study_name!r} has {len(complete)} complete trials: a report needs at least two.")
    folder.mkdir(parents=True, exist_ok=True)
    attributes = ("number", "value", "duration", "params", "user_attrs", "state")
    study.trials_dataframe(attrs=attributes).to_csv(folder / "trials.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        # Optuna 5's default. That of Optuna 4 needs scikit-learn, and gives other numbers.
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        importances = optuna.importance.get_param_importances(study, evaluator=evaluator)
        _save(visualization.plot_param_importances(study, evaluator), folder / "importances.png")
        _save(visualization.plot_slice(study, target_name="Mean evaluation reward"), folder / "slices.png")
    (folder / "study.md").write_text(_summary(study, complete, importances, n_best))


def _save(axes: Any, path: Path) -> None:
    from matplotlib import pyplot as plt

    figure = np.atleast_1d(axes)[0].figure
    figure.savefig(path, dpi=100, bbox_inches="tight")
    plt.close(figure)


def _summary(study: optuna.Study, complete: list[optuna.trial.FrozenTrial], importances: dict[str, float], n_best: int) -> str:
    states = {state: sum(trial.state == state for trial in study.trials) for state in TrialState}
    counts = ", ".join(f"{count} {state.name.lower()}" for state, count in states.items() if count)
    best = sorted(complete, key=lambda trial: trial.value or 0.0, reverse=True)[:n_best]
    names = sorted({name for trial in best for name in (*trial.params, *trial.user_attrs)} - {"search"})

    def row(cells: list[Any]) -> str:
        return "| " + " | ".join(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells) + " |"

    lines = [f"# Study {study.study_name}", "", f"{len(study.trials)} trials: {counts}.", ""]
    lines += ["Importance of each parameter for the mean evaluation reward:", ""]
    lines += [row(["parameter", "importance"]), row(["---", "---"]), *(row([*pair]) for pair in importances.items()), ""]
    lines += ["The best trials:", "", row(["trial", "reward", *names]), row(["---"] * (len(names) + 2))]
    for trial in best:
        values = {**trial.params, **trial.user_attrs}
        lines.append(row([trial.number, trial.value, *(values.get(name, "") for name in names)]))
    return "\n".join(lines) + "\n"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser("study_report", description="Write a study's trials, plots and best trials to a folder.")
    parser.add_argument("--storage", required=True, help="a database's URL or a journal's path, as for rl-zoo3's train")
    parser.add_argument("--study-name", required=True)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder to write to")
    arguments = parser.parse_args()
    write_report(load_study(arguments.storage, arguments.study_name), arguments.output)
    print(f"Wrote {arguments.output}/study.md")


if __name__ == "__main__":
    main()
