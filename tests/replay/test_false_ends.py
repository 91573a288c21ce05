"""Final observations that a vectorized environment reads after the reset are neither next states nor goals."""

import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn, VecEnvWrapper

from sb3_clearning import CLearning, GoalReplayBuffer
from sb3_clearning.envs import BatchedPointMaze
from tests.support.goal_envs import PointEnv, make
from tests.support.ring_invariants import check_invariants
from tests.support.small_models import small_model

RELABEL = {"next": 0.25, "final": 0.25, "future": 0.25, "random": 0.25}
WARNING = "compute_final_obs"


class OneGoal(PointEnv):
    """The point with the same goal in every episode."""

    def reset(self, **kwargs: Any) -> Any:
        super().reset(**kwargs)
        self.goal = np.array([0.25, 0.5])
        return self._observation(), {}


class Grid(PointEnv):
    """The point on whole numbers, with one goal and one start: it often ends where the next episode starts."""

    def reset(self, **kwargs: Any) -> Any:
        super().reset(**kwargs)
        self.position, self.goal = np.zeros(2), np.ones(2)
        return self._observation(), {}

    def _move(self, action: np.ndarray) -> None:
        self.position = self.np_random.integers(2, size=2).astype(float)

    def _observation(self) -> Any:
        obs = super()._observation()
        obs["observation"] = np.append(self.position, 0).astype(self.dtype)
        return obs


class Liar(VecEnvWrapper):
    """
    Resets its environments before it reads their final observation, and writes down all true transitions that it hands over.

    :param way: "reset": a copy of the observation after the reset; "view": rows of the array that the reset overwrites;
        "lost": no final observation; "truthful": the final observation
    """

    def __init__(self, way: str, env_class: type[PointEnv] = PointEnv, **kwargs: Any):
        super().__init__(DummyVecEnv([make(env_class, length=5 + i, **kwargs) for i in range(3)]))
        self.way = way
        self.transitions: set[bytes] = set()
        self.ends = self.coincidences = 0

    def reset(self) -> Any:
        self.last: Any = self.venv.reset()
        return self.last

    def step_wait(self) -> VecEnvStepReturn:
        obs, rewards, dones, infos = self.venv.step_wait()
        assert isinstance(obs, dict)
        for env in range(self.num_envs):
            first = {key: value[env] for key, value in obs.items()}
            after = infos[env].pop("terminal_observation", first)
            if dones[env]:
                self.ends += 1
                self.coincidences += all(np.array_equal(after[key], first[key]) for key in first)
                if self.way != "lost":
                    copies = {key: value.copy() for key, value in first.items()}
                    infos[env]["terminal_observation"] = {"truthful": after, "reset": copies, "view": first}[self.way]
            if not dones[env] or self.way == "truthful":
                self.transitions.add(_name(self.last["observation"][env], after["observation"]))
        self.last = {key: value.copy() for key, value in obs.items()}
        return obs, rewards, dones, infos


def _name(state: np.ndarray, following: np.ndarray) -> bytes:
    return np.concatenate([state, following]).astype(np.float32).tobytes()


def _assert_exactly_the_true_transitions(buffer: GoalReplayBuffer, true: set[bytes]) -> None:
    stored = buffer.transitions()
    pairs = zip(stored.observations["observation"], stored.next_observations["observation"], strict=True)
    assert {_name(*pair) for pair in pairs} == true
    true_goals = {name[12:20] for name in true}
    for batch in buffer.sample_goals(500, RELABEL, gamma=0.8, n_batches=2):
        assert {goal.tobytes() for goal in batch.observations["desired_goal"].numpy()} <= true_goals


@pytest.mark.parametrize("way", ["reset", "view", "lost"])
@pytest.mark.parametrize("kwargs", [{}, {"extra": True}, {"env_class": OneGoal}])
def test_a_false_final_state_is_never_a_next_state_or_a_goal(way: str, kwargs: dict[str, Any]) -> None:
    env = Liar(way, **kwargs)
    model = small_model(env, learning_starts=1000)
    false = []

    def count(*_: Any) -> bool:
        """At any moment: the newest step may be sampled before the next one comes."""
        false.append(_false_pairs(model.replay_buffer, env.transitions) if model.replay_buffer.size() else 0)
        return True

    with pytest.warns(UserWarning, match=WARNING) as caught:
        model.learn(90, callback=count)
    assert false == [0] * 30
    assert sum(WARNING in str(warning.message) for warning in caught) == 1
    assert env.ends > 10
    check_invariants(model.replay_buffer)
    _assert_exactly_the_true_transitions(model.replay_buffer, env.transitions)


def _false_pairs(buffer: GoalReplayBuffer, true: set[bytes]) -> int:
    stored = buffer.transitions()
    pairs = zip(stored.observations["observation"], stored.next_observations["observation"], strict=True)
    return sum(_name(*pair) not in true for pair in pairs)


