"""A buffer beside a plain list of what it ought to hold: every value carries (env, episode, t)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch as th
from gymnasium import spaces

from sb3_clearning.replay.batch import GoalBatch
from sb3_clearning.replay.goal_buffer import GoalReplayBuffer

ACTION_SPACE = spaces.Box(-1, 1, (3,))


def floats(*shape: int, dtype: type = np.float32) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, shape, dtype=dtype)


def image(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, dtype=np.uint8)


LAYOUTS = {
    "floats": spaces.Dict(observation=floats(3, dtype=np.float64), achieved_goal=floats(4), desired_goal=floats(4)),
    "camera": spaces.Dict(achieved_goal=floats(2, 2), camera=image(4, 4, 3), desired_goal=floats(2, 2), observation=floats(3)),
    "image goals": spaces.Dict(observation=floats(3), achieved_goal=image(2, 2, 1), desired_goal=image(2, 2, 1)),
    "images only": spaces.Dict(observation=image(3, 1, 1), achieved_goal=image(2, 2, 1), desired_goal=image(2, 2, 1)),
}


class State(NamedTuple):
    """Where a state stands: in which env, in which episode of it, after how many steps."""

    env: int
    episode: int
    t: int

    def later(self, steps: int = 1) -> "State":
        return State(self.env, self.episode, self.t + steps)


class Goal(NamedTuple):
    """An achieved goal is that of a state; a commanded one is that of an episode, with a ``t`` that no state has."""

    env: int
    episode: int
    t: int
    commanded: int


COMMANDED_T = 255


def achieved(state: State) -> Goal:
    return Goal(*state, 0)


def commanded(state: State) -> Goal:
    return Goal(state.env, state.episode, COMMANDED_T, 9)


def encode(space: spaces.Dict, states: list[State]) -> dict[str, np.ndarray]:
    values: dict[str, Sequence[tuple[int, ...]]] = {
        "observation": states,
        "achieved_goal": [achieved(state) for state in states],
        "desired_goal": [commanded(state) for state in states],
        "camera": [tuple(state) * 16 for state in states],
    }
    return {
        key: np.array(values[key], dtype=box.dtype).reshape(len(states), *(box.shape or ()))
        for key, box in space.spaces.items()
    }


def numbers(tensor: th.Tensor) -> list[tuple[int, ...]]:
    return list(map(tuple, tensor.reshape(len(tensor), -1).long().tolist()))


def states_of(observations: dict[str, th.Tensor]) -> list[State]:
    """:return: The states of a batch, whose keys must agree"""
    states = [State(*row) for row in numbers(observations["observation"])]
    assert numbers(observations["achieved_goal"]) == [achieved(state) for state in states]
    if "camera" in observations:
        assert numbers(observations["camera"]) == [tuple(state) * 16 for state in states]
    return states


class Trajectories:
    """
    Steps environments and fills a buffer, and keeps beside it what it ought to hold, in plain lists.

    :param space: The observation space
    :param buffer_size: That of the buffer
    :param n_envs: Number of environments
    :param kwargs: More arguments of the buffer
    """

    def __init__(self, space: spaces.Dict, buffer_size: int, n_envs: int = 1, **kwargs: Any):
        self.space, self.n_envs = space, n_envs
        self.buffer = GoalReplayBuffer(buffer_size, space, ACTION_SPACE, n_envs=n_envs, **{"device": "cpu", **kwargs})
        self.capacity = max(buffer_size // n_envs, 1)
        self.states = [State(env, 0, 0) for env in range(n_envs)]
        self.cuts = [0] * n_envs  # a trajectory is what lies between two cuts
        self.transitions: list[list[tuple[State, tuple[int, int]]]] = [[] for _ in range(n_envs)]
        self.final: dict[tuple[int, int], State] = {}
        self.terminated: set[tuple[int, int]] = set()

    def step(self, events: list[str]) -> None:
        """:param events: For each env "go", "terminate", "truncate", or "interrupt" (reset after the step, without done)"""
        next_states = [state.later() for state in self.states]
        self.buffer.add(
            encode(self.space, self.states),
            encode(self.space, next_states),
            np.array(self.states) / 100,
            np.full(self.n_envs, np.nan),
            np.array([event in ("terminate", "truncate") for event in events]),
            [{"TimeLimit.truncated": True} if event == "truncate" else {} for event in events],
        )
        for env, event in enumerate(events):
            trajectory = (env, self.cuts[env])
            self.transitions[env].append((self.states[env], trajectory))
            self.final[trajectory] = next_states[env]
            if event == "terminate":
                self.terminated.add(trajectory)
            self.states[env] = next_states[env]
            if event != "go":
                self.reset(env)

    def reset(self, env: int) -> None:
        self.cuts[env] += 1
        self.states[env] = State(env, self.states[env].episode + 1, 0)

    def truncate(self, reset: bool) -> None:
        """:param reset: Whether the environments are reset, or continue from the same states in a new trajectory"""
        self.buffer.truncate_last_trajectory()
        for env in range(self.n_envs):
            if reset:
                self.reset(env)
            else:
                self.cuts[env] += 1

    def stored(self) -> dict[State, tuple[int, int]]:
        """:return: The states of the transitions that the buffer must hold, each with its trajectory"""
        return dict(item for transitions in self.transitions for item in transitions[-self.capacity :])

    def check(self, batch: GoalBatch, n_steps: float = 1, gamma: float = 0.99) -> None:
        """Compare every row of a batch with the lists."""
        stored = self.stored()
        all_reached = {achieved(state.later()) for state in stored}
        all_commanded = {commanded(state) for state in stored}
        states, next_states = states_of(batch.observations), states_of(batch.next_observations)
        goals = [Goal(*row) for row in numbers(batch.observations["desired_goal"])]
        assert numbers(batch.next_observations["desired_goal"]) == goals
        assert np.abs(batch.actions.numpy() - np.array(states) / 100).max() < 1e-5
        kinds = [kind for i in range(len(states)) for kind, part in batch.kinds.items() if part.start <= i < part.stop]
        assert len(kinds) == len(states)
        for i, (state, next_state, done) in enumerate(zip(states, next_states, batch.dones.tolist(), strict=True)):
            trajectory = stored[state]
            window = int(min(n_steps, self.final[trajectory].t - state.t))
            assert next_state == state.later(window)
            assert batch.discounts is None or float(batch.discounts[i]) == np.float32(gamma**window)
            assert done == (trajectory in self.terminated and next_state == self.final[trajectory])
            kind = kinds[i]
            if kind in ("next", "future"):
                assert goals[i] == achieved(State(state.env, state.episode, goals[i].t))
                assert state.t < goals[i].t <= (next_state if kind == "next" else self.final[trajectory]).t
            elif kind in ("random", "commanded"):
                assert goals[i] in (all_reached if kind == "random" else all_commanded)
            elif kind == "original":
                assert goals[i] == commanded(state)
            else:
                assert goals[i] == achieved(self.final[trajectory])

    def sample(self, batch_size: int, kind: str, n_batches: int = 1, **kwargs: Any) -> list[GoalBatch]:
        return self.buffer.sample_goals(batch_size, {kind: 1.0}, n_batches=n_batches, **kwargs)
