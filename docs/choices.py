"""The regions about how settings were chosen."""

import json
from pathlib import Path

from tables import Region, Rows, grouped, markdown, read, success_of

#: What is shown of the runs that settings were chosen by, with how many digits.
TRIAL_COLUMNS = (("success", 2), ("final", 3), ("minimum", 3))


def default_rows(results: Path, commits: tuple[str, ...], arguments: dict[str, object], seed: int) -> Rows | None:
    """
    :param commits: The commits whose defaults the runs had
    :param arguments: The arguments beyond these
    :return: The rows of that run on the maze
    """
    rows = read(results / "defaults.csv")
    if rows is None:
        return None
    return [
        row
        for row in rows
        if (row["task"], int(row["seed"])) == ("PointMaze_UMaze-v3", seed)
        and row["commit"].rstrip("+") in commits
        and json.loads(row["arguments"]) == arguments
    ]


def choices(settings: list[tuple[str, str, dict[str, object]]], seeds: list[int], steps: list[int]) -> Region:
    """
    :param settings: For each line of the table its text, the commit whose defaults the runs had, and the arguments beyond them
    :return: The table
    """

    def lines(results: Path) -> list[str] | None:
        if not (results / "defaults.csv").exists():
            return None
        at = ", ".join(f"{step // 1000}k" for step in steps)
        header = ["setting", *(f"seed {seed}: {at} steps" for seed in seeds)]
        table = []
        for text, commit, arguments in settings:
            runs = [default_rows(results, (commit,), arguments, seed) or [] for seed in seeds]
            if not any(runs):
                raise ValueError(f"results/defaults.csv has no run of the setting {text!r}: {commit}, {arguments}")
            table.append([text, *(success_of(run, steps) for run in runs)])
        return markdown(header, table)

    return lines


DEFAULTS = choices(
    [
        ("TD (`lambda_=1`), Gaussian noise 0.1, uniform warm-up", "0c9d9cb", {}),
        ("the same with noise 0.2", "44d8c81", {"noise_std": 0.2}),
        ("TD, Gaussian noise 0.1, `target_policy_noise=0`", "dc7fa8a", {"target_policy_noise": 0.0}),
        ("TD, pink noise 0.1, pink warm-up", "dc7fa8a", {"warmup_noise": "pink", "action_noise": "pink"}),
        ("the same with `lambda_=0.5`", "a62182d", {"lambda_": 0.5}),
    ],
    [100, 101],
    [6000, 12000, 24000],
)
PENALTY = choices(
    [
        ("`pre_tanh_penalty=0`", "686cd4d", {"pre_tanh_penalty": 0.0}),
        ("`pre_tanh_penalty=0.001`", "33b924a", {"pre_tanh_penalty": 0.001}),
        ("`pre_tanh_penalty=0.01`", "33b924a", {"pre_tanh_penalty": 0.01}),
    ],
    [100, 101, 102],
    [6000, 12000, 18000, 24000, 30000],
)
NOISE = choices(
    [
        ("`noise_std=0.1`", "33b924a", {"pre_tanh_penalty": 0.001}),
        ("`noise_std=0.3`", "19dc703", {"noise_std": 0.3, "pre_tanh_penalty": 0.001}),
        ("`noise_std=0.3`, an earlier commit with other rounding", "33b924a", {"noise_std": 0.3, "pre_tanh_penalty": 0.001}),
        (
            "`noise_std=0.1` and a fifth of the actions uniformly random",
            "19dc703",
            {"pre_tanh_penalty": 0.001, "random_action_fraction (tried, not kept)": 0.2},
        ),
    ],
    [101, 102],
    [6000, 12000, 18000, 24000, 30000],
)


def ends_of(rows: Rows) -> dict[tuple[str, ...], dict[str, str]]:
    """:return: For each run, by its task, method and seed, the row of its last evaluation"""
    runs = grouped(rows, "task", "method", "seed")
    return {run: max(own, key=lambda row: int(row["step"])) for run, own in runs.items()}


def later_success(rows: Rows) -> str:
    """:return: The mean success in the second half of a run: single evaluations are noisy"""
    last = max(int(row["step"]) for row in rows)
    later = [float(row["success"]) for row in rows if 2 * int(row["step"]) > last]
    return f"{sum(later) / len(later):.2f}"


def has_several_steps(row: dict[str, str]) -> bool:
    """:return: Whether a row has n-step targets: CLearning's default is ten steps, that of Q-learning one"""
    settings = json.loads(row["settings"])
    return settings["arguments"].get("n_steps", 1 if "GoalTD3" in settings["algorithm"] else 10) > 1


