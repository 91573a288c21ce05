"""What the marked regions of the pages hold, each from the tables in results/. ``generate.py`` fills them in."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

Rows = list[dict[str, str]]
#: A region's lines from the folder of results; None if they have not been measured.
Region = Callable[[Path], list[str] | None]
#: What is shown of the runs that settings were chosen by, with how many digits.
TRIAL_COLUMNS = (("success", 2), ("final", 3), ("minimum", 3))


def read(path: Path) -> Rows | None:
    """
    :param path: A CSV file
    :return: Its rows; None if it is not there
    """
    if not path.exists():
        return None
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def markdown(header: list[str], lines: list[list[str]]) -> list[str]:
    """
    :param header: The columns' names
    :param lines: The cells
    :return: The lines of a table
    """
    return [f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *lines)]


# -- the learning table ------------------------------------------------------------------------------------------------


def core_table(last_only: bool) -> Region:
    """
    :param last_only: Whether to show the end of the runs only
    :return: The table of the core's runs
    """

    def lines(results: Path) -> list[str] | None:
        from sb3_clearning.experiments.core import table

        rows = read(results / "core.csv")
        return None if rows is None else table(rows, last_only=last_only)

    return lines


def core_seeds(results: Path) -> list[str] | None:
    """
    :param results: The folder of results
    :return: Success of each seed of the core's runs, at each evaluation
    """
    rows = read(results / "core.csv")
    if rows is None:
        return None
    return markdown(
        ["task", "seed", "success at the evaluations"],
        [[task, seed, success_of(own)] for (task, seed), own in grouped(rows, "task", "seed").items()],
    )


def grouped(rows: Rows, *columns: str) -> dict[tuple[str, ...], Rows]:
    """
    :param rows: Rows
    :param columns: Columns
    :return: The rows of each combination of these columns' values, the combinations sorted
    """
    groups: dict[tuple[str, ...], Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return dict(sorted(groups.items()))


def success_of(rows: Rows, steps: list[int] | None = None) -> str:
    """
    :param rows: The rows of one run; if an evaluation is there twice, the newest counts
    :param steps: The evaluations to show, a dash for those that are missing. None: all
    :return: Success at each of them
    """
    if not rows:
        return "–"
    found = {int(row["step"]): float(row["success"]) for row in rows}
    return ", ".join(f"{found[step]:.2f}" if step in found else "–" for step in (steps or sorted(found)))


# -- how the defaults were chosen --------------------------------------------------------------------------------------


def default_rows(results: Path, commits: tuple[str, ...], arguments: dict[str, object], seed: int) -> Rows | None:
    """
    :param results: The folder of results
    :param commits: The commits whose defaults the runs had
    :param arguments: The arguments beyond these
    :param seed: The training seed
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
    :param seeds: The training seeds
    :param steps: The evaluations
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

# -- speed -------------------------------------------------------------------------------------------------------------


def benchmark_ratios(results: Path) -> list[str] | None:
    """
    :param results: The folder of results
    :return: All ratios of the benchmarks to the peers, without those of the tasks
    """
    rows = read(results / "benchmarks.csv")
    if rows is None:
        return None
    table = [
        [row["benchmark"], row["setting"], row["subject"], ratio(row)]
        for row in rows
        if row["unit"] == "ratio" and row["benchmark"] != "tasks"
    ]
    return markdown(["benchmark", "setting", "ratio of", "median (quartiles)"], table)


def ratio(row: dict[str, str]) -> str:
    """
    :param row: A row of benchmarks.csv
    :return: Its value and quartiles, those only if there are several rounds
    """
    value, low, high = (float(row[key]) for key in ("value", "low", "high"))
    return f"{value:.2f}" if low == high else f"{value:.2f} ({low:.2f} to {high:.2f})"


def task_costs(results: Path) -> list[str] | None:
    """
    :param results: The folder of results
    :return: What each task's step and reset cost against the raw simulator's
    """
    rows = [row for row in read(results / "benchmarks.csv") or [] if row["benchmark"] == "tasks"]
    if not rows:
        return None
    table = []
    for (task,), own in grouped(rows, "setting").items():
        found = {row["subject"]: f"{float(row['value']):.2f}" for row in own}
        table.append([f"`{task}`", found["step / raw step"], found["reset / raw reset"]])
    return markdown(["id", "step / raw step", "reset / raw reset"], table)


