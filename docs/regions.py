"""What the marked regions of the pages hold, each from the tables in results/. ``generate.py`` fills them in."""

import re
from configparser import ConfigParser
from pathlib import Path

import comparison
from choices import DEFAULTS, NOISE, PENALTY, contact, core_raw_and_standardized, raw_and_standardized, success_curves, trials
from tables import Region, grouped, markdown, read, success_of

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
    """:return: Success of each seed of the core's runs, at each evaluation"""
    from sb3_clearning.experiments.core import with_defaults

    rows = read(results / "core.csv")
    if rows is None:
        return None
    return markdown(
        ["task", "seed", "success at the evaluations"],
        [[task, seed, success_of(own)] for (task, seed), own in grouped(with_defaults(rows), "task", "seed").items()],
    )


# -- speed -------------------------------------------------------------------------------------------------------------


def benchmark_ratios(results: Path) -> list[str] | None:
    """:return: All ratios of the benchmarks to the peers, without those of the tasks"""
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
    """:return: The value of a row of benchmarks.csv, with quartiles if there are several rounds"""
    value, low, high = (float(row[key]) for key in ("value", "low", "high"))
    return f"{value:.2f}" if low == high else f"{value:.2f} ({low:.2f} to {high:.2f})"


def throughput(results: Path) -> list[str] | None:
    """:return: Transitions a second by the number of environments, and ratios to SB3's"""
    rows = [row for row in read(results / "benchmarks.csv") or [] if row["benchmark"].startswith("throughput")]
    found = {(row["benchmark"], row["setting"], row["subject"]): row for row in rows}
    table, own, peer = [], "CLearning", "SB3 TD3 + HER"
    for setting in dict.fromkeys(row["setting"] for row in rows):
        line = [setting.split()[0]]
        for benchmark in ("throughput", "throughput, random actions"):
            line += [f"{float(found[benchmark, setting, name]['value']):,.0f}" for name in (own, peer)]
            line.append(ratio(found[benchmark, setting, f"{own} / {peer}"]))
        table.append([*line, f"{float(found['throughput', setting, 'matrix products of the actor']['value']):,.0f}"])
    header = ["environments", "policy: CLearning", "TD3 + HER", "ratio (quartiles)"]
    header += ["random actions: CLearning", "TD3 + HER", "ratio (quartiles)", "the actor's products alone"]
    return markdown(header, table) if table else None


_LARGE_FILE = ("loading", "10,000,000 transitions, buffer of 1,000,000")

#: Medians of benchmarks.csv that stand within a line: the benchmark, setting and subject of each, and how it is written.
MEDIANS = {
    "updates_one_thread": (("updates", "FetchReach-v4, batch 256, [256, 256], 1 thread", "CLearning"), "{:.0f}"),
    "updates_two_threads": (("updates", "FetchReach-v4, batch 256, [256, 256], 2 threads", "CLearning"), "{:.0f}"),
    "loop_64": (("whole loop", "FetchReach-v4, 64 environments, 1 thread", "CLearning / SB3 TD3 + HER"), "{:.2f}"),
    "sampling_small": (("sampling 256", "10,000 transitions", "ours"), "{:.2f} ms"),
    "sampling_large": (("sampling 256", "5,000,000 transitions", "ours"), "{:.2f} ms"),
    "loading_memory_small": (("loading", "1,000,000 transitions, buffer of 1,000,000", "load_dataset, memory"), "{:.0f} MB"),
    "loading_memory": ((*_LARGE_FILE, "load_dataset, memory"), "{:.0f} MB"),
    "loading_rate": ((*_LARGE_FILE, "load_dataset"), "{:,.0f}"),
    "np_load_memory": ((*_LARGE_FILE, "np.load, memory"), "{:,.0f} MB"),
    "np_load_rate": ((*_LARGE_FILE, "np.load"), "{:,.0f}"),
}


def medians(results: Path) -> dict[str, str]:
    """:return: The value of each median by its name"""
    rows = read(results / "benchmarks.csv") or []
    values = {(row["benchmark"], row["setting"], row["subject"]): float(row["value"]) for row in rows}
    return {name: how.format(values[row]) for name, (row, how) in MEDIANS.items() if row in values}


def task_costs(results: Path) -> list[str] | None:
    """:return: What each task's step and reset cost against the raw simulator's"""
    rows = [row for row in read(results / "benchmarks.csv") or [] if row["benchmark"] == "tasks"]
    if not rows:
        return None
    table = []
    for (task,), own in grouped(rows, "setting").items():
        found = {row["subject"]: f"{float(row['value']):.2f}" for row in own}
        table.append([f"`{task}`", found["step / raw step"], found["reset / raw reset"]])
    return markdown(["id", "step / raw step", "reset / raw reset"], table)


