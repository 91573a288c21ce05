"""A resumed run reaches the same weights as one that was never stopped."""

import errno
import os
import random
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from stable_baselines3 import TD3
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_clearning import CLearning, GoalTD3, PinkActionNoise, ResumableCheckpoint
from sb3_clearning.files.array_file import UnreadableFileError
from sb3_clearning.runs.lock import FolderInUseError
from tests.support.checkpointed_runs import (
    EVERY,
    STEPS,
    StopAt,
    Stopped,
    all_of,
    die,
    differences,
    in_a_process,
    learn,
    make_env,
    start_or_resume,
)
from tests.support.goal_envs import ImageGoalEnv, PointEnv, make
from tests.support.small_models import same, small_model, weights

th.set_num_threads(1)


def _envs(n: int = 1, **kwargs: Any) -> DummyVecEnv:
    return DummyVecEnv([make(PointEnv, length=7, **kwargs)] * n)


def _schedule(progress: float) -> float:
    return 1e-3 * (0.2 + progress)


CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "uniform warm-up": {"learning_starts": 60, "warmup_noise": "uniform"},
    "pink warm-up": {"learning_starts": 60},
    "stochastic actor": {"policy_kwargs": {"stochastic_actor": True}},
    "general path": {"policy_kwargs": {"activation_fn": th.nn.Tanh, "optimizer_class": th.optim.RMSprop}},
    "Ornstein-Uhlenbeck": {"action_noise": OrnsteinUhlenbeckActionNoise(np.zeros(2), 0.1 * np.ones(2))},
    "Gaussian": {"action_noise": NormalActionNoise(np.zeros(2), 0.1 * np.ones(2)), "policy_delay": 2},
    "a learning rate's function": {"learning_rate": _schedule},
    "rollouts": {"train_freq": 3, "gradient_steps": -1},
    "episodes": {"train_freq": (1, "episode"), "gradient_steps": 4},
    "a small buffer": {"buffer_size": 30},
    "absorbing states": {"seed": 3, "terminal": "absorbing", "lambda_": 0.3, "w_clip": float("inf")},
}


QUICK = ("defaults", "uniform warm-up", "stochastic actor", "a learning rate's function", "rollouts", "a small buffer")


def _some_quick(cases: Iterable[str], quick: Iterable[str]) -> list[Any]:
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]


@pytest.mark.parametrize("case", _some_quick(CASES, QUICK))
def test_the_same_weights_as_without_a_stop(case: str, tmp_path: Path) -> None:
    arguments = CASES[case]
    undisturbed = all_of(learn(tmp_path / "undisturbed", **arguments))
    for stop in (47, 77):  # twice the same run
        with pytest.raises(Stopped):
            learn(tmp_path / "stopped", StopAt(stop), **arguments)
    model = learn(tmp_path / "stopped", **arguments)
    assert differences(undisturbed, all_of(model)) == []
    assert model.num_timesteps >= STEPS


@pytest.mark.parametrize(("n_envs", "normalized"), [(1, True), (3, True), pytest.param(3, False, marks=pytest.mark.slow)])
def test_vectorized_and_normalized_environments(n_envs: int, normalized: bool, tmp_path: Path) -> None:
    def env() -> Any:
        return VecNormalize(_envs(n_envs), norm_reward=True) if normalized else _envs(n_envs)

    undisturbed = learn(tmp_path / "undisturbed", env=env(), steps=150)
    with pytest.raises(Stopped):
        learn(tmp_path / "stopped", StopAt(120), env=env(), steps=150)
    model = learn(tmp_path / "stopped", env=env(), steps=150)
    assert differences(all_of(undisturbed), all_of(model)) == []
    if normalized:
        statistics, others = undisturbed.get_vec_normalize_env(), model.get_vec_normalize_env()
        assert statistics is not None
        assert others is not None
        assert np.array_equal(statistics.obs_rms["observation"].mean, others.obs_rms["observation"].mean)
        assert statistics.ret_rms.count == others.ret_rms.count


def test_images(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"learning_starts": 20, "batch_size": 4, "steps": 45, "buffer_size": 30}
    undisturbed = all_of(learn(tmp_path / "undisturbed", env=ImageGoalEnv(), **arguments))
    with pytest.raises(Stopped):
        learn(tmp_path / "stopped", StopAt(41), env=ImageGoalEnv(), **arguments)
    assert differences(undisturbed, all_of(learn(tmp_path / "stopped", env=ImageGoalEnv(), **arguments))) == []