def trials(*methods: str) -> Region:
    """
    :param methods: The only methods to show. None: all
    :return: The suite's runs that settings were chosen by, at their ends
    """

    def lines(results: Path) -> list[str] | None:
        rows = read(results / "suite" / "trials.csv") or []
        table = []
        for (task, method), own in grouped(rows, "task", "method").items():
            ends = [max(run, key=lambda row: int(row["step"])) for run in grouped(own, "seed").values()]
            if not methods or (method in methods and len(ends) > 1):
                steps = ", ".join(dict.fromkeys(f"{int(row['step']):,}" for row in ends))
                numbers = [", ".join(f"{float(row[name]):.{digits}f}" for row in ends) for name, digits in TRIAL_COLUMNS]
                table.append([f"`{task}`", f"`{method}`", ", ".join(row["seed"] for row in ends), steps, *numbers])
        header = ["task", "method", "seeds", "steps", "success", "final distance", "minimum distance"]
        return markdown(header, table) if table else None

    return lines


def raw_and_standardized(results: Path) -> list[str] | None:
    """
    :param results: The folder of results
    :return: The same runs of the suite on observations as they are, and on standardized ones
    """
    tables = [read(results / "suite" / name) or [] for name in ("raw_observations.csv", "suite.csv")]
    ends = [
        {run: max(own, key=lambda row: int(row["step"])) for run, own in grouped(rows, "task", "method", "seed").items()}
        for rows in tables
    ]
    table = []
    for run, raw in ends[0].items():
        other = ends[1].get(run)
        if other is not None and other["step"] == raw["step"]:
            numbers = [f"{float(row[name]):.{digits}f}" for name, digits in TRIAL_COLUMNS[:2] for row in (raw, other)]
            table.append([f"`{run[0]}`", f"`{run[1]}`", f"{int(raw['step']):,}", *numbers])
    header = ["task", "method", "steps", "success, raw", "standardized", "final distance, raw", "standardized"]
    return markdown(header, table) if table else None


def contact(results: Path) -> list[str] | None:
    """
    :param results: The folder of results
    :return: How far random actions move the objects of the Sawyer tasks
    """
    found = {row["name"]: row["value"] for row in read(results / "task_facts.csv") or []}
    if not found:
        return None
    kinds = ("independent", "pink")
    table = [
        [f"`Sawyer{name}-v0`", *(found[f"{name.lower()}_{kind}"] for kind in kinds)] for name in ("Push", "Window", "Drawer")
    ]
    return markdown(["task", "independent random actions", "pink random actions"], table)


# -- measured once -----------------------------------------------------------------------------------------------------


def notes_table(topic: str, header: list[str]) -> Region:
    """
    :param topic: The topic of results/notes.csv
    :param header: The columns' names
    :return: The table of all notes on it
    """

    def lines(results: Path) -> list[str] | None:
        rows = [row for row in read(results / "notes.csv") or [] if row["topic"] == topic]
        return markdown(header, [[row["what"], row["value"]] for row in rows]) if rows else None

    return lines


def notes(results: Path) -> dict[str, str]:
    """
    :param results: The folder of results
    :return: The value of each note by its name
    """
    tables = ("notes.csv", "task_facts.csv")
    return {row["name"]: row["value"] for table in tables for row in read(results / table) or [] if row["name"]}


# -- prediction, and the suite -----------------------------------------------------------------------------------------


def gridworld(results: Path) -> list[str] | None:
    """
    :param results: The folder of results
    :return: KL divergence and sum of each method, on- and off-policy
    """
    rows = read(results / "gridworld.csv")
    if not rows:
        return None
    table = []
    for method, reading in dict.fromkeys((row["method"], row["reading"]) for row in rows):
        cells = []
        for setting in ("on-policy", "off-policy"):
            # A seed that is there twice was measured again: the newest counts.
            own = {
                row["seed"]: row
                for row in rows
                if (row["setting"], row["method"], row["reading"]) == (setting, method, reading)
            }
            cells += [mean(own, "kl"), mean(own, "total")]
        seeds = {row["seed"] for row in rows if row["method"] == method}
        table.append([f"{method} ({reading})" if method.startswith("Q") else method, str(len(seeds)), *cells])
    return markdown(["method", "seeds", "KL on-policy", "sum", "KL off-policy", "sum"], table)


def mean(rows: dict[str, dict[str, str]], column: str) -> str:
    """
    :param rows: Rows by seed
    :param column: A column
    :return: Its mean, a dash if there are no rows
    """
    return f"{sum(float(row[column]) for row in rows.values()) / len(rows):.3f}" if rows else "–"