# -- measured once -----------------------------------------------------------------------------------------------------


def notes_table(topic: str, header: list[str]) -> Region:
    """
    :param topic: The topic of results/notes.csv
    :return: The table of all notes on it
    """

    def lines(results: Path) -> list[str] | None:
        rows = [row for row in read(results / "notes.csv") or [] if row["topic"] == topic]
        return markdown(header, [[row["what"], row["value"]] for row in rows]) if rows else None

    return lines


def notes(results: Path) -> dict[str, str]:
    """:return: The value of each note by its name, those of the benchmarks and the links too"""
    tables = ("notes.csv", "task_facts.csv")
    named = {row["name"]: row["value"] for table in tables for row in read(results / table) or [] if row["name"]}
    return named | medians(results) | comparison.shares(results) | slips(results) | links()


def slips(results: Path) -> dict[str, str]:
    """:return: How many episodes of the window fail, and why"""
    rows = read(results / "window.csv") or []
    ahead = [f"{100 * float(row['ahead']):.0f}" for row in rows if row["ahead"]]
    sums = {name: str(sum(int(row[name]) for row in rows)) for name in ("episodes", "failed", "slips")}
    return {f"window_{name}": value for name, value in sums.items()} | {"window_ahead": f"{' and '.join(ahead)} cm"}


def links() -> dict[str, str]:
    """:return: Links into the published repository, whose address stands in setup.cfg only"""
    setup = ConfigParser(interpolation=None)
    setup.read(Path(__file__).resolve().parents[1] / "setup.cfg")
    url = setup["metadata"]["url"]
    host, repository = "https://colab.research.google.com", url.removeprefix("https://github.com/")
    notebook = f"{host}/github/{repository}/blob/main/examples/c_learning.ipynb"
    return {
        "clone": f"`git clone {url}`",
        "colab_badge": f"[![Open in Colab]({host}/assets/colab-badge.svg)]({notebook})",
        "colab": f"[open it on Colab]({notebook})",
    }


# -- prediction, and the suite -----------------------------------------------------------------------------------------


def gridworld(results: Path) -> list[str] | None:
    """:return: KL divergence and sum of each method, on- and off-policy"""
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
    :return: Its mean, a dash if there are no rows
    """
    return f"{sum(float(row[column]) for row in rows.values()) / len(rows):.3f}" if rows else "–"


def parking(results: Path) -> list[str] | None:
    """:return: Success of each method on highway-env's parking"""
    rows = read(results / "suite" / "parking" / "suite.csv")
    if not rows:
        return None
    steps = ", ".join(f"{step:,}" for step in sorted({int(row["step"]) for row in rows}))
    header = ["walls", "method", "seed", f"success at {steps} steps", "final distance"]
    table = [
        ["yes" if task == "ParkingWalls" else "no", f"`{method}`", seed, success_of(own), f"{float(own[-1]['final']):.2f}"]
        for (task, method, seed), own in grouped(rows, "task", "method", "seed").items()
    ]
    return markdown(header, table)


def part_of_report(name: str, heading: str | None = None, table_number: int = 0) -> Region:
    """
    :param name: The report's path within the folder of results
    :param heading: One of its headings; None: the beginning
    :param table_number: Which of the tables under this heading
    :return: The table
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
        tables = re.findall(r"(?:^\|.*\n)+", section.partition("\n## ")[0], re.MULTILINE)
        if len(tables) <= table_number:
            raise ValueError(f"{path} has {len(tables)} tables under {heading!r}")
        return tables[table_number].splitlines()

    return lines


def trained_again(results: Path) -> list[str] | None:
    """:return: The best trial of rl-zoo3's study and other settings, each trained with several seeds"""
    rows = read(results / "zoo_study" / "trained_again.csv")
    if rows is None:
        return None
    lines = [
        [settings, ", ".join(row["reward"] for row in runs), ", ".join(f"{100 * float(row['success']):.0f}" for row in runs),
         ", ".join(f"{float(row['final']):.3f}" for row in runs)]
        for (settings,), runs in reversed(grouped(rows, "settings").items())
    ]  # fmt: skip
    return markdown(["", "mean reward", "success %", "final distance"], lines)


def locomotion_data(results: Path) -> list[str] | None:
    """:return: What the data of the locomotion tasks is like"""
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


#: The columns that tell the settings of an experiment apart. A setting is what was timed; its time stands in each of its rows.
TIMED = {
    "gridworld": ("setting", "method"),
    "normalization": ("setting", "method"),
    "relabel_ratio": ("gamma", "method", "lambda"),
    "analytic_q": ("example", "n"),
    "calibration": ("task", "seed"),
    "locomotion": ("task", "method", "seed"),
}


