"""What the tests of the commands share."""

import os
import subprocess
import sys
from collections.abc import Callable

#: Small enough for seconds. The last of these makes the run short too.
TINY = ["learning_starts:50", "buffer_size:2000", "batch_size:16", "train_freq:5", "policy_kwargs:dict(net_arch=[8])"]

Run = Callable[..., subprocess.CompletedProcess[str]]


def environment(**variables: str) -> dict[str, str]:
    """
    :param variables: to set beyond those of this process
    :return: the environment of a command: one thread, no screen, no colors
    """
    defaults = {"OMP_NUM_THREADS": "1", "MUJOCO_GL": os.environ.get("MUJOCO_GL", "egl"), "MPLBACKEND": "agg", "COLUMNS": "200"}
    return {**os.environ, **defaults, **variables}


def command(module: str, *arguments: object) -> list[str]:
    """
    :param module: what `python -m` runs
    :param arguments: its arguments
    :return: the command
    """
    return [sys.executable, "-m", module, *map(str, arguments)]