def part_of_report(name: str, heading: str | None = None) -> Region:
    """
    :param name: The report's path within the folder of results
    :param heading: One of its headings; None: the beginning
    :return: The first table under this heading
    """

    def lines(results: Path) -> list[str] | None:
        path = results / name
        if not path.exists():
            return None
        section = path.read_text()
        if heading is not None:
            _, found, section = section.partition(f"\n## {heading}\n")
            if not found:
                raise ValueError(f"{path} has no section {heading!r}")
        table = re.search(r"(?:^\|.*\n)+", section.partition("\n## ")[0], re.MULTILINE)
        if table is None:
            raise ValueError(f"{path} has no table under {heading!r}")
        return table[0].splitlines()

    return lines


def agents(results: Path) -> list[str] | None:
    """
    :param results: The folder of results
    :return: The trained agents with their films
    """
    rows = read(results / "agents.csv")
    if rows is None:
        return None
    films = [[f"![{row['task']}](films/{row['task']}.gif)"] for row in rows]
    numbers = [
        [f"`{row['task']}`", f"{int(row['step']):,}", row["seed"], f"{float(row['success']):.2f}",
         f"{float(row['initial']):.3f}", f"{float(row['final']):.3f}"]
        for row in rows
    ]  # fmt: skip
    header = ["task", "film", "steps", "seed", "success", "initial distance", "final distance"]
    return markdown(header, [[number[0], *film, *number[1:]] for number, film in zip(numbers, films, strict=True)])


def locomotion_data(results: Path) -> list[str] | None:
    """
    :param results: The folder of results
    :return: What the data of the locomotion tasks is like
    """
    rows = read(results / "locomotion_data.csv")
    columns = ["task", "seed", "agent_steps", "transitions", "episodes", "mean_length", "mean_return"]
    named = [column.replace("_", " ") for column in columns]
    return None if rows is None else markdown(named, [[row[column] for column in columns] for row in rows])


def sentence_of_report(name: str, beginning: str) -> Region:
    """
    :param name: The report's path within the folder of results
    :param beginning: How the line begins
    :return: That line
    """

    def lines(results: Path) -> list[str] | None:
        path = results / name
        if not path.exists():
            return None
        found = [line for line in path.read_text().splitlines() if line.startswith(beginning)]
        if not found:
            raise ValueError(f"{path} has no line that begins with {beginning!r}")
        return found[:1]

    return lines


def prediction_time(results: Path) -> list[str] | None:
    """
    :param results: The folder of results
    :return: The processor time of the experiments, as far as it was recorded
    """
    table = []
    for name in ("gridworld", "normalization", "relabel_ratio", "analytic_q", "calibration", "locomotion"):
        rows = read(results / f"{name}.csv")
        if not rows:
            continue
        # A setting's time stands in each of its rows. No two of them that count take the same by both clocks.
        keys = ("setting", "task", "seconds", "cpu_seconds")
        settings = {
            tuple(row.get(key, "") for key in keys): float(row["cpu_seconds"]) for row in rows if row.get("cpu_seconds")
        }
        if settings:
            table.append([f"`{name}`", f"{sum(settings.values()) / 60:.1f}"])
    return markdown(["experiment", "minutes of one core"], table) if table else None


REGIONS: dict[str, Region] = {
    "core": core_table(last_only=True),
    "core_curve": core_table(last_only=False),
    "core_seeds": core_seeds,
    "defaults": DEFAULTS,
    "standardize": trials("clearning", "raw_observations"),
    "trials": trials(),
    "raw_and_standardized": raw_and_standardized,
    "contact": contact,
    "penalty": PENALTY,
    "noise": NOISE,
    "benchmarks": benchmark_ratios,
    "task_costs": task_costs,
    "update_parts": notes_table("update", ["part", "ms"]),
    "update_tried": notes_table("tried", ["tried", "found"]),
    "gridworld": gridworld,
    "prediction": part_of_report("paper.md"),
    "normalization": part_of_report("normalization.md"),
    "relabel_ratio": part_of_report("relabel_ratio.md"),
    "analytic_q": sentence_of_report("analytic_q.md", "Largest difference"),
    "calibration": part_of_report("calibration.md"),
    "agents": agents,
    "locomotion_data": locomotion_data,
    "locomotion": part_of_report("locomotion.md"),
    "prediction_time": prediction_time,
    "suite_success": part_of_report("suite/paper.md", "Success rate"),
    "suite_distance": part_of_report("suite/paper.md", "Final distance"),
    "suite_ablation": part_of_report("suite/ablation.md", "Success rate"),
    "suite_ablation_distance": part_of_report("suite/ablation.md", "Final distance"),
    "suite_partial_goals": part_of_report("suite/partial_goals.md", "Final distance"),
    "suite_ratio": part_of_report("suite/maze_ratio.md", "Success rate"),
    "suite_verdicts": part_of_report("suite/paper.md", "Against the best reward-free baseline"),
}