def prediction_time(results: Path) -> list[str] | None:
    """:return: The processor time of the experiments, as far as it was recorded"""
    table = []
    for name, columns in TIMED.items():
        rows = [row for row in read(results / f"{name}.csv") or [] if row.get("cpu_seconds")]
        settings = {tuple(row[column] for column in columns): float(row["cpu_seconds"]) for row in rows}
        if settings:
            table.append([f"`{name}`", f"{sum(settings.values()) / 60:.1f}"])
    return markdown(["experiment", "minutes of one core"], table) if table else None


REGIONS: dict[str, Region] = {
    "comparison": comparison.comparison,
    "gallery": comparison.gallery,
    "hyperparameters": comparison.hyperparameters,
    "core": core_table(last_only=True),
    "core_curve": core_table(last_only=False),
    "core_seeds": core_seeds,
    "defaults": DEFAULTS,
    "standardize": trials("SawyerDrawer-30k", ("clearning", "raw_observations")),
    "trials": trials(),
    "default_trials": trials(n_steps=True),
    "objective_trials": trials(methods=("log_prob", "log_ratio_n_10", "rate_0.001", "defaults"), n_steps=True),
    "q_learning_trials": trials(
        methods=("next_state", "next_state_n_10", "next_state_rate_0.001"), only_both=True, n_steps=None
    ),
    "factor": trials(methods=("clearning", "full_bootstrap"), only_both=True),
    "lookahead": success_curves(("one_step", "appendix_shares", "full_bootstrap")),
    "suite_lookahead": part_of_report("suite/lookahead.md", "Success rate"),
    "suite_lookahead_distance": part_of_report("suite/lookahead.md", "Final distance"),
    "raw_and_standardized": raw_and_standardized,
    "core_raw_and_standardized": core_raw_and_standardized,
    "contact": contact,
    "penalty": PENALTY,
    "noise": NOISE,
    "benchmarks": benchmark_ratios,
    "throughput": throughput,
    "many_envs_maze": notes_table("many_envs", ["maze until 95% of the goals are reached", "found"]),
    "update_ratio": part_of_report("many_envs.md"),
    "false_ends": part_of_report("false_ends.md"),
    "curriculum": part_of_report("curriculum.md"),
    "panda": part_of_report("panda.md"),
    "parking": parking,
    "task_costs": task_costs,
    "offline": part_of_report("offline.md"),
    "offline_other": part_of_report("offline.md", "The other measure"),
    "offline_online": part_of_report("offline.md", "Offline, then online"),
    "offline_trials": notes_table("offline", ["trial", "found"]),
    "update_tried": notes_table("tried", ["tried", "found"]),
    "gridworld": gridworld,
    "prediction": part_of_report("paper.md", "Prediction"),
    "paper_figure": part_of_report("paper.md", "Control"),
    "normalization": part_of_report("normalization.md"),
    "relabel_ratio": part_of_report("relabel_ratio.md"),
    "analytic_q": sentence_of_report("analytic_q.md", "Largest difference"),
    "calibration": part_of_report("calibration.md"),
    "trust": part_of_report("trust.md"),
    "trained_again": trained_again,
    "locomotion_data": locomotion_data,
    "locomotion": part_of_report("locomotion.md"),
    "prediction_time": prediction_time,
    "suite_success": part_of_report("suite/paper.md", "Success rate"),
    "suite_distance": part_of_report("suite/paper.md", "Final distance"),
    "suite_ablation": part_of_report("suite/ablation.md", "Success rate"),
    "suite_ablation_distance": part_of_report("suite/ablation.md", "Final distance"),
    "suite_log_prob": part_of_report("suite/log_prob.md", "Success rate"),
    "suite_log_prob_distance": part_of_report("suite/log_prob.md", "Final distance"),
    "suite_longer": part_of_report("suite/longer.md", "Success rate"),
    "suite_longer_distance": part_of_report("suite/longer.md", "Final distance"),
    "suite_discounts": part_of_report("suite/discounts.md", "Success rate"),
    "suite_discounts_distance": part_of_report("suite/discounts.md", "Final distance"),
    "suite_ratio": part_of_report("suite/maze_ratio.md", "Success rate"),
    "suite_verdicts": part_of_report("suite/paper.md", "Against the best reward-free baseline"),
    "suite_verdicts_distance": part_of_report("suite/paper.md", "Against the best reward-free baseline", 1),
    "suite_together": part_of_report("suite/paper.md", "All tasks together"),
}
