"""The benchmarks' command and its tables. What it measures is not measured here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import loading
from benchmarks.timing import Row
from sb3_clearning.replay import datasets


def test_quick_rows_do_not_replace_the_measured_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("adding", "4 environments", "GoalReplayBuffer", 1000.0, 900.0, 1100.0, "steps/s")

    def measure(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        value = 10.0 if "--quick" in command else 1000.0
        return subprocess.CompletedProcess(command, 0, json.dumps([row._replace(value=value)]))

    monkeypatch.setattr(benchmarks.subprocess, "run", measure)
    for options in ([], ["--quick"]):
        monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "adding", "--output", str(tmp_path), *options])
        benchmarks.main()
    assert benchmarks.read(tmp_path / "benchmarks.csv") == [row]
    assert benchmarks.read(tmp_path / "benchmarks_quick.csv") == [row._replace(value=10.0)]
    for suffix, measured in {"md": "| 1e+03 | 900 to", "csv": ",1000,900,"}.items():
        assert measured in (tmp_path / f"benchmarks.{suffix}").read_text()
    assert (tmp_path / "benchmarks_quick.png").stat().st_size > 1000


def test_the_loader_needs_the_same_memory_for_ten_times_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "BUFFER", 2_000)
    monkeypatch.setattr(datasets, "CHUNK_BYTES", 2**17)
    rows = {(row.setting, row.subject): row.value for row in loading.loading(60_000, rounds=1)}
    small, large = (f"{n} transitions, buffer of 2,000" for n in ("6,000", "60,000"))
    assert set(rows) == {
        (setting, subject)
        for setting in (small, large)
        for subject in ("load_dataset", "np.load", "load_dataset / np.load", "load_dataset, memory", "np.load, memory")
    }
    assert rows[large, "load_dataset, memory"] < 1.2 * rows[small, "load_dataset, memory"]
    assert rows[large, "np.load, memory"] > 4 * rows[small, "np.load, memory"]
