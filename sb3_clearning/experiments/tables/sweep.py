"""The command lines of the experiments, and sweeps that resume where they were stopped."""

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
import torch as th
from matplotlib.figure import Figure

from sb3_clearning.experiments.tables.page import DPI
from sb3_clearning.experiments.tables.provenance import commit, versions
from sb3_clearning.experiments.tables.rows import Rows, add_columns, append_row, read_rows, write_report
from sb3_clearning.experiments.tables.statistics import read_frame

RESULTS = Path("results")
#: The columns that every row has in addition to the experiment's own.
CONSTANTS = ("seconds", "cpu_seconds", "versions", "commit")


def command_line(name: str, description: str | None) -> argparse.ArgumentParser:
    """:return: The parser of an experiment, whose description is the docstring of its module"""
    return argparse.ArgumentParser(prog=f"python -m sb3_clearning.experiments {name}", description=description)


class SweepCommand:
    """
    The command of an experiment that sweeps over settings: its options, the sweep, its report and its picture.

    :param name: The experiment's name, and that of its files
    :param text: What the report says before its tables
    :param quick_seeds: The largest number of seeds with ``--quick``
    """

    def __init__(
        self, name: str, description: str | None, title: str, text: str, seeds: int = 20, quick_seeds: int | None = None
    ):
        self.name, self.title, self.text, self.quick_seeds = name, title, text, quick_seeds
        self.parser = command_line(name, description)
        self.parser.add_argument("--seeds", type=int, default=seeds, help="number of seeds, trained together")
        self.parser.add_argument("--jobs", type=int, default=1, help="processes; each trains all seeds of a setting at a time")
        self.parser.add_argument("--quick", action="store_true", help="a small version in a minute, to see that it works")
        self.parser.add_argument("--output", type=Path, default=RESULTS, help="where CSV and PNG are written")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """:return: The checked options"""
        options = self.parser.parse_args(argv)
        if options.seeds < 1 or options.jobs < 1:
            self.parser.error("--seeds and --jobs must be at least 1")
        if options.quick and self.quick_seeds is not None:
            options.seeds = min(options.seeds, self.quick_seeds)
        options.output.mkdir(parents=True, exist_ok=True)
        return options

    def run(
        self,
        options: argparse.Namespace,
        fields: Sequence[str],
        settings: Sequence[Any],
        is_done: Callable[[Any, Rows], bool],
        work: Callable[[Any], Iterable[dict[str, Any]]],
        table: Callable[[pd.DataFrame], list[str]],
        plot: Callable[[pd.DataFrame], Figure] | None = None,
    ) -> None:
        """Run the :func:`sweep`, then write the report and, if there is one, the picture."""
        path = options.output / f"{self.name}{'_quick' if options.quick else ''}.csv"
        rows = sweep(path, fields, settings, is_done, work, options.jobs)
        frame = read_frame(path)
        made_by = f"Made by `python -m sb3_clearning.experiments {self.name}`. {self.text}"
        write_report(path.with_suffix(".md"), self.title, made_by, ["", *table(frame)], rows)
        if plot is not None:
            plot(frame).savefig(path.with_suffix(".png"), dpi=DPI)
        print(path.with_suffix(".md").read_text())


def _run(work: Callable[[Any], Iterable[dict[str, Any]]], setting: Any) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """:return: A setting's rows, and the wall and processor time that they took"""
    th.set_num_threads(1)
    start, cpu_start = time.time(), time.process_time()
    rows = list(work(setting))
    return rows, {"seconds": round(time.time() - start, 1), "cpu_seconds": round(time.process_time() - cpu_start, 1)}


def sweep(
    path: Path,
    fields: Sequence[str],
    settings: Sequence[Any],
    is_done: Callable[[Any, Rows], bool],
    work: Callable[[Any], Iterable[dict[str, Any]]],
    jobs: int,
) -> Rows:
    """
    Measure the settings that the table lacks, and append their rows as they come.

    :param fields: Its columns, without ``CONSTANTS``
    :param is_done: Whether the table has all rows of a setting
    :param work: Measures a setting, in another process if there are several jobs
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
        bar.update(1)

    with tqdm(total=len(missing), desc=path.stem) as bar:
        if jobs == 1:
            for setting in missing:
                record(*_run(work, setting))
        else:
            with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
                for future in [pool.submit(_run, work, setting) for setting in missing]:
                    record(*future.result())
    return read_rows(path)
