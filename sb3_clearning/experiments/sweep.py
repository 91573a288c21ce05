"""What the prediction experiments share: options, runs that go on where they were stopped, rows as they come."""

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch as th

from sb3_clearning.experiments.provenance import commit, versions
from sb3_clearning.experiments.rows import add_columns, append_row, read_rows

RESULTS = Path("results")
#: What stands in every row beside a run's own columns.
CONSTANTS = ("seconds", "cpu_seconds", "versions", "commit")


def parser(name: str, description: str | None, seeds: int = 20) -> argparse.ArgumentParser:
    """
    :param name: The experiment's name
    :param description: Its module's docstring
    :param seeds: Default number of seeds
    :return: A parser with the options that all experiments have
    """
    result = argparse.ArgumentParser(prog=f"python -m sb3_clearning.experiments {name}", description=description)
    result.add_argument("--seeds", type=int, default=seeds, help="number of seeds, trained together")
    result.add_argument("--jobs", type=int, default=1, help="processes; each trains all seeds of one setting at a time")
    result.add_argument("--quick", action="store_true", help="a small version in a minute, to see that it works")
    result.add_argument("--output", type=Path, default=RESULTS, help="where CSV and PNG are written")
    return result


def check(options: argparse.Namespace, arguments: argparse.ArgumentParser) -> None:
    """
    :param options: The parsed options
    :param arguments: Their parser, which exits with an error
    """
    if options.seeds < 1 or options.jobs < 1:
        arguments.error("--seeds and --jobs must be at least 1")
    options.output.mkdir(parents=True, exist_ok=True)


def _run(work: Callable[[Any], Iterable[dict[str, Any]]], setting: Any) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """:return: A setting's rows, and how long they took by the clock and of the processor (which others may use, too)"""
    th.set_num_threads(1)
    start, cpu_start = time.time(), time.process_time()
    rows = list(work(setting))
    return rows, {"seconds": round(time.time() - start, 1), "cpu_seconds": round(time.process_time() - cpu_start, 1)}


def sweep(
    path: Path,
    fields: Sequence[str],
    settings: Sequence[Any],
    is_done: Callable[[Any, list[dict[str, str]]], bool],
    work: Callable[[Any], Iterable[dict[str, Any]]],
    jobs: int,
) -> list[dict[str, str]]:
    """
    Do what is not in the table yet, with a progress bar, and append the rows as they come.

    :param path: The table
    :param fields: Its columns; those of ``CONSTANTS`` are added
    :param settings: What is to be done
    :param is_done: Whether the table has a setting's rows already
    :param work: Makes a setting's rows (in another process if there are several jobs)
    :param jobs: Number of processes
    :return: The table
    """
    from tqdm.auto import tqdm

    rows = read_rows(path)
    missing = [setting for setting in settings if not is_done(setting, rows)]
    print(f"{len(settings) - len(missing)} of {len(settings)} settings are in {path}; {len(missing)} to do", flush=True)
    constants = {"versions": versions(), "commit": commit()}

    columns = [*fields, *CONSTANTS]
    add_columns(path, columns)

    def record(found: list[dict[str, Any]], times: dict[str, float]) -> None:
        for row in found:
            append_row(path, {**row, **constants, **times}, columns)

    with tqdm(total=len(missing), desc=path.stem) as bar:
        if jobs == 1:
            for setting in missing:
                record(*_run(work, setting))
                bar.update(1)
        else:
            with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
                for future in [pool.submit(_run, work, setting) for setting in missing]:
                    record(*future.result())
                    bar.update(1)
    return read_rows(path)
