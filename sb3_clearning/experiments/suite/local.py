"""The runs of a matrix on this machine, each in its own process with one thread."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from sb3_clearning.experiments.suite.config import Run
from sb3_clearning.experiments.suite.output_folder import OutputFolder
from sb3_clearning.experiments.suite.run_folder import LOG, append_log, write_description

#: Seconds between two checks of the processes.
POLL_SECONDS = 0.5
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")}


def start(run: Run, output: OutputFolder) -> subprocess.Popen[bytes]:
    """:return: The process that does the run; what it prints goes to ``log.txt`` in the run's folder"""
    folder = output.run_folder(run)
    write_description(run, folder)
    command = [sys.executable, "-m", "sb3_clearning.experiments", "suite", "--run", str(folder), "--parent", str(os.getpid())]
    env = {**os.environ, **ONE_THREAD}
    with (folder / LOG).open("ab") as log:
        # Its own session: a terminal's Ctrl-C reaches this process alone, which signals the run once. A second signal would
        # end the run without a checkpoint.
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env, start_new_session=True)


def run_all(runs: list[Run], output: OutputFolder, jobs: int, report: Callable[[set[str], set[str]], None]) -> set[str]:
    """:return: The names of the runs that failed. ``report`` often gets those of the active and of the failed ones"""
    waiting = list(runs)
    active: dict[str, subprocess.Popen[bytes]] = {}
    failed: set[str] = set()
    try:
        while waiting or active:
            while waiting and len(active) < jobs:
                run = waiting.pop(0)
                active[run.name] = start(run, output)
            time.sleep(POLL_SECONDS)
            for name, process in list(active.items()):
                if process.poll() is not None:
                    del active[name]
                    if process.returncode != 0:
                        failed.add(name)
                    if process.returncode < 0:
                        # As the system does when memory runs out; the run itself cannot log it.
                        append_log(
                            output.folder / "runs" / name, f"It was ended by {signal.Signals(-process.returncode).name}."
                        )
            report(set(active), failed)
    finally:
        for process in active.values():
            process.terminate()
        for process in active.values():
            process.wait()
    return failed