def test_the_baselines_too(tmp_path: Path) -> None:
    def run(folder: Path, *others: Any) -> GoalTD3:
        checkpoint = ResumableCheckpoint(folder, every=20)
        arguments: dict[str, Any] = {
            "learning_starts": 10,
            "batch_size": 8,
            "seed": 0,
            "relabel": {"final": 0.5, "random": 0.5},
        }
        network: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "buffer_size": 100}
        fresh = not checkpoint.exists()
        env = make_env()
        model = GoalTD3("MultiInputPolicy", env, **arguments, **network) if fresh else GoalTD3.resume(folder, env)
        return model.learn(70, callback=[checkpoint, *others])

    undisturbed = run(tmp_path / "undisturbed")
    with pytest.raises(Stopped):
        run(tmp_path / "stopped", StopAt(55))
    model = run(tmp_path / "stopped")
    assert all(th.equal(a, b) for a, b in zip(undisturbed.policy.parameters(), model.policy.parameters(), strict=True))
    with pytest.raises(UnreadableFileError, match="holds a GoalTD3, not a CLearning: load it with the class"):
        CLearning.resume(tmp_path / "stopped", make_env())


def test_offline_learning(tmp_path: Path) -> None:
    collected = tmp_path / "buffer"
    small_model(make_env(), learning_starts=1000).learn(60).replay_buffer.save(collected)

    def run(folder: Path, *others: Any) -> CLearning:
        model = start_or_resume(folder)
        if not model.num_timesteps:
            model.replay_buffer.load(collected)
        return model.learn_offline(50, callback=[ResumableCheckpoint(folder, every=15), *others])

    undisturbed = all_of(run(tmp_path / "undisturbed"))
    with pytest.raises(Stopped):
        run(tmp_path / "stopped", StopAt(36))
    assert CLearning.resume(tmp_path / "stopped", make_env()).num_timesteps == 30
    assert differences(undisturbed, all_of(run(tmp_path / "stopped"))) == []


def test_online_learning_after_a_resumed_offline_one(tmp_path: Path) -> None:
    model = small_model(make_env(), learning_starts=10).learn(30)
    model.learn_offline(20, callback=ResumableCheckpoint(tmp_path, every=15))
    resumed = CLearning.resume(tmp_path, make_env())
    resumed.learn(25, callback=ResumableCheckpoint(tmp_path, every=15))
    assert resumed.num_timesteps == 25
    assert resumed.replay_buffer.size() == 55
    assert CLearning.resume(tmp_path, make_env()).replay_buffer.size() == 55


def test_an_episode_that_goes_on_over_a_checkpoint_is_written_again(tmp_path: Path) -> None:
    # Offline learning resets nothing: its checkpoints have open episodes, which end later.
    model = small_model(make_env(), learning_starts=10).learn(33)
    assert model.replay_buffer.has_open_episodes
    checkpoint = ResumableCheckpoint(tmp_path, every=15)
    model.learn_offline(20, callback=checkpoint, reset_num_timesteps=False)
    model.learn(25, callback=checkpoint, reset_num_timesteps=False)
    resumed = CLearning.resume(tmp_path, make_env())
    one, other = all_of(model), all_of(resumed)
    assert [name for name in differences(one, other) if name not in ("torch", "numpy")] == []


def test_the_comparisons_compare_training() -> None:
    # Another seed gives other weights.
    one, other = (small_model(make_env(), seed=seed).learn(60) for seed in (0, 1))
    assert not same(weights(one), weights(other))