@pytest.mark.parametrize("env_class", [PointEnv, OneGoal, Grid])
def test_a_truthful_environment_keeps_its_final_states(env_class: type[PointEnv]) -> None:
    env = Liar("truthful", env_class)
    model = small_model(env, learning_starts=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn(450)
    assert (env.coincidences > 5) == (env_class is Grid)
    _assert_exactly_the_true_transitions(model.replay_buffer, env.transitions)


@pytest.mark.parametrize("way", ["view", "lost"])
def test_on_a_grid_a_view_and_a_missing_observation_are_still_false(way: str) -> None:
    env = Liar(way, Grid)
    model = small_model(env, learning_starts=1000)
    with pytest.warns(UserWarning, match=WARNING):
        model.learn(90)
    n_false = env.ends
    stored = model.replay_buffer.transitions()
    # A ring has no holes: each false transition is a copy of another one, in an episode of one step.
    assert len(stored.actions) == 90
    assert len(np.unique(stored.actions, axis=0)) == 90 - n_false


def test_false_ends_are_found_under_normalization() -> None:
    env = Liar("reset")
    model = small_model(VecNormalize(env, norm_reward=False, norm_obs_keys=["observation"]), learning_starts=1000)
    with pytest.warns(UserWarning, match=WARNING):
        model.learn(90)
    # The third number is the time within the episode, 0 in a first state.
    stored = model.replay_buffer.transitions()
    assert stored.next_observations["observation"][:, 2].min() > 0.05


def test_a_truthful_environment_is_not_suspected_under_normalization() -> None:
    model = small_model(VecNormalize(Liar("truthful", Grid), norm_reward=False), learning_starts=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn(90)


def test_a_truthful_simulator_is_never_suspected_in_a_million_transitions() -> None:
    env = BatchedPointMaze(2048)
    model = CLearning("MultiInputPolicy", env, buffer_size=2048 * 310, learning_starts=10**7, seed=0, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn(2048 * 605)


def _space() -> spaces.Dict:
    box = spaces.Box(-np.inf, np.inf, (2,))
    return spaces.Dict(observation=box, achieved_goal=box, desired_goal=box)


def _random_steps(buffer: GoalReplayBuffer, n_steps: int, lie: bool, end: float, whole: bool = False) -> set[bytes]:
    """Add random steps, as a loop over a vectorized environment does. :return: The true transitions of a liar"""
    rng, n = np.random.default_rng(0), buffer.n_envs

    def draw() -> dict[str, np.ndarray]:
        drawn = {key: rng.normal(size=(n, 2)).astype(np.float32) for key in buffer.obs_shape}
        return {key: np.sign(value) for key, value in drawn.items()} if whole else drawn

    obs, goals, known = draw(), draw()["desired_goal"], set()
    for _ in range(n_steps):
        final, done = draw(), rng.random(n) < end
        obs["desired_goal"] = final["desired_goal"] = goals
        first = {key: np.where(done[:, None], value, final[key]) for key, value in draw().items()}
        given = first if lie else final
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": True}, {}] * (n // 2)
        infos = [{**info, "terminal_observation": {}} if ended else info for info, ended in zip(infos, done, strict=True)]
        buffer.add(obs, given, rng.uniform(-1, 1, (n, 1)), np.zeros(n), done, infos)
        if lie:
            known |= {_name(obs["observation"][i], final["observation"][i]) for i in np.flatnonzero(~done)}
        obs, goals = first, first["desired_goal"]
    return known


@pytest.mark.parametrize("size", [2, 5, 400])
def test_every_caller_is_protected_also_in_a_full_ring_with_episodes_of_one_step(size: int) -> None:
    buffer = GoalReplayBuffer(4 * size, _space(), spaces.Box(-1, 1, (1,)), n_envs=4)
    with pytest.warns(UserWarning, match=WARNING):
        known = _random_steps(buffer, 300, lie=True, end=0.5)
    # For other callers, the newest step is compared when the next one is added.
    assert _false_pairs(buffer, known) <= buffer.n_envs
    check_invariants(buffer)


@pytest.mark.parametrize("whole", [False, True])
def test_a_truthful_caller_is_never_suspected(whole: bool) -> None:
    buffer = GoalReplayBuffer(100_000, _space(), spaces.Box(-1, 1, (1,)), n_envs=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _random_steps(buffer, 300, lie=False, end=0.1, whole=whole)


def test_a_ring_without_any_true_transition_is_empty() -> None:
    buffer = GoalReplayBuffer(10, _space(), spaces.Box(-1, 1, (1,)), n_envs=2)
    state = {key: np.full((2, 2), 0.5, np.float32) for key in buffer.obs_shape}
    with pytest.warns(UserWarning, match=WARNING):
        buffer.add(state, state, np.zeros((2, 1)), np.zeros(2), np.ones(2, bool), [{"terminal_observation": None}] * 2)
    assert buffer.size() == 0


def test_a_subclass_with_its_own_add_keeps_working() -> None:
    class Counting(GoalReplayBuffer):
        steps = 0

        def add(self, obs, next_obs, action, reward, done, infos) -> None:  # type: ignore[no-untyped-def]
            self.steps += 1
            super().add(obs, next_obs, action, reward, done, infos)

    env = Liar("reset")
    model = small_model(env, learning_starts=1000, replay_buffer_class=Counting)
    with pytest.warns(UserWarning, match=WARNING):
        model.learn(90)
    assert isinstance(model.replay_buffer, Counting)
    assert model.replay_buffer.steps == 30
    _assert_exactly_the_true_transitions(model.replay_buffer, env.transitions)
