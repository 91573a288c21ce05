import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn, VecEnvWrapper

from sb3_clearning import GoalReplayBuffer
from tests.support.goal_envs import PointEnv, make
from tests.support.ring_invariants import check_invariants
from tests.support.small_models import small_model

RELABEL = {"next": 0.25, "final": 0.25, "future": 0.25, "random": 0.25}


class Liar(VecEnvWrapper):
    """
    Resets its environments before it reads their final observation, and writes down all true states.

    :param way: "reset": the observation after the reset; "view": the rows of the array that the reset overwrites; "lost": no
        final observation; "truthful": the final observation
    """

    def __init__(self, way: str, n_envs: int = 3, **kwargs: Any):
        super().__init__(DummyVecEnv([make(PointEnv, length=5 + i, **kwargs) for i in range(n_envs)]))
        self.way = way
        self.transitions: set[bytes] = set()
        self.ends = 0

    def reset(self) -> Any:
        self.last: Any = self.venv.reset()
        return self.last

    def step_wait(self) -> VecEnvStepReturn:
        obs, rewards, dones, infos = self.venv.step_wait()
        assert isinstance(obs, dict)
        for env in range(self.num_envs):
            if dones[env]:
                self.ends += 1
                after = infos[env].pop("terminal_observation")
                if self.way == "truthful":
                    infos[env]["terminal_observation"] = after
                elif self.way == "reset":
                    infos[env]["terminal_observation"] = {key: value[env].copy() for key, value in obs.items()}
                elif self.way == "view":
                    infos[env]["terminal_observation"] = {key: value[env] for key, value in obs.items()}
            if not dones[env] or self.way == "truthful":
                after = after if dones[env] else {key: value[env] for key, value in obs.items()}
                self.transitions.add(_name(self.last["observation"][env], after["observation"]))
        self.last = {key: value.copy() for key, value in obs.items()}
        return obs, rewards, dones, infos


def _name(state: np.ndarray, following: np.ndarray) -> bytes:
    return np.concatenate([state, following]).astype(np.float32).tobytes()


def _assert_only_true_transitions(buffer: GoalReplayBuffer, known: set[bytes]) -> None:
    stored = buffer.transitions()
    pairs = zip(stored.observations["observation"], stored.next_observations["observation"], strict=True)
    assert {_name(*pair) for pair in pairs} == known
    true_goals = {state[:8] for name in known for state in (name[12:],)}
    for batch in buffer.sample_goals(500, RELABEL, gamma=0.8, n_batches=2):
        assert {goal.tobytes() for goal in batch.observations["desired_goal"].numpy()} <= true_goals


@pytest.mark.parametrize("way", ["reset", "view", "lost"])
@pytest.mark.parametrize("extra", [False, True])
def test_a_false_final_state_is_never_a_next_state_or_a_goal(way: str, extra: bool) -> None:
    env = Liar(way, extra=extra)
    model = small_model(env, learning_starts=1000)
    with pytest.warns(UserWarning, match="compute_final_obs") as caught:
        model.learn(90)
    assert sum("compute_final_obs" in str(warning.message) for warning in caught) == 1
    assert env.ends > 10
    check_invariants(model.replay_buffer)
    _assert_only_true_transitions(model.replay_buffer, env.transitions)


def test_a_truthful_environment_keeps_its_final_states() -> None:
    env = Liar("truthful")
    model = small_model(env, learning_starts=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn(90)
    _assert_only_true_transitions(model.replay_buffer, env.transitions)


def test_false_ends_are_found_under_normalization() -> None:
    env = Liar("reset")
    model = small_model(VecNormalize(env, norm_reward=False, norm_obs_keys=["observation"]), learning_starts=1000)
    with pytest.warns(UserWarning, match="compute_final_obs"):
        model.learn(90)
    # The time within the episode: that of a first state is 0.
    stored = model.replay_buffer.transitions()
    assert stored.next_observations["observation"][:, 2].min() > 0.05


def _space() -> spaces.Dict:
    box = spaces.Box(-np.inf, np.inf, (2,))
    return spaces.Dict(observation=box, achieved_goal=box, desired_goal=box)


def _random_steps(buffer: GoalReplayBuffer, n_steps: int, lie: bool, end: float, with_first: bool) -> set[bytes]:
    """Add random steps. A lying caller gives the first observation of the next episode as the final one."""
    rng, n = np.random.default_rng(0), buffer.n_envs

    def draw() -> dict[str, np.ndarray]:
        return {key: rng.normal(size=(n, 2)).astype(np.float32) for key in buffer.obs_shape}

    obs, known = draw(), set()
    for _ in range(n_steps):
        final, done = draw(), rng.random(n) < end
        first = {key: np.where(done[:, None], value, final[key]) for key, value in draw().items()}
        given = first if lie else final
        infos = [{"TimeLimit.truncated": True}, {}] * (n // 2)
        extra = {"first_obs": first} if with_first else {}
        buffer.add(obs, given, np.zeros((n, 1), np.float32), np.zeros(n), done, infos, **extra)
        if lie:
            known |= {_name(obs["observation"][i], final["observation"][i]) for i in np.flatnonzero(~done)}
        obs = first
    return known


@pytest.mark.parametrize("with_first", [False, True])
@pytest.mark.parametrize("size", [5, 400])
def test_every_caller_is_protected_also_in_a_full_ring_with_episodes_of_one_step(size: int, with_first: bool) -> None:
    buffer = GoalReplayBuffer(4 * size, _space(), spaces.Box(-1, 1, (1,)), n_envs=4)
    with pytest.warns(UserWarning, match="compute_final_obs"):
        known = _random_steps(buffer, 300, lie=True, end=0.5, with_first=with_first)
    # Without the first observations, the newest step is compared when the next one is added.
    n_stored = (buffer.size() - (not with_first)) * 4
    stored = buffer.transitions()
    pairs = zip(stored.observations["observation"], stored.next_observations["observation"], strict=True)
    unknown = sum(_name(*pair) not in known for pair in pairs)
    assert unknown <= buffer.size() * 4 - n_stored
    check_invariants(buffer)


def test_a_ring_without_any_true_transition_is_empty() -> None:
    buffer = GoalReplayBuffer(10, _space(), spaces.Box(-1, 1, (1,)), n_envs=2)
    with pytest.warns(UserWarning, match="compute_final_obs"):
        _random_steps(buffer, 3, lie=True, end=1.0, with_first=True)
    assert buffer.size() == 0


@pytest.mark.parametrize("with_first", [False, True])
def test_a_truthful_caller_is_never_suspected(with_first: bool) -> None:
    buffer = GoalReplayBuffer(10_000, _space(), spaces.Box(-1, 1, (1,)), n_envs=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _random_steps(buffer, 1000, lie=False, end=0.05, with_first=with_first)


def test_a_continued_episode_is_not_suspected() -> None:
    buffer = GoalReplayBuffer(10, _space(), spaces.Box(-1, 1, (1,)))
    states = [{key: np.full((1, 2), i, np.float32) for key in buffer.obs_shape} for i in range(3)]
    step = (np.zeros((1, 1), np.float32), np.zeros(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        buffer.add(states[0], states[1], *step, np.array([True]), [{}])
        buffer.truncate_last_trajectory()
        buffer.add(states[1], states[2], *step, np.array([False]), [{}])
    assert buffer.transitions().next_observations["observation"][:, 0].tolist() == [1, 2]