# -- signals ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "case"),
    [
        (signal.SIGTERM, "defaults"),
        (signal.SIGINT, "pink warm-up"),
        pytest.param(signal.SIGTERM, "Ornstein-Uhlenbeck", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, "a small buffer", marks=pytest.mark.slow),
    ],
)
def test_a_signal_between_checkpoints_loses_nothing(
    number: signal.Signals, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = CASES[case]
    undisturbed = all_of(learn(tmp_path / "undisturbed", **arguments))
    before = signal.getsignal(number)
    for stop in (33, 64):  # in the middle of episodes
        expected = SystemExit if number == signal.SIGTERM else KeyboardInterrupt
        with pytest.raises(expected) as ended:
            learn(tmp_path / "stopped", StopAt(stop, lambda: os.kill(os.getpid(), number)), **arguments)
        if number == signal.SIGTERM:
            assert isinstance(ended.value, SystemExit)
            assert ended.value.code == 128 + signal.SIGTERM
        assert f"Stopped at step {stop} by {number.name}" in capsys.readouterr().err
        assert start_or_resume(tmp_path / "stopped", **arguments).num_timesteps == stop
    assert differences(undisturbed, all_of(learn(tmp_path / "stopped", **arguments))) == []
    assert signal.getsignal(number) == before


def test_a_signal_and_a_normalization(tmp_path: Path) -> None:
    def env() -> Any:
        return VecNormalize(_envs(2))

    undisturbed = all_of(learn(tmp_path / "undisturbed", env=env()))
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path / "stopped", StopAt(52, lambda: os.kill(os.getpid(), signal.SIGINT)), env=env())
    assert differences(undisturbed, all_of(learn(tmp_path / "stopped", env=env()))) == []


def test_a_signal_at_the_last_step(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        learn(tmp_path, StopAt(STEPS, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert start_or_resume(tmp_path).num_timesteps == STEPS


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path, StopAt(33, twice))
    assert start_or_resume(tmp_path).num_timesteps < 33


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    model = learn(tmp_path, StopAt(33, lambda: os.kill(os.getpid(), signal.SIGINT)), steps=40)
    assert model.num_timesteps == 40
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@pytest.mark.parametrize("before", [None, "gaussian", "pink"])
@pytest.mark.parametrize("after", [None, "gaussian", "pink"])
def test_a_run_goes_on_with_another_noise(before: str | None, after: str | None, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path, StopAt(33, lambda: os.kill(os.getpid(), signal.SIGINT)), action_noise=before)
    model = CLearning.resume(tmp_path, make_env(), action_noise=after)
    assert model.learn(STEPS).num_timesteps == STEPS


def test_an_unknown_noise_ends_its_episodes_at_a_signal(tmp_path: Path) -> None:
    class Own(PinkActionNoise):
        pass

    noise = Own(0.1 * np.ones(2))
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path, StopAt(33, lambda: os.kill(os.getpid(), signal.SIGINT)), action_noise=noise)
    with pytest.raises(UnreadableFileError, match=r"only plain data.*action_noise.*Pass them again: \(action_noise=…\)"):
        CLearning.resume(tmp_path, make_env())
    model = CLearning.resume(tmp_path, make_env(), action_noise=noise)
    assert model.num_timesteps == 33
    assert not model.replay_buffer.has_open_episodes
    model.learn(50)
    assert model.num_timesteps == 50


def test_an_environment_that_its_seed_does_not_govern_goes_on_with_new_episodes(tmp_path: Path) -> None:
    class Unseeded(PointEnv):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            return super().reset(seed=time.time_ns() % 2**31, options=options)

    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path, StopAt(33, lambda: os.kill(os.getpid(), signal.SIGINT)), env=Unseeded(length=7))
    model = CLearning.resume(tmp_path, Unseeded(length=7))
    with pytest.warns(UserWarning, match="could not be restored.*not to the same weights"):
        model.learn(60)
    assert model.num_timesteps == 60
    assert model.replay_buffer.size() == 60


# -- kill -9 ---------------------------------------------------------------------------------------------------------------


def _run_and_report(folder: Path, report: Path, steps: int) -> None:
    model = learn(folder, steps=steps)
    np.savez(report, **{name.replace("/", "|"): value for name, value in all_of(model).items()})
    os._exit(0)


def _reported(report: Path) -> dict[str, Any]:
    with np.load(report) as arrays:
        return {name.replace("|", "/"): arrays[name] for name in arrays}


def _newest_number(folder: Path) -> int:
    return max((int(path.stem.rpartition("-")[2]) for path in folder.glob("checkpoint-*")), default=0)


