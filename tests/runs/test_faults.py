"""Environments, disks and processes that fail: a clear error, the last checkpoint complete, nothing left behind."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecNormalize

from sb3_clearning import CLearning, ResumableCheckpoint, StepTimeout
from sb3_clearning.runs.env_faults import EnvironmentDiedError
from tests.support.checkpointed_runs import (
    EVERY,
    STEPS,
    StopAt,
    all_of,
    differences,
    in_a_process,
    learn,
    make_env,
    start_or_resume,
)
from tests.support.goal_envs import PointEnv, make
from tests.support.small_models import small_model, weights

th.set_num_threads(1)


class FailingEnv(PointEnv):
    """
    :param how: "raises", "exits", "is killed", or "hangs"
    :param at: In which step, over all episodes
    """

    def __init__(self, how: str = "raises", at: int = 48):
        super().__init__(length=7)
        self.how, self.at, self.taken = how, at, 0

    def step(self, action: np.ndarray) -> Any:
        self.taken += 1
        if self.taken == self.at:
            if self.how == "raises":
                raise ArithmeticError("the simulator has become unstable")
            if self.how == "exits":
                os._exit(3)
            if self.how == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            while True:
                time.sleep(0.05)
        return super().step(action)


def _processes(*how: str) -> SubprocVecEnv:
    return SubprocVecEnv([make(FailingEnv, one) if one else make(FailingEnv, at=-1) for one in how], start_method="fork")


def _alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}") and " Z " not in Path(f"/proc/{pid}/stat").read_text()]


def _all_end(pids: list[int], seconds: float = 30.0) -> bool:
    """Whether processes that were told to end do so. How long that takes is the system's business."""
    until = time.monotonic() + seconds
    while _alive(pids) and time.monotonic() < until:
        time.sleep(0.02)
    return not _alive(pids)


def _assert_goes_on(folder: Path, env: Any, before: int, steps: int = STEPS) -> None:
    """The run can be resumed from its last checkpoint, to its end."""
    model = CLearning.resume(folder, env)
    assert before - 2 * EVERY <= model.num_timesteps <= before
    model.learn(steps, callback=ResumableCheckpoint(folder, every=EVERY))
    assert model.num_timesteps >= steps
    assert all(th.isfinite(tensor).all() for tensor in weights(model).values())


def test_an_environment_that_raises(tmp_path: Path) -> None:
    with pytest.raises(ArithmeticError, match="the simulator has become unstable") as raised:
        learn(tmp_path, env=FailingEnv())
    assert raised.value.__notes__ == [f"Resume from the last checkpoint with `CLearning.resume({str(tmp_path)!r}, env)`."]
    _assert_goes_on(tmp_path, FailingEnv(at=-1), 47)
    with pytest.raises(ArithmeticError) as raised:
        small_model(FailingEnv()).learn(STEPS)
    assert raised.value.__notes__ == ["No checkpoint exists; pass `callback=ResumableCheckpoint(folder)`."]


@pytest.mark.parametrize("how", ["raises", "is killed", pytest.param("exits", marks=pytest.mark.slow)])
def test_an_environment_that_dies_in_a_process(how: str, tmp_path: Path) -> None:
    # Forked, the connection of the dead stays open in its siblings.
    env = _processes("", how, "")
    pids = [process.pid for process in env.processes]
    with pytest.raises(
        EnvironmentDiedError, match=r"An environment's process has died.*Resume from the last .* `CLearning.resume"
    ) as raised:
        learn(tmp_path, env=VecNormalize(env), steps=240)
    assert {"raises": "[None, 1, None]", "exits": "[None, 3, None]", "is killed": "[None, -9, None]"}[how] in str(raised.value)
    assert _alive(pids) == []
    env.close()  # does not wait for the dead
    _assert_goes_on(tmp_path, VecNormalize(DummyVecEnv([make(FailingEnv, at=-1)] * 3)), 3 * 47, 240)


def test_an_environment_that_hangs_in_a_process(tmp_path: Path) -> None:
    env = _processes("", "hangs")
    pids = [process.pid for process in env.processes]
    with pytest.raises(EnvironmentDiedError, match="did not respond to a step within 2 seconds"):
        learn(tmp_path, env=StepTimeout(env, seconds=2), steps=240)
    assert _alive(pids) == []
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    _assert_goes_on(tmp_path, DummyVecEnv([make(FailingEnv, at=-1)] * 2), 2 * 47, 240)


def test_an_environment_that_hangs_in_this_process(tmp_path: Path) -> None:
    env = StepTimeout(DummyVecEnv([make(FailingEnv, "hangs")]), seconds=2)
    with pytest.raises(EnvironmentDiedError, match="did not respond") as raised:
        learn(tmp_path, env=env)
    assert any("Resume from the last checkpoint with" in note for note in raised.value.__notes__)
    _assert_goes_on(tmp_path, FailingEnv(at=-1), 47)


