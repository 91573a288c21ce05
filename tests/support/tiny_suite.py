"""A matrix that takes seconds, on the task that needs no simulator."""

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from sb3_clearning.experiments.suite.config import Run, Suite
from sb3_clearning.experiments.suite.output_folder import OutputFolder
from sb3_clearning.experiments.suite.run import execute
from sb3_clearning.experiments.suite.run_folder import write_description

#: What a run's rows must agree in, however it was interrupted.
MEASURED = (
    *("task", "method", "seed", "step", "success", "success_any_time"),
    *("initial", "final", "minimum", "average", "change", "settings"),
)

CONFIG = {
    "tasks": {
        "Tiny": {
            "env": "ContinuousGridworld-v0",
            "env_kwargs": {"max_episode_steps": 7},
            "steps": 120,
            "evaluate_every": 30,
            "episodes": 3,
            "arguments": {
                "learning_starts": 20,
                "batch_size": 16,
                "buffer_size": 300,
                "policy_kwargs": {"net_arch": [16]},
            },
        }
    },
    "methods": {"sb3_td3_her": {"algorithm": "sb3_clearning.experiments.suite.her:HerTD3", "reward": True}},
    "matrices": {"tiny": [{"tasks": ["Tiny"], "methods": ["clearning", "next_state", "sb3_td3_her"], "seeds": 1}]},
}


def write_config(folder: Path, steps_of: dict[str, int] | None = None, **task: object) -> Path:
    """:return: The file of the tiny matrix, with changes to its task, or with these methods and their steps in the matrix"""
    content = yaml.safe_load(yaml.safe_dump(CONFIG))
    content["tasks"]["Tiny"].update(task)
    if steps_of is not None:
        content["matrices"]["tiny"] = [
            {"tasks": ["Tiny"], "methods": [method], "seeds": 1, "steps": steps} for method, steps in steps_of.items()
        ]
    path = folder / "tiny.yml"
    path.write_text(yaml.safe_dump(content))
    return path


def tiny_runs(config: Path, methods: list[str] | None = None) -> list[Run]:
    return Suite.load([config]).runs(["tiny"], methods=methods)


def command(config: Path, output: Path, *options: str) -> list[str]:
    start = [sys.executable, "-m", "sb3_clearning.experiments", "suite", "--config", str(config), "--matrix", "tiny"]
    return [*start, "--output", str(output), *options]


def start(config: Path, output: Path, *options: str) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}", "CUDA_VISIBLE_DEVICES": ""}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(  # type: ignore[call-overload]
        command(config, output, *options),
        text=True,
        env=env,
        preexec_fn=_hear_interrupts,
        start_new_session=True,  # its own process group, as a terminal's command has it
        **pipes,
    )


def _hear_interrupts() -> None:
    """A shell's background ignores SIGINT, and so do the processes that are started there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(process: subprocess.Popen[str]) -> str:
    """:return: What the command printed; it must have ended well"""
    out, error = process.communicate(timeout=600)
    assert process.returncode == 0, out + error
    return out


def wait_until(condition: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "It did not happen in time"
        time.sleep(0.05)


def undisturbed(runs: list[Run], folder: Path) -> list[dict[str, str]]:
    """:return: The rows of the runs, one after the other, without an interruption"""
    output = OutputFolder(folder)
    for run in runs:
        write_description(run, output.run_folder(run))
        execute(run, output.run_folder(run))
    return output.merge()


def table(output: Path) -> list[dict[str, str]]:
    with (output / "suite.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def measured(rows: list[dict[str, str]], method: str | None = None) -> list[tuple[str, ...]]:
    """:return: What must be the same whenever the run is done again"""
    return [tuple(row[name] for name in MEASURED) for row in rows if method in (None, row["method"])]