def _killed_at_random(tmp_path: Path, kills: int, steps: int, seed: int) -> None:
    """
    Kill a run again and again, each time somewhere between one checkpoint and the next but one, and start it again, until it
    is through; with another one after that, until there were enough kills.
    """
    started = time.monotonic()
    process = in_a_process(_run_and_report, tmp_path / "undisturbed", tmp_path / "undisturbed.npz", steps)
    process.join()
    assert process.exitcode == 0
    between = (time.monotonic() - started) / _newest_number(tmp_path / "undisturbed")
    undisturbed = _reported(tmp_path / "undisturbed.npz")
    rng, runs = random.Random(seed), 0
    found: list[Any] = []
    while len(found) < kills:
        runs += 1
        folder, report = tmp_path / str(runs), tmp_path / f"{runs}.npz"
        while True:
            process = in_a_process(_run_and_report, folder, report, steps)
            if len(found) < kills:
                target = _newest_number(folder) + 1
                while process.is_alive() and _newest_number(folder) < target:
                    time.sleep(0.001)
                process.join(rng.uniform(0, 2 * between))
            else:
                process.join()
            if process.exitcode is not None:
                break
            process.kill()
            process.join()
            found.append(start_or_resume(folder).num_timesteps)  # an unreadable checkpoint would be an error
        assert process.exitcode == 0
        assert differences(undisturbed, _reported(report)) == []
    print(f"{len(found)} kills in {runs} runs of {steps} steps; checkpoints found at {found}")


def test_killed_at_random_moments(tmp_path: Path) -> None:
    _killed_at_random(tmp_path, 2, STEPS, seed=0)


@pytest.mark.slow
def test_killed_at_thirty_random_moments(tmp_path: Path) -> None:
    _killed_at_random(tmp_path, 30, 400, seed=1)


SLOW_MOMENTS = [
    pytest.param(*moment, marks=pytest.mark.slow)
    for moment in [
        ("fsync", 1),
        ("fsync", 5),
        ("fsync", 7),
        ("fsync", 8),
        ("fsync", 9),
        ("replace", 3),
        ("replace", 5),
        ("unlink", 1),
    ]
]


def _killed_while_writing(folder: Path, which: str, count: int) -> None:
    """Die at the given call of a function that a checkpoint's writing consists of: before it, or with half of it done."""
    calls = {"n": 0}
    function = {"fsync": os.fsync, "replace": os.replace, "unlink": os.unlink}[which]

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls["n"] += 1
        if calls["n"] == count:
            die()
        return function(*args, **kwargs)  # type: ignore[operator]

    setattr(os, which, counted)
    learn(folder)
    os._exit(1)


@pytest.mark.parametrize(("which", "count"), [("fsync", 6), ("replace", 4), ("unlink", 2), *SLOW_MOMENTS])
def test_killed_in_the_middle_of_a_checkpoint(which: str, count: int, tmp_path: Path) -> None:
    process = in_a_process(_killed_while_writing, tmp_path / "killed", which, count)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    undisturbed = all_of(learn(tmp_path / "undisturbed"))
    assert differences(undisturbed, all_of(learn(tmp_path / "killed"))) == []
    assert not [path for path in (tmp_path / "killed").iterdir() if path.name.endswith(".part")]


# -- the folder ------------------------------------------------------------------------------------------------------------


def test_old_checkpoints_and_segments_go(tmp_path: Path) -> None:
    learn(tmp_path / "keep", buffer_size=40)
    names = sorted(path.name for path in (tmp_path / "keep").iterdir())
    checkpoints = [name for name in names if name.startswith("checkpoint-")]
    assert len(checkpoints) == 2
    starts = [int(name.split("-")[2]) for name in names if name.startswith("buffer-")]
    assert min(starts) >= STEPS - 40 - 3 * EVERY


def test_a_checkpoint_writes_what_is_new(tmp_path: Path) -> None:
    model = small_model(make_env(), learning_starts=10**6, buffer_size=10**5)
    model.learn(600, callback=ResumableCheckpoint(tmp_path, every=100, keep=100))
    segments = sorted(tmp_path.glob("buffer-*"), key=lambda path: int(path.name.split("-")[2]))
    ranges = [tuple(map(int, path.stem.split("-")[2:])) for path in segments]
    assert [start for start, _ in ranges[1:]] == [end for _, end in ranges[:-1]]  # each step once
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 600
    assert max(path.stat().st_size for path in segments) < 3 * min(path.stat().st_size for path in segments)


