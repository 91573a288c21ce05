"""Runs, and what interruptions do to them: nothing."""

import contextlib
import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_clearning.checks import UsageError
from sb3_clearning.common.distances import EpisodeDistances
from sb3_clearning.common.goal_algorithm import GoalAlgorithm
from sb3_clearning.experiments.suite import sb3_checkpoint
from sb3_clearning.experiments.suite.command import main, prepare
from sb3_clearning.experiments.suite.config import Run, find_algorithm, make_env
from sb3_clearning.experiments.suite.her import HerTD3
from sb3_clearning.experiments.suite.output_folder import OutputFolder, RunProgress
from sb3_clearning.experiments.suite.progress import time_left
from sb3_clearning.experiments.suite.run import FIELDS, execute
from sb3_clearning.experiments.suite.run_folder import CHECKPOINTS, ROWS, RunIsTaken, rows_of, suite_lock, write_description
from sb3_clearning.experiments.tables.rows import read_rows, write_rows
from sb3_clearning.files.array_file import UnreadableFileError
from tests.support.tiny_suite import finish, measured, start, table, tiny_runs, undisturbed, wait_until, write_config


@pytest.mark.parametrize(
    "failing", ["sb3_clearning.experiments.suite.run.write_rows", "sb3_clearning.files.array_file.write_whole"]
)
def test_a_run_that_fails_again_and_again_has_the_same_rows(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and checkpoints that cannot be written are recovered from, for all algorithms."""
    runs = tiny_runs(write_config(tmp_path))
    expected = undisturbed(runs, tmp_path / "undisturbed")
    assert [int(row["step"]) for row in expected] == [30, 60, 90, 120] * 3
    module, _, name = failing.rpartition(".")
    original, rng, failures = getattr(sys.modules[module], name), random.Random(0), []

    def fail_often(*arguments: Any) -> None:
        if rng.random() < 0.5:
            failures.append(arguments)
            raise OSError(28, "No space left on device")
        original(*arguments)

    monkeypatch.setattr(failing, fail_often)
    output = OutputFolder(tmp_path / "disturbed")
    for run in runs:
        while output.progress(run).done < run.steps:
            with contextlib.suppress(OSError):
                execute(run, output.run_folder(run))
    assert len(failures) >= 6
    assert measured(output.merge()) == measured(expected)


def _final_model(run: Run, folder: Path) -> OffPolicyAlgorithm:
    algorithm: Any = find_algorithm(run.algorithm, "")
    checkpoints = folder / CHECKPOINTS
    if issubclass(algorithm, GoalAlgorithm):
        return algorithm.resume(checkpoints, make_env(run))
    model = sb3_checkpoint.load(checkpoints, algorithm, make_env(run))
    assert isinstance(model, OffPolicyAlgorithm)
    return model


def _assert_same_weights(run: Run, first: Path, second: Path) -> None:
    one, two = (_final_model(run, OutputFolder(folder).run_folder(run)) for folder in (first, second))
    for name, tensor in one.policy.state_dict().items():
        assert tensor.equal(two.policy.state_dict()[name]), name


def test_a_run_keeps_what_was_learned_and_has_goals_of_its_own(tmp_path: Path) -> None:
    for run in tiny_runs(write_config(tmp_path)):
        undisturbed([run], tmp_path)
        model = _final_model(run, OutputFolder(tmp_path).run_folder(run))
        assert model.replay_buffer is not None
        assert model.num_timesteps == model.replay_buffer.size() == 120
        assert model._n_updates == 100  # all but the warm-up's
        goals = model.replay_buffer.observations["desired_goal"][[0, 30, 60, 90], 0]
        assert len(np.unique(goals, axis=0)) == 4


def test_processor_time_is_of_training_alone_and_unknown_after_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 0.0
    monkeypatch.setattr("sb3_clearning.experiments.suite.run.time.process_time", lambda: seconds)

    def evaluate(*_: Any) -> dict[str, float]:
        nonlocal seconds
        seconds += 1000  # evaluations cost nothing
        return {"success": 0.5, "success_any_time": 0.5, "final": 1.0}

    monkeypatch.setattr("sb3_clearning.experiments.suite.run.evaluate_goals", evaluate)
    step_env, monitored = make_env, []

    def make_slow_env(run: Run) -> Any:
        env = step_env(run)
        step = env.step

        def slow_step(action: Any) -> Any:
            nonlocal seconds
            seconds += 1
            monitored.append(1)
            return step(action)

        env.step = slow_step  # type: ignore[method-assign]
        return env

    monkeypatch.setattr("sb3_clearning.experiments.suite.run.make_env", make_slow_env)
    (run,) = tiny_runs(write_config(tmp_path), ["clearning"])
    folder = OutputFolder(tmp_path / "out").run_folder(run)
    execute(dataclasses.replace(run, steps=60), folder)
    execute(run, folder)  # another process resumes it
    assert [float(row["cpu_seconds"]) for row in rows_of(folder)] == [30, 60, 90, 120]
    assert len(monitored) == 120
    # The row of a segment that a killed process trained: its time is unknown, and so is that of all later rows.
    write_rows(folder / ROWS, rows_of(folder)[:3], FIELDS)
    execute(dataclasses.replace(run, steps=150), folder)
    assert [row["cpu_seconds"] for row in rows_of(folder)] == ["30.0", "60.0", "90.0", "", ""]


def test_the_evaluation_seed_changes_the_goals(tmp_path: Path) -> None:
    (run,) = tiny_runs(write_config(tmp_path, steps=30), ["clearning"])
    other = type(run)(**{**run.__dict__, "evaluation_seed": 2_000_000})
    assert run.settings() != other.settings()  # never mixed in one folder
    rows, others = undisturbed([run], tmp_path / "a"), undisturbed([other], tmp_path / "b")
    assert rows[0]["initial"] != others[0]["initial"]


def test_seeds_make_runs_differ(tmp_path: Path) -> None:
    run = tiny_runs(write_config(tmp_path, steps=30), ["clearning"])
    other = [type(run[0])(**{**run[0].__dict__, "seed": 1})]
    rows, others = undisturbed(run, tmp_path / "a"), undisturbed(other, tmp_path / "b")
    assert rows[0]["initial"] == others[0]["initial"]  # the same evaluation episodes
    assert rows[0]["final"] != others[0]["final"]


def test_fewer_steps_without_an_evaluation_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path, steps=90)
    before = undisturbed(tiny_runs(config, ["clearning"]), tmp_path / "out")
    options = ["--config", str(config), "--matrix", "tiny", "--methods", "clearning", "--output", str(tmp_path / "out")]
    with pytest.raises(UsageError, match=r"beyond 45 steps, and was evaluated only at 30, 60, 90: choose one"):
        main([*options, "--steps", "45"])
    main([*options, "--status", "--steps", "45"])
    assert "0: no evaluation at 45\n0 of 1 runs are done" in capsys.readouterr().out
    main([*options, "--report", "--steps", "45"])
    assert "not evaluated at 45" in (tmp_path / "out" / "tiny.md").read_text()
    main([*options, "--steps", "60"])
    assert table(tmp_path / "out") == before


@pytest.mark.parametrize("method", ["clearning", "sb3_td3_her"])
def test_more_steps_for_a_finished_run(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = tiny_runs(write_config(tmp_path, steps=60), [method])
    before = undisturbed([run], tmp_path)
    folder = OutputFolder(tmp_path).run_folder(run)
    longer = type(run)(**{**run.__dict__, "steps": 90})
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            execute(longer, folder)
    assert rows_of(folder) == before
    assert not list(folder.glob("checkpoints/.*.part"))  # nothing is left half-written
    execute(longer, folder)
    assert [row["step"] for row in rows_of(folder)] == ["30", "60", "90"]
    assert rows_of(folder)[:2] == before
    assert _final_model(longer, folder).num_timesteps == 90


def test_an_evaluation_leaves_no_trace_in_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = tiny_runs(write_config(tmp_path), ["clearning"])
    undisturbed([run], tmp_path / "one")

    def other(*_: Any) -> dict[str, float]:
        np.random.rand(3)
        return {"success": 0.0, "success_any_time": 0.0, **dict.fromkeys(EpisodeDistances._fields, 0.0)}

    monkeypatch.setattr("sb3_clearning.experiments.suite.run.evaluate_goals", other)
    undisturbed([run], tmp_path / "other")
    _assert_same_weights(run, tmp_path / "one", tmp_path / "other")


def test_lost_rows_are_not_made_up(tmp_path: Path) -> None:
    (run,) = tiny_runs(write_config(tmp_path), ["clearning"])
    undisturbed([run], tmp_path)
    folder = OutputFolder(tmp_path).run_folder(run)
    (folder / "rows.csv").unlink()
    with pytest.raises(ValueError, match=r"no rows of the steps \[30, 60, 90\]"):
        execute(run, folder)


def test_a_damaged_checkpoint_is_never_unpickled(tmp_path: Path) -> None:
    (run,) = tiny_runs(write_config(tmp_path, steps=30), ["sb3_td3_her"])
    undisturbed([run], tmp_path)
    folder = OutputFolder(tmp_path).run_folder(run)
    path = folder / "checkpoints" / "model.safetensors"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(UnreadableFileError, match="checksum"):
        execute(type(run)(**{**run.__dict__, "steps": 60}), folder)


def _children(process: subprocess.Popen[str]) -> list[int]:
    """:return: The ids of the processes that a process has started"""
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.mark.parametrize("runs_too", [True, False])
def test_kill_9_in_the_middle_of_the_matrix(runs_too: bool, tmp_path: Path) -> None:
    """The runner and the run at work are killed, or the runner alone."""
    output = OutputFolder(tmp_path / "killed")
    # The second run is long while it is killed, so that it is surely in its middle.
    config = write_config(tmp_path, {"clearning": 120, "next_state": 29_000})
    first, second = tiny_runs(config)
    killed = start(config, output.folder)
    wait_until(lambda: killed.poll() is not None or output.progress(second).done > 0)
    assert killed.poll() is None
    children = _children(killed)
    killed.send_signal(signal.SIGKILL)
    for child in children if runs_too else []:
        os.kill(child, signal.SIGKILL)
    killed.wait()

    def ended() -> bool:
        try:
            with suite_lock(output.run_folder(second), seconds=0):
                return True
        except RunIsTaken:
            return False

    wait_until(ended, 30)  # no run continues without its runner
    finished, done = rows_of(output.run_folder(first)), output.progress(second).done
    assert [int(row["step"]) for row in finished] == [30, 60, 90, 120]
    # Two rows at least are made after the kill.
    config = write_config(tmp_path, {"clearning": 120, "next_state": done + 60})
    assert "2 of 2 runs, 100.0% of the steps" in finish(start(config, output.folder))
    rows = table(output.folder)
    assert [row for row in rows if row["method"] == "clearning"] == finished  # wall times too: it was not done again
    assert [int(row["step"]) for row in rows if row["method"] == "next_state"] == list(range(30, done + 61, 30))
    assert measured(rows) == measured(undisturbed(tiny_runs(config), tmp_path / "undisturbed"))
    # The rows of so short a run are coarse; the weights are not.
    (second,) = tiny_runs(config, ["next_state"])
    _assert_same_weights(second, output.folder, tmp_path / "undisturbed")


def test_two_commands_at_once_share_no_run(tmp_path: Path) -> None:
    (run,) = tiny_runs(write_config(tmp_path, steps=30), ["clearning"])
    folder = OutputFolder(tmp_path).run_folder(run)
    with suite_lock(folder), pytest.raises(RunIsTaken, match="Another process"):
        execute(run, folder, lock_seconds=0)


def test_commands_at_once_keep_each_others_rows_and_what_was_archive(tmp_path: Path) -> None:
    config = write_config(tmp_path, steps=30)
    first, second = (tiny_runs(config, [method])[0] for method in ("clearning", "next_state"))
    undisturbed([first], tmp_path / "out")
    early = OutputFolder(tmp_path / "out")  # a command that has read the table with the first run in it
    late = OutputFolder(tmp_path / "out")
    undisturbed([second], tmp_path / "out")
    shutil.rmtree(early.folder / "runs")
    assert {row["method"] for row in early.merge()} == {"clearning", "next_state"}
    late.archive([first])
    assert {row["method"] for row in early.merge()} == {"next_state"} == {row["method"] for row in table(early.folder)}
    assert early.progress(first) == ([], 0, False)


def test_a_run_that_another_command_holds_keeps_its_settings(tmp_path: Path) -> None:
    (run,) = tiny_runs(write_config(tmp_path, steps=60), ["clearning"])
    output = OutputFolder(tmp_path / "out")
    undisturbed([type(run)(**{**run.__dict__, "steps": 30})], output.folder)
    arguments = {"learning_starts": 20, "batch_size": 32}
    (other,) = tiny_runs(write_config(tmp_path, steps=60, arguments=arguments), ["clearning"])
    folder = output.run_folder(run)
    write_description(other, folder)  # as a command does before it finds that the run is taken
    assert not output.progress(run).other_settings
    assert output.progress(other).other_settings
    before = read_rows(folder / "rows.csv")
    with pytest.raises(UsageError, match=r"has rows of other settings: .*--redo"):
        execute(other, folder)
    assert read_rows(folder / "rows.csv") == before
    execute(run, folder)
    assert [row["step"] for row in read_rows(folder / "rows.csv")] == ["30", "60"]


def test_a_run_with_other_settings_takes_its_whole_time_again(tmp_path: Path) -> None:
    (run,) = tiny_runs(write_config(tmp_path, steps=30), ["clearning"])
    rows = [{"task": "Tiny", "method": "clearning", "seed": "0", "step": "30", "seconds": "60"}]
    for other, expected in ((False, 0.0), (True, 60.0)):
        assert time_left([run], {run.name: RunProgress(rows, 30, other)}, rows, jobs=1) == expected


@pytest.mark.slow
def test_a_run_that_fails_is_named_and_the_others_are_done(tmp_path: Path) -> None:
    config = write_config(tmp_path, steps=30, arguments={"learning_starts": 10, "batch_size": 1, "buffer_size": 300})
    process = start(config, tmp_path / "out", "--methods", "clearning", "sb3_td3_her")
    out, error = process.communicate(timeout=600)
    assert process.returncode == 1
    assert "1 runs failed" in error
    assert "Tiny/clearning/seed_0" in error
    assert "`batch_size` must be at least 2" in error
    assert [row["method"] for row in table(tmp_path / "out")] == ["sb3_td3_her"], out


def test_other_settings_are_never_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path, steps=30)
    undisturbed(tiny_runs(config, ["clearning"]), tmp_path / "out")
    options = ["--config", str(config), "--matrix", "tiny", "--methods", "clearning", "--output", str(tmp_path / "out")]
    write_config(tmp_path, steps=30, arguments={"learning_starts": 20, "batch_size": 32})
    main([*options, "--status"])
    assert "0: other settings" in capsys.readouterr().out
    with pytest.raises(UsageError, match=r"other settings.*--redo"):
        main(options)
    finish(start(config, tmp_path / "out", "--methods", "clearning", "--redo"))
    (row,) = table(tmp_path / "out")
    assert '"batch_size": 32' in row["settings"]
    assert (tmp_path / "out" / "aside" / "Tiny" / "clearning" / "seed_0.1" / "run.json").exists()


def test_a_table_without_the_folders_of_its_runs_is_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a fresh checkout, which has the table only."""
    config, out = write_config(tmp_path, steps=30), tmp_path / "out"
    undisturbed(tiny_runs(config, ["clearning"]), out)
    before = table(out)
    shutil.rmtree(out / "runs")
    finish(start(config, out, "--methods", "clearning", "next_state"))
    assert not (out / "runs" / "Tiny" / "clearning").exists()  # was not done again
    assert [row for row in table(out) if row["method"] == "clearning"] == before
    assert {row["method"] for row in table(out)} == {"clearning", "next_state"}

    options = ["--config", str(config), "--matrix", "tiny", "--methods", "clearning", "--output", str(out)]
    write_config(tmp_path, steps=30, arguments={"learning_starts": 20, "batch_size": 32})
    with pytest.raises(UsageError, match=r"other settings.*--redo"):
        main(options)
    finish(start(config, out, "--methods", "clearning", "--redo"))
    (row,) = [row for row in table(out) if row["method"] == "clearning"]
    assert '"batch_size": 32' in row["settings"]
    assert read_rows(out / "aside" / "Tiny" / "clearning" / "seed_0.1" / "rows.csv") == before

    shutil.rmtree(out / "runs")
    write_config(tmp_path, steps=60, arguments={"learning_starts": 20, "batch_size": 32})
    capsys.readouterr()
    main([*options, "--status"])
    assert "0: missing" in capsys.readouterr().out  # more steps, and no checkpoint to resume from


def test_a_table_of_another_kind_is_refused_and_stays(tmp_path: Path) -> None:
    table = tmp_path / "suite.csv"
    table.write_text("task,method,seed,step,success\nSawyerReach-v0,clearning,0,30000,1.0\n")
    with pytest.raises(UsageError, match=r"suite\.csv is not a table .* no column initial_success, .*settings.* --output"):
        OutputFolder(tmp_path)
    assert table.read_text().endswith("SawyerReach-v0,clearning,0,30000,1.0\n")


def test_an_older_table_gets_the_column_of_success_at_any_time(tmp_path: Path) -> None:
    """Rows of before stay as they were, also those of a resumed run."""
    first, second = tiny_runs(write_config(tmp_path), ["clearning", "next_state"])
    output = tmp_path / "out"
    undisturbed([type(first)(**{**first.__dict__, "steps": 60})], output)
    old_fields = [name for name in FIELDS if name != "success_any_time"]
    for path in (output / "suite.csv", OutputFolder(output).run_folder(first) / ROWS):
        rows = [{name: row[name] for name in old_fields} for row in read_rows(path)]
        write_rows(path, rows, old_fields)
    assert "success_any_time" not in OutputFolder(output).rows()[0]
    merged = undisturbed([first, second], output)
    assert list(read_rows(output / "suite.csv")[0]) == FIELDS
    assert [row["success_any_time"] == "" for row in read_rows(output / "suite.csv")] == [True] * 2 + [False] * 6
    assert all(float(row["success_any_time"]) >= float(row["success"]) for row in merged[2:])


def test_the_rows_in_the_table_stay_until_new_ones_have_come_as_far(tmp_path: Path) -> None:
    (run,) = tiny_runs(write_config(tmp_path, steps=60), ["clearning"])
    before = undisturbed([run], tmp_path / "out")
    folder = OutputFolder(tmp_path / "out").run_folder(run)
    shutil.rmtree(folder)
    shorter = type(run)(**{**run.__dict__, "steps": 30})
    execute(shorter, folder)
    assert OutputFolder(tmp_path / "out").merge() == before
    execute(run, folder)
    merged = OutputFolder(tmp_path / "out").merge()
    assert measured(merged) == measured(before)
    assert merged == rows_of(folder)


def test_a_run_with_other_settings_and_no_row_yet_is_archived(tmp_path: Path) -> None:
    (run,) = tiny_runs(write_config(tmp_path, steps=30), ["clearning"])
    output = OutputFolder(tmp_path / "out")
    undisturbed([run], output.folder)
    (output.run_folder(run) / "rows.csv").unlink()
    output.table.unlink()
    (changed,) = tiny_runs(
        write_config(tmp_path, steps=30, arguments={"learning_starts": 20, "batch_size": 32}), ["clearning"]
    )
    output = OutputFolder(tmp_path / "out")
    assert output.progress(changed).other_settings  # it would resume from that checkpoint
    with suite_lock(output.run_folder(run)), pytest.raises(
        UsageError, match=r"Another process works on .* Wait until it ends"
    ):
        prepare([changed], output, redo=True)
    assert (output.run_folder(run) / "checkpoints").exists()
    prepare([changed], output, redo=True)
    assert not output.run_folder(run).exists()
    assert (tmp_path / "out" / "aside" / "Tiny" / "clearning" / "seed_0.1" / "checkpoints").exists()


def test_a_run_whose_parent_is_gone_ends(tmp_path: Path) -> None:
    """Also if that was gone before the run could look."""
    (run,) = tiny_runs(write_config(tmp_path, steps=29_000), ["clearning"])
    folder = OutputFolder(tmp_path / "out").run_folder(run)
    write_description(run, folder)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    command = [sys.executable, "-m", "sb3_clearning.experiments", "suite", "--run", str(folder), "--parent", str(gone.pid)]
    assert subprocess.run(command, timeout=120, check=False).returncode == 1
    with suite_lock(folder, seconds=0):
        pass


def _in_the_middle(folder: Path) -> tuple[subprocess.Popen[str], Run]:
    """:return: A runner in the middle of a long run, and that run"""
    config = write_config(folder, steps=29_000)
    process = start(config, folder / "out", "--methods", "clearning")
    (run,) = tiny_runs(config, ["clearning"])
    wait_until(lambda: process.poll() is not None or OutputFolder(folder / "out").progress(run).done > 0)
    return process, run


@pytest.mark.slow
def test_a_run_that_the_system_ended_says_so(tmp_path: Path) -> None:
    process, _ = _in_the_middle(tmp_path)
    (child,) = _children(process)
    os.kill(child, signal.SIGKILL)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Tiny/clearning/seed_0: It was ended by SIGKILL." in error


def test_status_says_what_is_there_and_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path, steps=30)
    undisturbed(tiny_runs(config, ["clearning"]), tmp_path / "out")
    write_config(tmp_path, steps=60)
    capsys.readouterr()
    main(["--config", str(config), "--matrix", "tiny", "--output", str(tmp_path / "out"), "--status"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=2)[1:] for line in lines[:3]] == [
        ["clearning", "0: 50%"],
        ["next_state", "0: missing"],
        ["sb3_td3_her", "0: missing"],
    ]
    assert lines[3].startswith("0 of 3 runs are done")


