"""The runs of a matrix on a Ray cluster, each a Ray task with one CPU. Ray schedules them and restarts lost ones."""

import contextlib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sb3_clearning.checks import UsageError
from sb3_clearning.experiments.suite.config import Run
from sb3_clearning.experiments.suite.output_folder import OutputFolder
from sb3_clearning.experiments.suite.run import execute
from sb3_clearning.experiments.suite.run_folder import LOG, append_log, read_description, write_description

#: How often a run is restarted after its node or process was lost.
RETRIES = 20
#: A lost node may keep its lock on a network file system for a while.
LOCK_SECONDS = 180.0
#: Seconds between two checks of the tasks.
POLL_SECONDS = 2.0


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise SystemExit(f'--ray needs Ray ({error}): pip install "sb3_clearning[cluster]"') from error
    return ray


def run_on_node(folder: str) -> None:
    """What a Ray task does: the run, or what is missing of it since the last checkpoint."""
    path = Path(folder)
    node = _ray().get_runtime_context().get_node_id()
    run = read_description(path)
    if run is None:
        raise FileNotFoundError(
            f"{path / 'run.json'} does not exist on the node {node}: --output must be a folder that all nodes share, by the "
            "same path."
        )
    with (path / LOG).open("a", buffering=1) as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        print(f"on the node {node}")
        try:
            execute(run, path, LOCK_SECONDS)
        except UsageError as error:
            # A SystemExit looks to Ray like a lost process, which it would restart.
            raise RuntimeError(str(error)) from error
        except Exception:
            traceback.print_exc(file=log)
            raise


def run_all(
    runs: list[Run], output: OutputFolder, address: str, report: Callable[[set[str], set[str], int | None], None]
) -> set[str]:
    """
    :param address: The cluster's address for ``ray.init``: "auto", "host:port", or "local" for a cluster of this machine alone
    :param report: Is called often, with the names of the active runs, of those that failed, and the cluster's CPUs
    :return: The names of the runs that failed
    """
    ray = _ray()
    output = OutputFolder(output.folder.resolve())
    if not ray.is_initialized():
        ray.init(address=address, log_to_driver=False, logging_level="warning")
    # max_calls: a new process for each run.
    task = ray.remote(num_cpus=1, max_calls=1, max_retries=RETRIES)(run_on_node)
    names: dict[Any, str] = {}
    for run in runs:
        write_description(run, output.run_folder(run))
        names[task.options(name=run.name).remote(str(output.run_folder(run)))] = run.name
    waiting, failed = list(names), set()
    while waiting:
        done, waiting = ray.wait(waiting, timeout=POLL_SECONDS)
        for reference in done:
            try:
                ray.get(reference)
            except ray.exceptions.RayError as error:
                failed.add(names[reference])
                append_log(output.folder / "runs" / names[reference], str(error).strip().splitlines()[-1])
        cpus = max(int(ray.cluster_resources().get("CPU", 1)), 1)
        report({names[reference] for reference in waiting[:cpus]}, failed, cpus)
    return failed
