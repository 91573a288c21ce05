"""
The n-step recursion against linear algebra: episodes of a random MDP are stored, the buffer samples them, and the labels and
weights that CLearning gives to the samples must have the fixed point of

    p+(g | s, a) = sum_{k=1..m} (1 - gamma) gamma^(k-1) p(s_{t+k} = g) + gamma^m E[p+(g | s_{t+m}, a')].
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces

from sb3_clearning import CLearning, GoalTD3
from sb3_clearning.replay.batch import GoalBatch
from sb3_clearning.replay.goal_buffer import GoalReplayBuffer
from tests.support.goal_envs import PointEnv
from tests.support.small_models import same, small_model, weights

N_STATES, N_ACTIONS, GAMMA = 4, 2, 0.9
FLOAT = spaces.Box(-np.inf, np.inf, (1,))


class TabularData:
    """Episodes of a random policy in a random MDP, in a goal buffer; a state is its number, an action -1 or 1."""

    def __init__(self, episode_length: int, seed: int = 0, absorbing_state: int | None = None):
        generator = np.random.default_rng(seed)
        self.transitions = generator.dirichlet(np.full(N_STATES, 0.6), size=(N_STATES, N_ACTIONS))
        first = generator.uniform(0.2, 0.8, size=N_STATES)  # no pair of a state and an action is rare
        self.behavior = np.stack([first, 1 - first], axis=1)
        self.evaluated = self.behavior[:, ::-1]
        n_envs, steps = 400, 500
        space = spaces.Dict(observation=FLOAT, achieved_goal=FLOAT, desired_goal=FLOAT)
        self.buffer = GoalReplayBuffer(n_envs * steps, space, spaces.Box(-1, 1, (1,)), "cpu", n_envs)
        states, ages = generator.integers(N_STATES, size=n_envs), generator.integers(episode_length, size=n_envs)
        for _ in range(steps):
            actions = (generator.random(n_envs) < self.behavior[states, 1]).astype(int)
            cumulative = self.transitions[states, actions].cumsum(axis=1)
            reached = (generator.random((n_envs, 1)) > cumulative).sum(axis=1)
            ages += 1
            terminated = reached == absorbing_state
            truncated = ~terminated & (ages >= episode_length)
            infos = [{"TimeLimit.truncated": bool(cut)} for cut in truncated]
            obs, next_obs = self._observe(states), self._observe(reached)
            self.buffer.add(obs, next_obs, 2.0 * actions[:, None] - 1, np.zeros(n_envs), terminated | truncated, infos)
            starts = generator.integers(N_STATES, size=n_envs)
            states = np.where(terminated | truncated, starts, reached)
            ages[terminated | truncated] = 0

    @staticmethod
    def _observe(states: np.ndarray) -> dict[str, np.ndarray]:
        return dict.fromkeys(("observation", "achieved_goal", "desired_goal"), states[:, None].astype(np.float32))

    def steps_of_behavior(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """:return: sum_{k=1..n} (1-gamma) gamma^(k-1) p(s_{t+k} | s, a), and p(s_{t+n} | s, a)"""
        chain = np.einsum("sa,sat->st", self.behavior, self.transitions)
        total, reached = np.zeros_like(self.transitions), self.transitions
        for k in range(n):
            reached = reached if k == 0 else reached @ chain
            total += (1 - GAMMA) * GAMMA**k * reached
        return total, reached


@cache
def tabular_data(episode_length: int, absorbing_state: int | None = None) -> TabularData:
    """:return: The data of these arguments, made once: no test changes it"""
    return TabularData(episode_length, absorbing_state=absorbing_state)


def fixed_point(model: CLearning, buffer: GoalReplayBuffer, policy: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """:return: The p+(g | s, a) at which the mean gradient of the classification loss is zero, ``(s, a, g)``"""
    np.random.seed(0)
    entering = np.zeros((N_STATES, N_ACTIONS, N_STATES))
    leaving = np.zeros((N_STATES, N_ACTIONS, N_STATES))
    seen = {"positive": np.zeros((N_STATES, N_ACTIONS)), "random": np.zeros((N_STATES, N_ACTIONS))}
    # With w = 1, label times weight of a random goal is its factor on w.
    monkeypatch.setattr(model._updater, "importance_weights", lambda batch, part: th.ones(part.stop - part.start))
    absorbing = model.terminal == "absorbing"
    for batch in buffer.sample_goals(
        200_000, model.relabelling(), model.gamma, absorbing, n_batches=2, n_steps=model.n_steps
    ):  # fmt: skip
        labels, weights_, _ = (tensor.double().numpy() for tensor in model._updater.labels_and_weights(batch))
        states, goals = (batch.observations[key][:, 0].long().numpy() for key in ("observation", "desired_goal"))
        actions, ahead = (batch.actions[:, 0] > 0).long().numpy(), batch.next_observations["observation"][:, 0].long().numpy()
        random = model._updater.random_part(batch)
        positive, half = slice(0, random.start), len(batch) // 2
        np.add.at(entering, (states[positive], actions[positive], goals[positive]), weights_[positive] * half)
        np.add.at(seen["positive"], (states[positive], actions[positive]), 1)
        np.add.at(leaving, (states[random], actions[random], ahead[random]), (labels * weights_)[random] * half)
        np.add.at(seen["random"], (states[random], actions[random]), 1)
    entering /= seen["positive"][..., None]
    leaving /= seen["random"][..., None]
    n_pairs = N_STATES * N_ACTIONS
    chain = np.einsum("sat,tb->satb", leaving, policy).reshape(n_pairs, n_pairs)
    solution = np.linalg.solve(np.eye(n_pairs) - chain, entering.reshape(n_pairs, N_STATES))
    return solution.reshape(N_STATES, N_ACTIONS, N_STATES)


def analytic(transitions: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """:return: p+(g | s, a) = (1 - gamma) T (I - gamma T_pi)^-1"""
    chain = np.einsum("sa,sat->st", policy, transitions)
    return (1 - GAMMA) * transitions @ np.linalg.inv(np.eye(N_STATES) - GAMMA * chain)


def model_of(n_steps: float, **arguments: Any) -> CLearning:
    return small_model(PointEnv(), gamma=GAMMA, n_steps=n_steps, **{"lambda_": 1.0, **arguments})


@pytest.mark.parametrize("n_steps", [1, 3, 10, np.inf])
def test_on_policy_the_fixed_point_is_the_future_and_the_end_of_a_record_is_bootstrapped(
    n_steps: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tabular_data(episode_length=6)
    expected = analytic(data.transitions, data.behavior)
    found = fixed_point(model_of(n_steps), data.buffer, data.behavior, monkeypatch)
    assert np.abs(found - expected).max() < 0.012
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=5e-3)
    # Monte Carlo sees no further than the six steps.
    monte_carlo = fixed_point(model_of(1, lambda_=0.0), data.buffer, data.behavior, monkeypatch)
    assert np.abs(monte_carlo - expected).max() > 0.04


@pytest.mark.parametrize("n_steps", [1, 3, 10])
def test_off_policy_the_first_n_actions_are_the_datas(n_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tabular_data(episode_length=10**6)
    found = fixed_point(model_of(n_steps), data.buffer, data.evaluated, monkeypatch)
    entering, reached = data.steps_of_behavior(n_steps)
    n_pairs = N_STATES * N_ACTIONS
    chain = GAMMA**n_steps * np.einsum("sat,tb->satb", reached, data.evaluated).reshape(n_pairs, n_pairs)
    expected = np.linalg.solve(np.eye(n_pairs) - chain, entering.reshape(n_pairs, N_STATES)).reshape(found.shape)
    assert np.abs(found - expected).max() < 0.012
    unbiased = analytic(data.transitions, data.evaluated)
    assert (np.abs(expected - unbiased).max() < 1e-9) == (n_steps == 1)
    assert n_steps == 1 or np.abs(expected - unbiased).max() > 0.02


@pytest.mark.parametrize("lambda_", [1.0, 0.6])
@pytest.mark.parametrize("n_steps", [1, 3, np.inf])
def test_an_absorbing_state_keeps_the_rest_of_the_future(
    n_steps: float, lambda_: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tabular_data(episode_length=10**6, absorbing_state=2)
    found = fixed_point(
        model_of(n_steps, lambda_=lambda_, terminal="absorbing"), data.buffer, data.behavior, monkeypatch
    )  # fmt: skip
    stays = data.transitions.copy()
    stays[2] = np.eye(N_STATES)[2]
    others = [0, 1, 3]  # no action was taken in the absorbing state
    assert np.abs(found - analytic(stays, data.behavior))[others].max() < 0.012


@pytest.mark.parametrize("lambda_", [1.0, 0.6])
def test_the_mixture_is_one_of_n_step_td_and_monte_carlo(lambda_: float, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tabular_data(episode_length=200)
    found = fixed_point(model_of(5, lambda_=lambda_), data.buffer, data.behavior, monkeypatch)
    assert np.abs(found - analytic(data.transitions, data.behavior)).max() < 0.012


# -- Q-learning's returns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_steps", [1, 3, np.inf])
def test_returns_are_those_of_a_loop_over_the_window(n_steps: float) -> None:
    data = tabular_data(episode_length=7)
    np.random.seed(1)
    buffer = data.buffer
    (batch,) = buffer.sample_goals(
        400, {"next": 0.4, "random": 0.3, "future": 0.3}, GAMMA, n_steps=n_steps, returns=True
    )  # fmt: skip
    np.random.seed(1)
    index = buffer._draw((1, 400))[0]
    last = buffer.episode_end.reshape(buffer.buffer_size, buffer.n_envs)
    states = buffer.observations["observation"][..., 0]
    kept = buffer.next_slot.reshape(last.shape)
    hits = 0
    for i, place in enumerate(index):
        position, env = divmod(int(place), buffer.n_envs)
        end = last[position, env] if last[position, env] >= 0 else (buffer.pos - 1) % buffer.buffer_size
        goal, expected = float(batch.observations["desired_goal"][i, 0]), 0.0
        for k in range(1, int(min(n_steps, end - position + 1)) + 1):
            at = position + k - 1
            reached = buffer.slot_rows[kept[at, env], 0] if kept[at, env] >= 0 else states[at + 1, env]
            if reached == goal:
                expected, hits = GAMMA ** (k - 1), hits + 1
                break
        assert float(batch.returns[i]) == pytest.approx(expected, rel=1e-6)
    assert 100 < hits < 400


def test_returns_that_were_not_asked_for_are_an_error() -> None:
    (batch,) = tabular_data(episode_length=7).buffer.sample_goals(8, {"next": 1.0}, n_steps=3)
    with pytest.raises(ValueError, match="pass `returns=True`"):
        _ = batch.returns


@pytest.mark.parametrize("n_steps", [1, 4])
def test_q_learning_targets_are_the_n_step_ones(n_steps: int) -> None:
    model = GoalTD3("MultiInputPolicy", PointEnv(), n_steps=n_steps, learning_starts=50, target_policy_noise=0.0, seed=0)
    model.learn(60)
    batch: GoalBatch = model.replay_buffer.sample_goals(
        64, {"next": 0.5, "random": 0.5}, model.gamma, n_steps=n_steps, returns=True
    )[0]
    with th.no_grad():
        values = model.critic_target(batch.next_observations, model.actor_target(batch.next_observations)).amin(dim=0)
    assert (batch.returns[:32] > 0).all()
    for i, target in enumerate(model._updater.targets(batch).tolist()):
        discount = model.gamma if batch.discounts is None else float(batch.discounts[i])
        expected = float(batch.returns[i]) or discount * float(values[i])
        assert target == pytest.approx(expected, abs=1e-5)


# -- the algorithms -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [CLearning, GoalTD3])
def test_saved_and_loaded_it_goes_on_with_the_same_n(algorithm: type[CLearning] | type[GoalTD3], tmp_path: Any) -> None:
    model = algorithm("MultiInputPolicy", PointEnv(), n_steps=float("inf"), learning_starts=20, batch_size=16, seed=0)
    model.learn(40)
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model", env=PointEnv())
    assert loaded.n_steps == np.inf
    model.export(tmp_path / "model.safetensors")
    exported = algorithm.from_export(tmp_path / "model.safetensors", env=PointEnv())
    assert exported.n_steps == np.inf
    assert same(weights(model), weights(exported))


def test_it_is_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    small_model(PointEnv(), n_steps=5, lambda_=1.0)
    assert not [warning for warning in recwarn if "n_steps" in str(warning.message)]
