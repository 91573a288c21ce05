"""The regions for readers who are new here: the comparison in plain words, the gallery, the table of hyperparameters."""

import inspect
import re
from pathlib import Path
from statistics import mean, median

from tables import Rows, grouped, markdown, read

#: What the tasks of the comparison are, from the easiest to the hardest kind.
TASKS = {
    "SawyerReach-v0": "Sawyer arm: move the hand",
    "PointUMaze-v0": "point in a U-shaped maze",
    "AdroitHand-v0": "Adroit hand: take a pose",
    "SawyerDrawer-v0": "Sawyer arm: move a drawer",
    "SawyerWindow-v0": "Sawyer arm: move a window",
    "SawyerPush-v0": "Sawyer arm: push a puck",
    "AdroitPen-v0": "Adroit hand: move a pen",
    "JacoReach-v0": "Jaco arm: take a pose",
    "Finger-v0": "finger: turn a spinner",
}

#: What the methods are.
METHODS = {
    "clearning": "C-learning",
    "one_step": "C-learning with `n_steps=1` (`lambda_` chosen per task)",
    "next_state": "Q-learning, next states as goals",
    "her_final": "Q-learning, HER's final states",
    "her_final_half": "Q-learning, half HER's final states",
    "no_relabelling": "Q-learning, no relabelling",
    "sb3_td3_her": "TD3 + HER (reads the reward)",
}
#: Its actions do not depend on a seed, and the evaluation's episodes are fixed.
NOTHING = "zero_actions"

#: A method with fewer seeds on some task is named below the table, not compared.
MIN_SEEDS = 3


def last_rows(results: Path) -> dict[tuple[str, str], dict[str, dict[str, str]]]:
    """:return: For each task and method the rows at the end of its finished runs, by seed"""
    from sb3_clearning.experiments.suite.config import Suite

    steps = {run.task: str(run.steps) for run in Suite.load().runs(["paper"])}
    rows = [row for row in read(results / "suite" / "suite.csv") or [] if row["step"] == steps.get(row["task"])]
    return {run: {row["seed"]: row for row in own} for run, own in grouped(rows, "task", "method").items()}  # type: ignore[misc]


def seeds_of(found: dict[tuple[str, str], dict[str, dict[str, str]]], method: str) -> set[str]:
    """:return: The seeds that a method has on every task"""
    return set.intersection(*(set(found.get((task, method), {})) for task in TASKS))


def share(rows: Rows) -> str:
    """:return: The mean success of some runs in percent, with the worst and the best one"""
    values = [100 * float(row["success"]) for row in rows]
    low, high = min(values), max(values)
    spread = f" ({low:.0f} to {high:.0f})" if f"{low:.0f}" != f"{high:.0f}" else ""
    return f"{mean(values):.0f}%{spread}"


def shares(results: Path) -> dict[str, str]:
    """:return: The mean successes of the table's seeds, for use within a line, such as ``clearning_SawyerPush``"""
    found = last_rows(results)
    _, common = compared(found)
    named = {}
    for (task, method), rows in found.items():
        own = [row for seed, row in rows.items() if seed in common]
        if method in METHODS and own:
            named[f"{method}_{task.removesuffix('-v0')}"] = f"{100 * mean(float(row['success']) for row in own):.0f}%"
    return named


def compared(found: dict[tuple[str, str], dict[str, dict[str, str]]]) -> tuple[list[str], list[str]]:
    """:return: The methods that have enough seeds on every task, and the seeds that all of them have"""
    seeds = {method: seeds_of(found, method) for method in METHODS}
    shown = [method for method in METHODS if len(seeds[method]) >= MIN_SEEDS]
    return shown, sorted(set.intersection(*(seeds[method] for method in shown))) if shown else []


def comparison(results: Path) -> list[str] | None:
    """:return: Goals reached on each task, for the methods that have enough seeds, on the seeds that all of them have"""
    found = last_rows(results)
    if not found:
        return None
    seeds = {method: seeds_of(found, method) for method in METHODS}
    shown, common = compared(found)
    if "clearning" not in shown or len(shown) < 2:
        return None
    nothing = bool(seeds_of(found, NOTHING))
    table = []
    for task, name in TASKS.items():
        runs = {method: [found[task, method][seed] for seed in common] for method in shown}
        minutes = median(float(row["seconds"]) / 60 for row in runs["clearning"])
        idle = [share(list(found[task, NOTHING].values()))] if nothing else []
        table.append([name, f"{int(runs['clearning'][0]['step']):,}", f"{minutes:.0f}", *map(share, runs.values()), *idle])
    header = ["task", "steps", "minutes", *(METHODS[method] for method in shown), *(["no action"] if nothing else [])]
    fewer = [f"{METHODS[method]} ({len(seeds[method])})" for method in METHODS if method not in shown and seeds[method]]
    text = f"The mean, and the worst and the best run, of the training seeds that all these methods have: {', '.join(common)}."
    if fewer:
        text += f" Left out, because they have fewer seeds so far: {', '.join(fewer)}."
    return [*markdown(header, table), "", text]


def gallery(results: Path) -> list[str] | None:
    """:return: For each trained agent its film, how to watch it, and what it took"""
    rows = read(results / "agents.csv")
    if rows is None:
        return None
    measured = read(results / "suite" / "suite.csv") or []
    lines: list[str] = []
    for name, row in sorted(((row["task"], row) for row in rows), key=lambda pair: list(TASKS).index(pair[0])):
        # The agent's own run, whatever it is called in the table by now.
        own = [
            run
            for run in measured
            if all(run[column] == row[column] for column in ("task", "seed", "step"))
            and all(round(float(run[column]), 4) == round(float(row[column]), 4) for column in ("success", "final"))
        ]
        took = f", {float(own[0]['seconds']) / 60:.0f} minutes on one core" if own else ""
        method = own[0]["method"] if own else "clearning"
        way = "falls" if float(row["final"]) < float(row["initial"]) else "grows"
        lines += [
            f"## {TASKS[name][0].upper()}{TASKS[name][1:]}",
            "",
            f"![{name}, the first evaluation episodes](films/{name}.gif)",
            "",
            f"`{name}`: {int(row['step']):,} steps{took}. {float(row['success']):.0%} of the goals are reached at the end. "
            f"The mean distance {way} from {float(row['initial']):.3f} to {float(row['final']):.3f}.",
            "",
            "```bash",
            f"python -m sb3_clearning.experiments suite --tasks {name} --methods {method} --seeds {row['seed']} "
            f"--steps {row['step']}",
            "```",
            "",
        ]
    return lines[:-1]


def hyperparameters(results: Path) -> list[str] | None:
    """:return: CLearning's arguments with their defaults, from its signature and docstring"""
    from sb3_clearning import CLearning

    said = re.findall(r":param (\w+): (.*?)(?=\n\s*:param|\Z)", inspect.getdoc(CLearning) or "", re.DOTALL)
    meanings = {name: " ".join(text.split()) for name, text in said}
    table = []
    for name, parameter in inspect.signature(CLearning).parameters.items():
        if name in ("policy", "env", "_init_setup_model"):
            continue
        text = re.sub(r":math:`([^`]*)`", r"$\1$", meanings.get(name, "As in SB3")).replace("``", "`")
        default = parameter.default
        shown = f"{default:,}" if type(default) is int else f"`{default!r}`"
        table.append([f"`{name}`", shown, text.replace("|", "\\|").replace("\\mid", "\\vert")])
    return markdown(["argument", "default", "meaning"], table)
