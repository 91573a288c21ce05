"""The command line of the suite."""

import argparse
import textwrap
from collections.abc import Iterable
from pathlib import Path

from sb3_clearning.checks import UsageError
from sb3_clearning.experiments.suite import cluster, local
from sb3_clearning.experiments.suite.config import SHIPPED, Run, Suite
from sb3_clearning.experiments.suite.output_folder import OutputFolder
from sb3_clearning.experiments.suite.progress import Progress, status
from sb3_clearning.experiments.suite.run import end_with_parent, execute
from sb3_clearning.experiments.suite.run_folder import RunIsTaken, last_line, read_description
from sb3_clearning.experiments.tables.sweep import command_line

DESCRIPTION = f"""
CLearning and the Q-learning baselines on the paper's tasks. Finished runs stay, others resume from their last checkpoint:
stop it at any time and start it again. Tasks, methods and matrices are in {SHIPPED}; --config adds your own file.
"""


def parser() -> argparse.ArgumentParser:
    """:return: The parser of the command line"""
    made = command_line("suite", DESCRIPTION)
    made.add_argument("--matrix", nargs="+", default=["paper"], metavar="NAME", help="matrices of the configuration (paper)")
    made.add_argument("--tasks", nargs="+", metavar="TASK", help="only these tasks")
    made.add_argument("--methods", nargs="+", metavar="METHOD", help="only these methods")
    made.add_argument("--seeds", nargs="+", type=int, metavar="SEED", help="these seeds instead of the matrix's own")
    made.add_argument("--steps", type=int, help="steps instead of the tasks' own; finished runs can be extended")
    made.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at the same time, each with one thread")
    made.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="run on this Ray cluster (auto, host:port); --output must be a folder that all nodes share",
    )
    made.add_argument("--config", nargs="+", type=Path, default=[], metavar="FILE", help="YAML files of your own")
    made.add_argument("--output", type=Path, default=Path("results/suite"), help="folder of the runs and of suite.csv")
    made.add_argument(
        "--redo", action="store_true", help="repeat runs whose settings have changed; the old ones go to the folder aside/"
    )
    what = made.add_mutually_exclusive_group()
    what.add_argument("--status", action="store_true", help="show what is there and what is missing")
    what.add_argument("--report", action="store_true", help="write tables and pictures of what is in suite.csv, by matrix")
    what.add_argument("--list", action="store_true", help="show the tasks, methods and matrices of the configuration")
    what.add_argument("--run", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    made.add_argument("--parent", type=int, metavar="PID", help=argparse.SUPPRESS)
    return made


def main(argv: list[str]) -> None:
    """Run the command."""
    options = parser().parse_args(argv)
    if options.run:
        run_here(options.run, options.parent)
        return
    if options.jobs < 1:
        raise UsageError(f"--jobs must be at least 1, not {options.jobs}.")
    if options.steps is not None and options.steps < 1:
        raise UsageError(f"--steps must be at least 1, not {options.steps}.")
    suite = Suite.load(options.config)
    if options.list:
        print(listing(suite))
        return
    runs = suite.runs(options.matrix, options.tasks, options.methods, options.seeds, options.steps)
    output = OutputFolder(options.output)
    if options.status:
        print(status(runs, output, options.jobs))
        return
    if options.report:
        of_each = suite.runs_of_each(options.matrix, options.tasks, options.methods, options.seeds, options.steps)
        for matrix in [matrix for matrix, of_matrix in of_each.items() if of_matrix]:
            print(report(matrix, of_each[matrix], suite, output))
        return
    prepare(runs, output, options.redo)
    progress = Progress(runs, output, options.jobs)
    progress(set(), set())
    missing = [run for run in runs if output.progress(run).done < run.steps]
    try:
        if options.ray:
            failed = cluster.run_all(missing, output, options.ray, progress)
        else:
            failed = local.run_all(missing, output, options.jobs, progress)
    except KeyboardInterrupt:
        raise SystemExit("Stopped. The same command resumes from the checkpoints.") from None
    finally:
        output.merge()
    print(f"The rows are in {output.table}")
    finish(missing, failed, output)


def report(matrix: str, runs: list[Run], suite: Suite, output: OutputFolder) -> Path:
    """:return: The report"""
    try:
        from sb3_clearning.experiments.suite.report import write_report
    except ImportError as error:
        raise SystemExit(f'The report cannot be made ({error}): pip install "sb3_clearning[experiments]"') from error
    if not output.table.exists():
        raise UsageError(f"There is no {output.table}: start the runs first, or pass their folder as --output.")
    return write_report(matrix, output.rows(), runs, suite.non_baselines(), output.folder)


def run_here(folder: Path, parent: int | None) -> None:
    """:param parent: The process that started this one; with it this one ends"""
    run = read_description(folder)
    if run is None:
        raise UsageError(f"{folder} has no run.json.")
    if parent is not None:
        end_with_parent(parent)
    try:
        execute(run, folder)
    except RunIsTaken as error:
        raise SystemExit(str(error)) from error


def prepare(runs: list[Run], output: OutputFolder, redo: bool) -> None:
    """Archive runs with other settings if ``redo``; raise an error for them otherwise."""
    states = [(run, output.progress(run)) for run in runs]
    for run, state in states:
        if state.passed(run):
            steps = ", ".join(row["step"] for row in state.rows)
            raise UsageError(
                f"{run.name} in {output.folder} is beyond {run.steps} steps, and was evaluated only at {steps}: choose one of "
                "these for --steps, or another --output."
            )
    changed = [run for run, state in states if state.other_settings]
    if not changed:
        return
    if not redo:
        names = ", ".join(run.name for run in changed[:3]) + (", …" if len(changed) > 3 else "")
        raise UsageError(
            f"{len(changed)} runs in {output.folder} were made with other settings ({names}). Repeat them with --redo (the "
            "old ones go to the folder aside/), or choose another --output."
        )
    try:
        output.archive(changed)
    except RunIsTaken as error:
        raise UsageError(f"{error} Wait until it ends, or choose another --output.") from error


def finish(runs: list[Run], failed: set[str], output: OutputFolder) -> None:
    """Exit with the last line of each failed run's log."""
    if failed:
        lines = [f"  {run.name}: {last_line(output.run_folder(run))}" for run in runs if run.name in failed]
        raise SystemExit("\n".join([f"{len(failed)} runs failed (see log.txt in their folders):", *lines]))


def listing(suite: Suite) -> str:
    """:return: Its names"""
    parts: dict[str, Iterable[str]] = {"tasks": suite.tasks, "methods": suite.methods, "matrices": suite.matrices}
    return "\n".join(
        textwrap.fill(f"{kind}: {', '.join(names)}", 120, subsequent_indent="  ") for kind, names in parts.items()
    )