@pytest.mark.slow
def test_a_timeout_does_not_change_a_run(tmp_path: Path) -> None:
    plain = learn(tmp_path / "plain", env=DummyVecEnv([make_env]))
    limited = learn(tmp_path / "limited", env=StepTimeout(DummyVecEnv([make_env]), 60.0))
    assert differences(all_of(plain), all_of(limited)) == []


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), "1", None])
def test_a_timeout_that_is_none(seconds: Any) -> None:
    with pytest.raises(ValueError, match="`seconds` must be a number above 0"):
        StepTimeout(DummyVecEnv([make_env]), seconds)


def test_control_c_that_also_ends_the_processes_of_the_environments(tmp_path: Path) -> None:
    env = _processes("", "")
    pids = [process.pid for process in env.processes]

    def control_c() -> None:  # a terminal sends it to all of them
        for pid in [*pids, os.getpid()]:
            os.kill(pid, signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="Stopped at step"):
        learn(tmp_path, StopAt(66, control_c), env=env, steps=240)
    assert _all_end(pids)
    model = CLearning.resume(tmp_path, DummyVecEnv([make(FailingEnv, at=-1)] * 2))
    assert model.num_timesteps >= 66  # nothing that was learned is lost
    model.learn(240, callback=ResumableCheckpoint(tmp_path, every=EVERY))
    assert model.num_timesteps == 240


def _train_in_processes(folder: Path) -> None:
    # Forked ones keep each other's connections open, and live on. SB3's default, a fork server, may be running already for
    # other tests of the parent: this process could not wait for it.
    env = SubprocVecEnv([make(FailingEnv, at=-1)] * 2, start_method="spawn")
    (folder / "pids").write_text(" ".join(str(process.pid) for process in env.processes))
    learn(folder / "run", env=env, steps=10**6)


@pytest.mark.slow  # each of the processes imports PyTorch
def test_a_killed_run_leaves_no_process_behind(tmp_path: Path) -> None:
    process = in_a_process(_train_in_processes, tmp_path)
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("run/checkpoint-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert _alive(pids) == pids
    process.kill()
    process.join()
    while _alive(pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = _alive(pids)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []
    env: VecEnv = DummyVecEnv([make(FailingEnv, at=-1)] * 2)
    assert start_or_resume(tmp_path / "run", env).num_timesteps >= 0


# -- disks -----------------------------------------------------------------------------------------------------------------


@contextmanager
def _small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """Its own file system; it needs the right to mount one."""
    folder.mkdir()
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir()) // 1024


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    learn(tmp_path / "elsewhere")
    needed = _size(tmp_path / "elsewhere")  # two checkpoints and the buffer
    for room in (int(0.3 * needed), needed + 8):
        with _small_disk(tmp_path / str(room), room) as disk:
            with pytest.raises(OSError, match=r"could not be written \(No space left on device\)") as raised:
                learn(disk / "run")
            before = sorted((disk / "run").glob("checkpoint-*"))
            assert not list((disk / "run").glob(".*.part"))
            if not before:
                assert "There is no earlier one. Free space" in str(raised.value)
                assert raised.value.__notes__ == ["No checkpoint was written yet."]
                continue
            assert f"The last complete one is {before[-1].name}. Free space" in str(raised.value)
            model = start_or_resume(disk / "run")  # with warnings as errors: none is damaged
            assert model.num_timesteps < STEPS
            # With more room the run continues to the same end.
            shutil.copytree(disk / "run", tmp_path / f"{room} moved")
            model = learn(tmp_path / f"{room} moved")
            assert differences(all_of(model), all_of(learn(tmp_path / f"{room} undisturbed"))) == []


def _locked_in_the_middle(folder: Path) -> None:
    """In its own process, because it gives up root, whom no permission stops."""
    if os.geteuid() == 0:
        os.chown(folder, 65534, 65534)
        os.setuid(65534)
    run = folder / "run"
    try:
        learn(run, StopAt(50, lambda: run.chmod(0o555)))
    except OSError as error:
        right = "could not be written (Permission denied). The last complete one is checkpoint-" in str(error)
        # It can be read, and says that it cannot be written to before anything is learned.
        right &= start_or_resume(run).num_timesteps >= EVERY
        try:
            learn(run)
        except OSError as refused:
            right &= "ermission denied" in str(refused)
            run.chmod(0o755)
            os._exit(0 if right else 2)
    os._exit(1)


def test_a_folder_that_becomes_read_only() -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        process = in_a_process(_locked_in_the_middle, folder)
        process.join()
        assert process.exitcode == 0
    finally:
        shutil.rmtree(folder)


def test_a_disk_that_is_read_only(tmp_path: Path) -> None:
    with _small_disk(tmp_path / "disk", 4096) as disk:
        learn(disk / "run", steps=50)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert CLearning.resume(disk / "run", make_env()).num_timesteps == 50
        with pytest.raises(OSError, match=r"[Rr]ead-only"):
            learn(disk / "run")
        with pytest.raises(OSError, match=r"[Rr]ead-only"):
            learn(disk / "another")
