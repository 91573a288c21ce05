"""Wrong input ends in one clear line, before a run folder is made; an error of ours leaves other algorithms alone."""

from pathlib import Path

import pytest

from zoo.commands import Run


def one_line(stderr: str) -> str:
    """:return: all that was printed, if it is one line"""
    (line,) = [line for line in stderr.splitlines() if line.strip()]
    return line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "Pendulum-v1"], "clearning can not learn on Pendulum-v1."),
        (["--env", "SawyerReach-v0", "-params", "gama:0.9"], "clearning has no hyperparameter `gama`: did you mean `gamma`?"),
        (["--env", "SawyerReach-v0", "-conf", "broken.yml"], "broken.yml is not valid YAML: "),
    ],
)
def test_wrong_input(run: Run, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "broken.yml").write_text("SawyerReach-v0:\n  gamma: [0.9\n")
    result = run("rl_zoo3.train", "--algo", "clearning", *arguments, "-f", "logs", cwd=tmp_path, fails=True)
    assert one_line(result.stderr).startswith(message)
    assert not (tmp_path / "logs").exists()


def test_an_error_of_ours_does_not_break_other_algorithms(run: Run, tmp_path: Path) -> None:
    # In front of the installed package on the path of `python -m`: the current folder.
    (tmp_path / "sb3_clearning").mkdir()
    (tmp_path / "sb3_clearning/__init__.py").write_text("raise RuntimeError('broken')")
    steps = ["-n", 64, "--eval-freq", -1, "-params", "n_steps:8", "batch_size:8", "n_envs:1"]
    result = run("rl_zoo3.train", "--algo", "ppo", "--env", "CartPole-v1", *steps, cwd=tmp_path)
    assert "Saving to" in result.stdout
    assert "sb3_clearning could not add its algorithms to rl_zoo3.utils (RuntimeError: broken)" in result.stderr


@pytest.mark.parametrize("search", ["None", "['gamma']"], ids=["everything", "gamma"])
def test_a_search_says_what_of_the_command_line_it_draws_itself(run: Run, search: str, tmp_path: Path) -> None:
    task = ["--algo", "clearning", "--env", "ContinuousGridworld-v0", "-f", "logs", "-n", 100]
    study = ["-optimize", "--n-trials", 1, "--n-evaluations", 1, "--eval-episodes", 1, "--num-threads", 1]
    given = ["-params", "batch_size:32", "learning_starts:20", f"search:{search}"]
    result = run("rl_zoo3.train", *task, *study, *given, cwd=tmp_path)
    assert ("-params has no effect on batch_size: the trials draw their own" in result.stdout) == (search == "None")