@pytest.mark.slow
def test_an_interrupt_ends_the_runs_with_a_checkpoint(tmp_path: Path) -> None:
    process, run = _in_the_middle(tmp_path)
    (child,) = _children(process)
    assert os.getpgid(child) != process.pid  # two signals would end it before its checkpoint
    os.killpg(process.pid, signal.SIGINT)  # a terminal's Ctrl-C is for the whole group
    _, error = process.communicate(timeout=60)
    assert "The same command resumes" in error
    folder = OutputFolder(tmp_path / "out").run_folder(run)
    assert "Stopped at step" in (folder / "log.txt").read_text()
    with suite_lock(folder, seconds=0):
        pass


def test_a_run_that_is_extended_has_new_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the shorter run, at step 45, is an evaluation that the longer one alone would not have."""
    seeds: list[int | None] = []
    seed_all = HerTD3.set_random_seed

    def remember(model: HerTD3, seed: int | None = None) -> None:
        seeds.append(seed)
        seed_all(model, seed)

    monkeypatch.setattr(HerTD3, "set_random_seed", remember)
    for steps in (45, 90):
        (run,) = tiny_runs(write_config(tmp_path, {"sb3_td3_her": steps}))
        execute(run, tmp_path / "run")
    assert [int(row["step"]) for row in rows_of(tmp_path / "run")] == [30, 45, 60, 90]
    # Making a model seeds it, too.
    assert list(dict.fromkeys(seed for seed in seeds if seed is not None)) == [0, 1, 2, 3]
