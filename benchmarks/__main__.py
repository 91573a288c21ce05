"""
Speed and memory against the peers: ``make bench``, or ``python -m benchmarks [--quick] [--only NAME …]``.

Writes results/benchmarks.csv, .md and .png; with ``--quick`` benchmarks_quick.csv and so on. On a noisy machine only the
ratios mean something.
"""

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.timing import Row, use_cores

#: What is measured, each in its own process with the given number of threads.
BENCHMARKS: dict[str, int] = {
    "updates": 1,
    "updates-2": 2,
    "loop": 1,
    "sampling": 1,
    "adding": 1,
    "checking": 1,
    "memory": 1,
    "loading": 1,
    "latency": 1,
    "tasks": 1,
    "scaling-batch": 1,
    "scaling-network": 1,
    "scaling-envs": 1,
    "solving": 1,
    "throughput": 1,
}
#: Hours: only if it is named.
LONG = ("solving",)


def run(name: str, quick: bool) -> list[Row]:
    """
    :param name: The benchmark
    :param quick: Whether to make it short
    :return: Its rows
    """
    threads = BENCHMARKS[name]
    use_cores(threads)
    from benchmarks import buffer, deploy, loading, many_envs, solving, tasks, updates
    from benchmarks.peers import set_threads

    set_threads(threads)
    rounds = 5 if quick else 15
    sizes = (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000, 5_000_000)
    fetch, sawyer = "FetchReach-v4", "SawyerReach-v0"
    calls: dict[str, Callable[[], list[Row]]] = {
        "updates": lambda: updates.updates(fetch, rounds, threads),
        "updates-2": lambda: updates.updates(fetch, rounds, threads),
        "loop": lambda: [row for env_id in (fetch, sawyer) for row in updates.loop(env_id, rounds, threads)],
        "sampling": lambda: buffer.sampling(rounds, sizes, sizes[:3]),
        "adding": lambda: buffer.adding(rounds, (1, 4, 16, 64, 256)),
        "checking": lambda: buffer.checking(20 if quick else 100, (1, 16, 256, 1024)),
        "memory": lambda: buffer.memory(20_000 if quick else 1_000_000),
        "loading": lambda: loading.loading(20_000 if quick else loading.SIZE, 3 if quick else 1),
        "latency": lambda: deploy.latency(fetch, rounds, threads),
        "tasks": lambda: [row for task in tasks.RAW for row in tasks.rows(task, rounds)],
        "scaling-batch": lambda: [
            row for batch in (64, 256, 1024) for row in updates.updates(fetch, max(rounds // 2, 3), threads, batch)
        ],
        "scaling-network": lambda: [
            row
            for hidden in ((64, 64), (256, 256), (512, 512))
            for row in updates.updates(fetch, max(rounds // 2, 3), threads, hidden=hidden)
        ],
        "solving": lambda: solving.solving(range(1 if quick else 3), quick),
        "scaling-envs": lambda: [
            row
            for n_envs in (1, 4, 16, 64)
            for row in updates.loop(fetch, max(rounds // 3, 3), threads, steps=max(96 // n_envs, 6), n_envs=n_envs)
        ],
        "throughput": lambda: many_envs.throughput(3 if quick else 5, (1, 16) if quick else (1, 16, 64, 256, 1024, 4096)),
    }
    return calls[name]()


def read(path: Path) -> list[Row]:
    """
    :param path: The table
    :return: Its rows; none if there is no table
    """
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [_row(row) for row in csv.DictReader(file)]


def _row(texts: dict[str, str]) -> Row:
    value, low, high = (float(texts[name]) for name in ("value", "low", "high"))
    return Row(texts["benchmark"], texts["setting"], texts["subject"], value, low, high, texts["unit"])


def merge(old: list[Row], new: list[Row]) -> list[Row]:
    """
    :param old: Rows
    :param new: Rows that take the place of old ones of the same benchmark, setting and subject
    :return: All rows
    """
    rows = {row[:3]: row for row in old}
    rows.update({row[:3]: row for row in new})
    return list(rows.values())


def write(rows: list[Row], path: Path) -> None:
    """
    :param rows: The rows
    :param path: The table; beside it go the same in Markdown and the plot
    """
    from benchmarks.plots import plot

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        writer.writerows([*row[:3], *(f"{value:.5g}" for value in row[3:6]), row.unit] for row in rows)
    lines = ["# Benchmarks", "", "Made by `make bench`. Median over interleaved rounds, and its quartiles.", ""]
    lines += ["| benchmark | setting | subject | median | quartiles | unit |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row.benchmark} | {row.setting} | {row.subject} | {row.value:.3g} | {row.low:.3g} to {row.high:.3g} | {row.unit} |"
        for row in rows
    ]
    path.with_suffix(".md").write_text("\n".join([*lines, ""]))
    plot(rows, path.with_suffix(".png"))


def main() -> None:
    """Run the benchmarks that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=list(BENCHMARKS), default=[name for name in BENCHMARKS if name not in LONG]
    )
    parser.add_argument("--quick", action="store_true", help="few rounds and small sizes, to see that it works")
    parser.add_argument("--output", type=Path, default=Path("results"))
    parser.add_argument("--run", choices=list(BENCHMARKS), help="one benchmark in this process, its rows as JSON")
    options = parser.parse_args()
    if options.run:
        print(json.dumps(run(options.run, options.quick)))
        return
    path = options.output / ("benchmarks_quick.csv" if options.quick else "benchmarks.csv")
    for name in options.only:
        command = [sys.executable, "-m", "benchmarks", "--run", name, *(["--quick"] if options.quick else [])]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        measured = [Row(*row) for row in json.loads(output.strip().splitlines()[-1])]
        for row in measured:
            spread = f"({row.low:.3g} to {row.high:.3g})"
            print(f"{row.benchmark:14} {row.setting:48} {row.subject:34} {row.value:9.3g} {spread} {row.unit}", flush=True)
        # As they come: what stops a later benchmark costs no finished one.
        write(merge(read(path), measured), path)


if __name__ == "__main__":
    main()