@pytest.mark.parametrize("larger", [45, 200])
def test_a_larger_buffer_than_one_that_has_gone_round(larger: int, tmp_path: Path) -> None:
    def stored(model: CLearning) -> dict[str, Any]:
        found = model.replay_buffer.transitions()
        observations = {f"now {key}": value for key, value in found.observations.items()}
        following = {f"then {key}": value for key, value in found.next_observations.items()}
        return {**observations, **following, "actions": found.actions, "ends": found.terminations | found.truncations}

    # Nothing is learned, so that what happens does not depend on the buffer; the undisturbed run forgets nothing.
    everything = stored(learn(tmp_path / "undisturbed", learning_starts=10**6))
    folder, stop = tmp_path / "stopped", 64
    terminate = StopAt(stop, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        learn(folder, terminate, learning_starts=10**6, buffer_size=30)
    model = CLearning.resume(folder, make_env(), buffer_size=larger)
    # The newest transition counts as an end until its episode continues.
    assert differences({name: array[stop - 30 : stop] for name, array in everything.items()}, stored(model)) == ["ends"]
    model.learn(STEPS, callback=ResumableCheckpoint(folder, every=EVERY))
    kept = min(larger, 30 + STEPS - stop)
    for one in (model, CLearning.resume(folder, make_env()), CLearning.resume(folder, make_env(), buffer_size=300)):
        assert differences({name: array[-kept:] for name, array in everything.items()}, stored(one)) == []


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    undisturbed = all_of(learn(tmp_path / "undisturbed"))
    with pytest.raises(Stopped):
        learn(tmp_path / "stopped", StopAt(77))
    newest = sorted((tmp_path / "stopped").glob("checkpoint-*"))[-1]
    newest.write_bytes(newest.read_bytes()[:-10])
    with pytest.warns(UserWarning, match="Newer checkpoints cannot be read, using .*damaged"):
        model = CLearning.resume(tmp_path / "stopped", make_env())
    model.learn(STEPS, callback=ResumableCheckpoint(tmp_path / "stopped", every=EVERY))
    assert differences(undisturbed, all_of(model)) == []


def test_a_segment_that_is_missing_or_changed(tmp_path: Path) -> None:
    learn(tmp_path)
    for segment in tmp_path.glob("buffer-*"):
        segment.write_bytes(segment.read_bytes()[:-1] + b"!")
    with pytest.raises(UnreadableFileError, match=r"No checkpoint in .* is complete.*checksum"):
        CLearning.resume(tmp_path, make_env())
    for segment in tmp_path.glob("buffer-*"):
        segment.unlink()
    with pytest.raises(UnreadableFileError, match=r"No checkpoint in .* is complete.*There is no file"):
        CLearning.resume(tmp_path, make_env())


def test_a_finished_run_has_nothing_left_to_do_and_can_be_prolonged(tmp_path: Path) -> None:
    before = all_of(learn(tmp_path))
    model = CLearning.resume(tmp_path, make_env())
    assert differences(before, all_of(model.learn(STEPS))) == []
    assert learn(tmp_path, steps=STEPS + 30).num_timesteps == STEPS + 30


def test_several_calls_of_learn(tmp_path: Path) -> None:
    def run(folder: Path) -> CLearning:
        model = start_or_resume(folder)
        checkpoint = ResumableCheckpoint(folder, every=EVERY)
        model.learn(50, callback=checkpoint)
        return model.learn(40, callback=checkpoint, reset_num_timesteps=False)

    model = run(tmp_path / "one")
    assert model.num_timesteps == 90
    # Stopped in the second call, which is the one that is resumed.
    stopped = small_model(make_env())
    stopped.learn(50, callback=ResumableCheckpoint(tmp_path / "two", every=EVERY))
    callbacks = [ResumableCheckpoint(tmp_path / "two", every=EVERY), StopAt(77)]
    with pytest.raises(Stopped):
        stopped.learn(40, callback=callbacks, reset_num_timesteps=False)
    resumed = CLearning.resume(tmp_path / "two", make_env())
    resumed.learn(40, callback=ResumableCheckpoint(tmp_path / "two", every=EVERY))
    assert differences(all_of(model), all_of(resumed)) == []


def test_two_runs_in_one_folder(tmp_path: Path) -> None:
    class Second(StopAt):
        def _on_step(self) -> bool:
            if self.num_timesteps == self.step:
                with pytest.raises(FolderInUseError, match="Another run writes its checkpoints into"):
                    small_model(make_env()).learn(10, callback=ResumableCheckpoint(tmp_path))
                with pytest.raises(FolderInUseError, match="Another run writes"):
                    CLearning.resume(tmp_path, make_env())
            return True

    learn(tmp_path, Second(50))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        ValueError, match=r"already holds a run .* Resume it with `CLearning.resume\(.*or give this run another"
    ):
        small_model(make_env()).learn(10, callback=ResumableCheckpoint(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_two_processes_in_one_folder(tmp_path: Path) -> None:
    def hold() -> None:
        learn(tmp_path, StopAt(45, lambda: time.sleep(60)))

    process = in_a_process(hold)
    try:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("checkpoint-*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        with pytest.raises(FolderInUseError):
            CLearning.resume(tmp_path, make_env())
    finally:
        process.kill()
        process.join()
    assert start_or_resume(tmp_path).num_timesteps > 0  # the system let go of it


def test_what_can_not_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match=r"There is no checkpoint in .*missing: start a run with"):
        CLearning.resume(tmp_path / "missing", make_env())
    learn(tmp_path / "run", steps=30)
    with pytest.raises(UnreadableFileError, match=r"environment's spaces .* are not those of"):
        CLearning.resume(tmp_path / "run", PointEnv(extra=True))
    with pytest.raises(UnreadableFileError, match="was written with 1 environments, but `env` has 2: pass as many"):
        CLearning.resume(tmp_path / "run", _envs(2, terminates=True))
    with pytest.raises(ValueError, match="needs the environment"):
        CLearning.resume(tmp_path / "run", None)
    with pytest.raises(ValueError, match="has learned from raw observations, and the environment here has a VecNormalize"):
        CLearning.resume(tmp_path / "run", VecNormalize(_envs(1)))
    with pytest.raises(TypeError, match=r"CLearning has no arguments \['nstep'\]. It has \["):
        CLearning.resume(tmp_path / "run", make_env(), nstep=3)
    learn(tmp_path / "normalized", env=VecNormalize(_envs(1)), steps=30)
    with pytest.raises(ValueError, match="learned from normalized observations, and the environment here has no VecNormalize"):
        CLearning.resume(tmp_path / "normalized", _envs(1))
    with pytest.raises(UnreadableFileError, match="statistics do not fit this VecNormalize"):
        CLearning.resume(tmp_path / "normalized", VecNormalize(_envs(1), norm_obs_keys=["observation"]))
    assert CLearning.resume(tmp_path / "normalized", VecNormalize(_envs(1))).learned_normalized
    with pytest.raises(ValueError, match="is for CLearning and GoalTD3, not for TD3: use SB3's CheckpointCallback"):
        TD3("MultiInputPolicy", make_env(), buffer_size=100).learn(5, callback=ResumableCheckpoint(tmp_path / "td3"))
    assert not (tmp_path / "td3").exists()


def test_diverged_weights_do_not_replace_a_good_checkpoint(tmp_path: Path) -> None:
    def diverge() -> None:
        for parameter in model.critic.parameters():
            parameter.data.fill_(float("nan"))

    model = small_model(make_env())
    with pytest.raises(ValueError, match="diverged") as raised:
        model.learn(STEPS, callback=[ResumableCheckpoint(tmp_path, every=EVERY), StopAt(57, diverge)], log_interval=1000)
    assert any("Resume from the last checkpoint with `CLearning.resume(" in note for note in raised.value.__notes__)
    resumed = start_or_resume(tmp_path)
    assert 40 <= resumed.num_timesteps < 57
    assert all(th.isfinite(tensor).all() for tensor in weights(resumed).values())


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError) as raised:  # noqa: PT011 (which one depends on the system)
        small_model(make_env()).learn(10, callback=ResumableCheckpoint(tmp_path / "file" / "run"))
    assert raised.value.errno in (errno.ENOTDIR, errno.EEXIST)


def test_without_replay_a_stopped_run_resumes_with_a_reset_and_repeats_no_action(tmp_path: Path) -> None:
    class Counted(PointEnv):
        steps_taken, resets = 0, 0

        def step(self, action: np.ndarray) -> Any:
            self.steps_taken += 1
            return super().step(action)

        def reset(self, **arguments: Any) -> Any:
            self.resets += 1
            return super().reset(**arguments)

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    env = Counted(length=1000)
    callbacks = [ResumableCheckpoint(tmp_path, every=10_000, replay=False), StopAt(25, stop)]
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        small_model(env).learn(60, callback=callbacks)
    assert env.resets == 2  # of `learn` and of the first checkpoint: none after the stop
    env = Counted(length=1000)
    model = CLearning.resume(tmp_path, env)
    assert model.num_timesteps == 25
    model.learn(60, callback=ResumableCheckpoint(tmp_path, every=10_000, replay=False))
    assert env.steps_taken == 60 - 25
    assert model.num_timesteps == 60
