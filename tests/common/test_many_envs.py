"""Many environments: no step loops over them, and every environment's share of the buffer holds an episode."""

import cProfile
import pstats
import warnings
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_clearning import GoalReplayBuffer
from sb3_clearning.envs import BatchedPointMaze
from tests.support.goal_envs import PointEnv, make
from tests.support.small_models import small_model


@pytest.mark.parametrize("warm_up", [True, False])
def test_the_number_of_calls_in_a_step_does_not_depend_on_the_number_of_environments(warm_up: bool) -> None:
    def calls(n_envs: int) -> int:
        starts = 10**9 if warm_up else 0
        model = small_model(BatchedPointMaze(n_envs), learning_starts=starts, gradient_steps=0, buffer_size=400 * n_envs)
        model.learn(10 * n_envs)
        profile = cProfile.Profile()
        profile.runcall(model.learn, 50 * n_envs, reset_num_timesteps=False)
        return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]

    few, many = calls(16), calls(512)
    assert abs(many - few) < 0.02 * few


def test_a_step_logs_once_however_many_episodes_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(DummyVecEnv([make(PointEnv, length=5) for _ in range(12)]), learning_starts=10**6)
    logged: list[int] = []
    monkeypatch.setattr(model, "dump_logs", lambda: logged.append(model.num_timesteps))
    model.learn(12 * 20, log_interval=4)
    assert logged == [60, 120, 180, 240]
    assert model._episode_num == 48
    logged.clear()
    model.learn(12 * 20, log_interval=20)  # of 12 episodes at a time, the second, fourth and so on complete 20 of them
    assert logged == [120, 240]


def test_only_the_infos_of_ended_episodes_are_read() -> None:
    class Infos(list[dict[str, Any]]):
        read: set[int] = set()

        def __getitem__(self, index: Any) -> Any:
            self.read.add(index)
            return super().__getitem__(index)

        def __iter__(self) -> Any:
            raise AssertionError("All infos are read")

    class Watched(DummyVecEnv):
        def step_wait(self) -> Any:
            *step, dones, infos = super().step_wait()
            self.ended = {int(env) for env in np.flatnonzero(dones)}
            watched = Infos(list(infos))
            watched.read = set()
            self.watched = watched
            return *step, dones, watched

    env = Watched([make(PointEnv, length=5 + i) for i in range(4)])
    model = small_model(env, learning_starts=10**6)
    seen: list[tuple[set[int], set[int]]] = []

    class Buffer(GoalReplayBuffer):
        def add(self, *arguments: Any) -> None:
            super().add(*arguments)
            seen.append((set(env.watched.read), env.ended))

    model.replay_buffer.__class__ = Buffer
    model.learn(100)
    assert len(seen) == 25
    assert all(read == ended for read, ended in seen)


def test_a_share_that_is_shorter_than_an_episode_is_reported_with_the_size_to_set() -> None:
    space, n = PointEnv().observation_space, 4
    buffer = GoalReplayBuffer(40, space, PointEnv().action_space, n_envs=n)
    state = {key: np.zeros((n, *shape), np.float32) for key, shape in buffer.obs_shape.items()}

    def play(length: int) -> None:
        for t in range(length):
            done = np.arange(n) == (2 if t == length - 1 else n)
            buffer.add(state, state, np.zeros((n, 2)), np.zeros(n), done, [{}] * n)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(10)  # just fits
    with pytest.warns(UserWarning, match=r"it has 17 steps, .* each of 4 environments has 10.* `buffer_size` to 68 or more"):
        play(17)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        play(18)
