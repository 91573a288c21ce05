"""The benchmarks' command and its tables. What it measures is not measured here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks.timing import Row


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