def trials(
    task: str | None = None, methods: tuple[str, ...] = (), only_both: bool = False, n_steps: bool | None = False
) -> Region:
    """
    :param task: The only task to show. None: all
    :param methods: The only methods to show. None given: all
    :param only_both: Whether to leave out tasks that do not have all of these
    :param n_steps: Whether to show the runs with n-step targets instead of those with one step; None: both
    :return: The suite's runs that settings were chosen by, at their ends
    """

    def lines(results: Path) -> list[str] | None:
        rows = read(results / "suite" / "trials.csv") or []
        # Those of the sweep of `n_steps` are in results/n_steps.md.
        rows = [row for row in rows if row["method"].startswith("n_2_") or not row["method"].startswith("n_")]
        rows = [row for row in rows if n_steps in (None, has_several_steps(row))]
        table = []
        runs = grouped(rows, "task", "method")
        for (name, method), own in runs.items():
            if only_both and not all((name, other) in runs for other in methods):
                continue
            if task in (None, name) and (not methods or method in methods):
                ends = list(ends_of(own).values())
                steps = ", ".join(dict.fromkeys(f"{int(row['step']):,}" for row in ends))
                numbers = [", ".join(f"{float(row[column]):.{digits}f}" for row in ends) for column, digits in TRIAL_COLUMNS]
                numbers.insert(1, ", ".join(later_success(run) for run in grouped(own, "seed").values()))
                table.append([f"`{name}`", f"`{method}`", ", ".join(row["seed"] for row in ends), steps, *numbers])
        header = ["task", "method", "seeds", "steps", "success", "second half", "final distance", "minimum distance"]
        return markdown(header, table) if table else None

    return lines


def success_curves(methods: tuple[str, ...]) -> Region:
    """:return: The success rates at the evaluations of each run, on the tasks that have all of these methods"""

    def lines(results: Path) -> list[str] | None:
        rows = [row for row in read(results / "suite" / "suite.csv") or [] if row["method"] in methods]
        of_task = grouped(rows, "task")
        table = [
            [f"`{task}`", f"`{method}`", seed, success_of(run)]
            for (task, method, seed), run in grouped(rows, "task", "method", "seed").items()
            if {row["method"] for row in of_task[(task,)]} == set(methods)
        ]
        return markdown(["task", "method", "seed", "success"], table) if table else None

    return lines


def raw_and_standardized(results: Path) -> list[str] | None:
    """:return: The same runs of the suite on observations as they are, and on standardized ones"""
    ends = ends_of(read(results / "suite" / "raw_observations.csv") or [])
    rows = read(results / "suite" / "suite.csv") or []
    standardized = {(row["task"], row["method"], row["seed"], row["step"]): row for row in rows}
    table = []
    for run, raw in ends.items():
        other = standardized.get((*run, raw["step"]))
        if other is not None:
            numbers = [f"{float(row[name]):.{digits}f}" for name, digits in TRIAL_COLUMNS[:2] for row in (raw, other)]
            table.append([f"`{run[0]}`", f"`{run[1]}`", f"{int(raw['step']):,}", *numbers])
    header = ["task", "method", "steps", "success, raw", "standardized", "final distance, raw", "standardized"]
    return markdown(header, table) if table else None


def core_raw_and_standardized(results: Path) -> list[str] | None:
    """:return: The learning table's runs on observations as they are, and on standardized ones: means over the seeds"""
    from sb3_clearning.experiments.core import EVALUATION_SEED, evaluation_seed_of

    found = [read(results / name) for name in ("core_raw_observations.csv", "core.csv")]
    if found[0] is None or found[1] is None:
        return None
    # Both are of the one-step recursion.
    one_step = ('{"n_steps": 1, "lambda_": 0.5}', EVALUATION_SEED)
    kept = [[row for row in rows or [] if (row["arguments"], evaluation_seed_of(row)) == one_step] for rows in found]
    groups = [grouped(rows, "task", "step") for rows in kept]
    table = []
    for task, step in sorted(groups[0], key=lambda group: (group[0], int(group[1]))):
        runs = [group.get((task, step), []) for group in groups]
        if all(runs):
            numbers = [
                f"{sum(float(row[name]) for row in rows) / len(rows):.{digits}f}"
                for name, digits in TRIAL_COLUMNS[:2]
                for rows in runs
            ]
            table.append([f"`{task}`", f"{int(step):,}", " / ".join(str(len(rows)) for rows in runs), *numbers])
    header = ["task", "steps", "seeds", "success, raw", "standardized", "final distance, raw", "standardized"]
    return markdown(header, table) if table else None


def contact(results: Path) -> list[str] | None:
    """:return: How far random actions move the objects of the Sawyer tasks"""
    found = {row["name"]: row["value"] for row in read(results / "task_facts.csv") or []}
    if not found:
        return None
    kinds = ("independent", "pink")
    table = [
        [f"`Sawyer{name}-v0`", *(found[f"{name.lower()}_{kind}"] for kind in kinds)] for name in ("Push", "Window", "Drawer")
    ]
    return markdown(["task", "independent random actions", "pink random actions"], table)
