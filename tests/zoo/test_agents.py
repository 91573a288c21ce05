"""A trained agent in rl-zoo3's other commands: enjoy, record_video and the plots."""

import pickle
import shutil
from pathlib import Path

import imageio.v3
import numpy as np
import pytest

from tests.support.commands import Run

TASK = ["--algo", "clearning", "--env", "SawyerReach-v0", "-f", "logs"]


@pytest.mark.parametrize(
    ("option", "file"),
    [
        ([], "SawyerReach-v0.zip"),
        (["--load-best"], "best_model.zip"),
        pytest.param(["--load-checkpoint", "100"], "rl_model_100_steps.zip", marks=pytest.mark.slow),
    ],
)
def test_enjoy(trained: Path, run: Run, option: list[str], file: str) -> None:
    result = run("rl_zoo3.enjoy", *TASK, "-n", 100, "--no-render", *option, cwd=trained)
    assert f"Loading logs/clearning/SawyerReach-v0_1/{file}" in result.stdout
    assert "2 Episodes" in result.stdout
    assert "Success rate: " in result.stdout


@pytest.mark.parametrize("options", [["--no-render"], []], ids=["numbers", "window"])
def test_the_agents_that_come_with_the_project_are_enjoyed(run: Run, options: list[str], tmp_path: Path) -> None:
    agents = Path(__file__).parents[2] / "trained_agents"
    task = ["--algo", "clearning", "--env", "SawyerReach-v0", "-f", agents]
    result = run("rl_zoo3.enjoy", *task, "-n", 50, *options, cwd=tmp_path, MUJOCO_GL="egl", SDL_VIDEODRIVER="dummy")
    assert f"Loading {agents}/clearning/SawyerReach-v0_1/SawyerReach-v0.zip" in result.stdout
    assert "Success rate: 100.00%" in result.stdout
    assert ("HumanRendering" in result.stderr) == (not options)


def test_video_has_the_frames_of_the_steps(trained: Path, run: Run, tmp_path: Path) -> None:
    run("rl_zoo3.record_video", *TASK, "-n", 8, "-o", tmp_path, cwd=trained)
    (video,) = tmp_path.glob("*.mp4")
    frames = imageio.v3.imread(video)
    assert len(frames) == 9  # the first state and 8 steps
    assert frames.shape[-1] == 3
    assert np.ptp(frames[0]) > 50  # a picture, not a black screen
    assert np.abs(frames[0].astype(int) - frames[-1]).max() > 20  # the arm has moved


def test_training_and_evaluations_are_plotted(trained: Path, run: Run, tmp_path: Path) -> None:
    # Twice the same run: plot_from_file cannot do with one.
    for number in (1, 2):
        shutil.copytree(trained / "logs/clearning/SawyerReach-v0_1", tmp_path / f"logs/clearning/SawyerReach-v0_{number}")
    plot = ["-a", "clearning", "-e", "SawyerReach-v0", "-f", "logs"]
    result = run("rl_zoo3.plots.plot_train", *plot, "-y", "success", "-w", 2, cwd=tmp_path)
    assert "No data available" not in result.stdout  # it says so where monitor.csv has no is_success
    result = run("rl_zoo3.plots.all_plots", *plot, "-k", "distances", "--no-display", "-o", "plots", cwd=tmp_path)
    assert "SawyerReach-v0" in result.stdout
    with open(tmp_path / "plots.pkl", "rb") as file:
        results = pickle.load(file)["SawyerReach-v0"]
    with np.load(trained / "logs/clearning/SawyerReach-v0_1/evaluations.npz") as evaluations:
        expected = evaluations["distances"].mean(axis=1)
    (curve,) = results.values()
    np.testing.assert_allclose(curve["mean"], expected)
    run("rl_zoo3.plots.plot_from_file", "-i", "plots.pkl", "-o", "figure.svg", cwd=tmp_path)
    assert "<svg" in (tmp_path / "figure.svg").read_text()
