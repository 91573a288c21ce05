"""VecGoalFromObservation against a plain loop over the environments, on the batched maze with flat observations."""

from typing import Any

import numpy as np
import pytest
import torch as th
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn, VecEnvWrapper

from sb3_clearning.envs import BatchedPointMaze, VecGoalFromObservation
from tests.support.small_models import small_model

N = 6


class FlatMaze(VecEnvWrapper):
    """
    A simulator with flat observations, episodes of different lengths, and a memory that it writes all observations to.

    :param way: What the final observation is: "truthful", "reset", "view" or "lost"
    :param tensors: Whether it returns tensors
    """

    def __init__(self, way: str = "truthful", tensors: bool = False):
        maze = BatchedPointMaze(N)
        super().__init__(maze, maze.task.observation_space["observation"])  # type: ignore[index]
        self.way, self.tensors = way, tensors
        self.memory = np.zeros((N, 4), dtype=np.float32)
        self.true: set[bytes] = set()
        self.ages, self.rng = np.zeros(N, dtype=int), np.random.default_rng(0)

    def _given(self) -> Any:
        return th.from_numpy(self.memory) if self.tensors else self.memory

    def reset(self) -> Any:
        self.memory[:] = self.venv.reset()["observation"]  # type: ignore[call-overload]
        self.ages[:] = 0
        return self._given()

    def step_wait(self) -> VecEnvStepReturn:
        before = self.memory.copy()
        obs, rewards, _, _ = self.venv.step_wait()
        self.memory[:] = obs["observation"]  # type: ignore[call-overload]
        self.ages += 1
        dones = self.ages >= 4 + np.arange(N)
        infos: list[dict[str, Any]] = [{"kept": env} for env in range(N)]
        finals = self.memory.copy()
        for env in np.flatnonzero(dones).tolist():
            self.memory[env] = self.rng.uniform(-1, 1, 4)
            # The simulation continues from the final state: what matters here is what is handed over.
            given = {"truthful": finals[env], "reset": self.memory[env].copy(), "view": self._given()[env]}
            if self.way != "lost":
                infos[env]["terminal_observation"] = given[self.way]
        for env in range(N):
            if not dones[env] or self.way == "truthful":
                self.true.add(np.concatenate([before[env], finals[env]]).tobytes())
        self.ages[dones] = 0
        return self._given(), rewards, dones, infos


def _goals(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(-1, 1, (n, 2))


def _actions(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (N, 2)).astype(np.float32)


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("crop", [[0, 1], slice(0, 2), lambda obs: obs[..., :2]])
def test_it_is_what_a_loop_over_environments_gives(tensors: bool, crop: Any) -> None:
    flat = FlatMaze(tensors=tensors)
    env = VecGoalFromObservation(flat, crop, goal_sampler=_goals, distance_threshold=0.5)
    env.seed(0)
    last: Any = env.reset()
    successes = 0
    for step in range(40):
        obs: Any
        obs, rewards, dones, infos = env.step(_actions(step))
        for i in range(N):
            np.testing.assert_array_equal(obs["observation"][i], flat.memory[i])
            np.testing.assert_array_equal(obs["achieved_goal"][i], flat.memory[i, :2])
            assert env.observation_space.contains({key: value[i] for key, value in obs.items()}) or dones[i]
            reached = obs["achieved_goal"][i]
            if dones[i]:
                final = infos[i]["terminal_observation"]
                np.testing.assert_array_equal(final["desired_goal"], last["desired_goal"][i])
                np.testing.assert_array_equal(final["achieved_goal"], final["observation"][:2])
                assert not np.array_equal(final["observation"], obs["observation"][i])
                assert not np.array_equal(obs["desired_goal"][i], last["desired_goal"][i])
                reached = final["achieved_goal"]
                distance = np.linalg.norm(reached - last["desired_goal"][i])
                assert infos[i]["distance"] == pytest.approx(distance, abs=1e-6)
                assert infos[i]["is_success"] == (distance <= 0.5)
                assert infos[i]["kept"] == i
                successes += infos[i]["is_success"]
            else:
                np.testing.assert_array_equal(obs["desired_goal"][i], last["desired_goal"][i])
                assert set(infos[i]) == {"kept"}  # nothing is done where no episode ended
            assert rewards[i] == (0 if np.linalg.norm(reached - last["desired_goal"][i]) <= 0.5 else -1)
        assert not np.shares_memory(obs["observation"], flat.memory)
        last = obs
    assert successes > 0


def test_the_seed_determines_the_goals() -> None:
    def goals(seed: int) -> np.ndarray:
        env: Any = VecGoalFromObservation(FlatMaze(), goal_sampler=np.eye(4) * 0.5)
        env.seed(seed)
        first = env.reset()["desired_goal"]
        return np.concatenate([first, *(env.step(_actions(i))[0]["desired_goal"] for i in range(20))])

    np.testing.assert_array_equal(goals(3), goals(3))
    assert not np.array_equal(goals(3), goals(4))
    assert {tuple(goal) for goal in goals(3)} == {tuple(goal) for goal in np.eye(4, dtype=np.float32) * 0.5}


def test_goals_from_resets_are_first_states_of_other_environments() -> None:
    env: Any = VecGoalFromObservation(FlatMaze(), crop=[0, 1])
    env.seed(0)
    obs, dones = env.reset(), np.ones(N, dtype=bool)
    starts = obs["achieved_goal"].copy()
    for step in range(60):
        for i, goal in enumerate(obs["desired_goal"]):
            if dones[i]:
                sources = [j for j in range(N) if np.array_equal(starts[j], goal)]
                assert sources
                assert i not in sources
        obs, _, dones, _ = env.step(_actions(step))
        starts[dones] = obs["achieved_goal"][dones]


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("way", ["truthful", "reset", "view", "lost"])
def test_only_true_transitions_are_learned(way: str, tensors: bool, normalized: bool) -> None:
    flat = FlatMaze(way, tensors)
    env: Any = VecGoalFromObservation(flat, crop=[0, 1])
    env = VecNormalize(env, norm_reward=False) if normalized else env
    model = small_model(env, learning_starts=1000)
    if way == "truthful":
        model.learn(40 * N)
    else:
        with pytest.warns(UserWarning, match="compute_final_obs"):
            model.learn(40 * N)
    stored = model.replay_buffer.transitions()
    pairs = np.concatenate([stored.observations["observation"], stored.next_observations["observation"]], axis=1)
    if normalized and way == "truthful":  # final observations are rounded
        assert len(pairs) == len(flat.true)
    else:
        assert {pair.tobytes() for pair in pairs} == flat.true


def test_hindsight_methods_find_the_reward() -> None:
    env = VecGoalFromObservation(FlatMaze(), crop=[0, 1])
    [rewards] = env.env_method("compute_reward", np.zeros((3, 2)), np.array([[0, 0], [0, 0.04], [1, 0]]), None, indices=[0])
    assert rewards.tolist() == [0, 0, -1]
