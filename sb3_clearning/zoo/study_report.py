"""What a study found, as files; rl-zoo3 itself only shows its plots. `python -m sb3_clearning.zoo study_report --help`."""

import argparse
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from sb3_clearning.zoo.storage import load_study


def write_report(study: optuna.Study, folder: Path, n_best: int = 5) -> None:
    """
    Write ``trials.csv``, ``importances.png``, ``slices.png`` and a summary, ``study.md``.

    :param study: a study with at least two finished trials
    :param folder: where to write
    :param n_best: number of trials in the summary
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    complete = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    if len(complete) < 2:
        raise SystemExit(f"The study {study.study_name!r} has {len(complete)} complete trials: a report needs two at least.")
    folder.mkdir(parents=True, exist_ok=True)
    study.trials_dataframe(attrs=("number", "value", "duration", "params", "user_attrs", "state")).to_csv(
        folder / "trials.csv", index=False
    )

    importances = optuna.importance.get_param_importances(study)
    figure, axes = plt.subplots(figsize=(6, 0.5 * len(importances) + 1.2))
    names = list(importances)[::-1]
    axes.barh(names, [importances[name] for name in names])
    axes.set_xlabel("importance for the mean evaluation reward")
    axes.set_title(f"{study.study_name}: {len(complete)} complete trials of {len(study.trials)}")
    figure.tight_layout()
    figure.savefig(folder / "importances.png", dpi=100)
    plt.close(figure)

    # If `search` has changed, a parameter is one of some trials only.
    having = {name: [trial for trial in complete if name in trial.params] for name in importances}
    shown = [name for name, trials in having.items() if len({trial.params[name] for trial in trials}) > 1] or list(importances)
    figure, rows = plt.subplots(1, max(len(shown), 1), figsize=(3 * max(len(shown), 1), 3), sharey=True, squeeze=False)
    for axes, name in zip(rows[0], shown, strict=False):
        axes.scatter([trial.params[name] for trial in having[name]], [trial.value for trial in having[name]], s=14)
        axes.set_xlabel(name)
        if getattr(having[name][0].distributions[name], "log", False):
            axes.set_xscale("log")
    rows[0][0].set_ylabel("mean evaluation reward")
    figure.tight_layout()
    figure.savefig(folder / "slices.png", dpi=100)
    plt.close(figure)
    (folder / "study.md").write_text(_summary(study, complete, importances, n_best))


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
    parser.add_argument("--storage", required=True, help="a database's address or a journal's path, as for rl-zoo3's train")
    parser.add_argument("--study-name", required=True)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder to write to")
    arguments = parser.parse_args()
    write_report(load_study(arguments.storage, arguments.study_name), arguments.output)
    print(f"Wrote {arguments.output}/study.md")


if __name__ == "__main__":
    main()
