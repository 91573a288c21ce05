"""Interleaved timing: all subjects take turns in one process, so that a noisy machine slows all of them down alike."""

import os
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


class Row(NamedTuple):
    """
    One line of the results.

    :param benchmark: What was measured
    :param setting: At which size
    :param subject: Of what
    :param value: The median over the rounds
    :param low: The first quartile
    :param high: The third quartile
    :param unit: The unit
    """

    benchmark: str
    setting: str
    subject: str
    value: float
    low: float
    high: float
    unit: str


def use_cores(n: int) -> None:
    """
    Bind this process to its first n cores, before any library counts them: what has its own threads (XLA) runs on n too.

    :param n: Number of cores
    """
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:n])
    os.environ["OMP_NUM_THREADS"] = str(n)


def repeat(n: int, function: Callable[..., object], *args: object, **kwargs: object) -> Callable[[], None]:
    """
    :param n: Number of calls
    :param function: What to call
    :param args: Its arguments
    :param kwargs: Its keyword arguments
    :return: A call that does all of them
    """

    def call() -> None:
        for _ in range(n):
            function(*args, **kwargs)

    return call


def seconds(
    subjects: dict[str, Callable[[], None]], rounds: int, warm_up: int = 1, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """
    :param subjects: For each name a call to time
    :param rounds: Number of turns that each gets
    :param warm_up: Number of turns before those
    :param clock: ``time.process_time`` does not count other processes, for calls that run in this one only
    :return: For each name its times
    """
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for turn in range(-warm_up, rounds):
        for name, call in subjects.items():
            start = clock()
            call()
            if turn >= 0:
                times[name].append(clock() - start)
    return times


def summary(benchmark: str, setting: str, subject: str, values: list[float], unit: str) -> Row:
    """
    :param benchmark: What was measured
    :param setting: At which size
    :param subject: Of what
    :param values: The values of the rounds
    :param unit: The unit
    :return: Their median and quartiles
    """
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return Row(benchmark, setting, subject, middle, low, high, unit)


def compare(
    benchmark: str, setting: str, times: dict[str, list[float]], work: float, unit: str, ours: str = "CLearning"
) -> list[Row]:
    """
    :param benchmark: What was measured
    :param setting: At which size
    :param times: For each subject its times
    :param work: How many units of work one time is for
    :param unit: The unit of work
    :param ours: The subject that the ratios are of
    :return: Each subject's speed, and ours as a ratio to each other's, round by round
    """
    rows = [summary(benchmark, setting, name, [work / t for t in values], f"{unit}/s") for name, values in times.items()]
    for name, values in times.items():
        if name != ours and ours in times:
            ratios = [other / own for own, other in zip(times[ours], values, strict=True)]
            rows.append(summary(benchmark, setting, f"{ours} / {name}", ratios, "ratio"))
    return rows
