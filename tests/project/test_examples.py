"""
The scripts and the notebook of examples/, from beginning to end with few steps, each in its own process: in this one
other tests have registered the environments' ids.
"""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.commands import environment
from tests.support.pages import ROOT

EXAMPLES = ROOT / "examples"

#: For each script what makes it short, and what it prints at its end.
SCRIPTS = {
    "first_agent.py": (["--steps", "30", "--episodes", "2"], r"success \d\.\d\d.*\nfirst action: \[.*\]"),
    "own_environment.py": (["--steps", "30", "--episodes", "2"], r"success \d\.\d\d.*\ncommand: hang"),
    "image_goals.py": (["--steps", "12", "--episodes", "1"], r"pixel distance 0\.\d+ → 0\.\d+"),
    "offline_data.py": (
        ["--steps", "10", "--transitions", "400", "--episodes", "2"],
        r"400 transitions; no reward.*\nsuccess",
    ),
    "future_of_an_agent.py": (["--steps", "110"], r"torque \+2: upright with probability [01]\.\d+ ± .*\nexpected cosine"),
    "robot_arm.py": (["--steps", "120", "--latency", "0"], r"commanded \[1\. 1\.\], reached \[.*\]"),
    "many_environments.py": (
        ["--n-envs", "8", "--gradient-steps", "2", "--updates", "8", "--every", "4", "--episodes", "2"],
        r"\d+ transitions, 8 updates, .* success \d\.\d\d",
    ),
    "tuning.py": (["--trials", "2", "--steps", "40"], r"best of 2: mean distance \d\.\d+ with gamma 0\.\d+"),
}


def test_every_script_is_here() -> None:
    assert set(SCRIPTS) == {path.name for path in EXAMPLES.glob("*.py")}


def output_of(script: Path, *arguments: str, cwd: Path, **variables: str) -> str:
    command, env = [sys.executable, str(script), *arguments], environment(**variables)
    result = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, f"{result.stdout[-3000:]}\n{result.stderr[-5000:]}"
    return result.stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_runs(name: str, tmp_path: Path) -> None:
    pytest.importorskip("gymnasium_robotics")
    pytest.importorskip("optuna")
    arguments, printed = SCRIPTS[name]
    output = output_of(EXAMPLES / name, *arguments, cwd=tmp_path)
    assert re.search(printed, output), output


def test_the_robot_is_stopped_by_ctrl_c_and_resumed(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "robot_arm.py"), "--endless", "--latency", "0.001", "--steps"]
    process = subprocess.Popen([*command, "100000"], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True)
    folder, deadline = tmp_path / "runs" / "robot_arm", time.monotonic() + 300
    try:
        while not list(folder.glob("checkpoint-*")):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=300)
    finally:
        process.kill()
    step = re.findall(r"Stopped at step ([\d,]+) by SIGINT", printed)[0]
    steps = int(step.replace(",", ""))
    output = output_of(EXAMPLES / "robot_arm.py", "--endless", "--latency", "0", "--steps", str(steps + 20), cwd=tmp_path)
    assert f"resumed at step {step}\n" in output
    assert "commanded" in output


def cells() -> list[str]:
    notebook = json.loads((EXAMPLES / "c_learning.ipynb").read_text())
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_notebook_runs(tmp_path: Path) -> None:
    """All cells one after the other, as Jupyter does, but for pip's lines: the package is here."""
    pytest.importorskip("gymnasium_robotics")
    lines = [line for source in cells() for line in source.splitlines() if not line.startswith("%")]
    (tmp_path / "cells.py").write_text("\n".join(lines))
    assert re.search(r"success \d\.\d\d", output_of(tmp_path / "cells.py", cwd=tmp_path, SB3_CLEARNING_STEPS="40"))


def test_notebook_is_valid_and_has_no_outputs() -> None:
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(EXAMPLES / "c_learning.ipynb", as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs"), "clear the outputs before committing"
        assert cell.get("execution_count") is None
