"""The runs of a matrix on this machine: each a process of its own with one thread."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sb3_clearning.experiments.suite.config import Run
from sb3_clearning.experiments.suite.run import write_description
from sb3_clearning.experiments.suite.table import Output

#: Seconds between two looks at the processes.
POLL_SECONDS = 0.5
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")}


def start(run: Run, output: Output) -> subprocess.Popen[bytes]:
    """:return: The process that does the run; what it prints goes to ``log.txt`` in the run's folder"""
    folder = output.run_folder(run)
    write_description(run, folder)
    command = [sys.executable, "-m", "sb3_clearning.experiments", "suite", "--run", str(folder), "--parent", str(os.getpid())]
    env = {**os.environ, **ONE_THREAD}
    with (folder / "log.txt").open("ab") as log:
        # A session of its own: a terminal's Ctrl-C comes to this process alone, which asks the run to end once. The run takes
        # a second signal for impatience and writes no checkpoint.
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env, start_new_session=True)


def run_all(runs: list[Run], output: Output, jobs: int, report: Callable[[set[str], set[str]], None]) -> set[str]:
    """
    :param report: Is called often, with the names of the runs that go on and of those that failed
    :return: The names of the runs that failed
    """
    waiting = list(runs)
    going: dict[str, subprocess.Popen[bytes]] = {}
    failed: set[str] = set()
    try:
        while waiting or going:
            while waiting and len(going) < jobs:
                run = waiting.pop(0)
                going[run.name] = start(run, output)
            time.sleep(POLL_SECONDS)
            for name, process in list(going.items()):
                if process.poll() is not None:
                    del going[name]
                    if process.returncode != 0:
                        failed.add(name)
                    if process.returncode < 0:
                        # As the system does where memory runs out. The run itself could not say it.
                        note(output.folder / "runs" / name, f"It was ended by {signal.Signals(-process.returncode).name}.")
            report(set(going), failed)
    finally:
        for process in going.values():
            process.terminate()
        for process in going.values():
            process.wait()
    return failed


def note(folder: Path, text: str) -> None:
    """
    :param folder: A run's folder
    :param text: Why it failed, for its log
    """
    with contextlib.suppress(OSError), (folder / "log.txt").open("a") as log:
        log.write(f"{text}\n")


def last_line(folder: Path) -> str:
    """:return: The last line of what the run printed: an error's message, if it failed"""
    path = folder / "log.txt"
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "it printed nothing"
