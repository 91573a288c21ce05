"""
The goal buffer against a plain list of trajectories. Every observation, goal and action carries (env, episode, t), so that a
sample says where it came from.
"""

import pickle
import subprocess
import sys
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from stable_baselines3.common import buffers as sb3_buffers
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_clearning import CLearning
from sb3_clearning.replay.geometric import truncated_geometric
from sb3_clearning.replay.goal_buffer import GOAL_KINDS, GoalReplayBuffer, goal_slices
from tests.support.ring_invariants import check_invariants
from tests.support.trajectories import (
    ACTION_SPACE,
    LAYOUTS,
    Goal,
    State,
    Trajectories,
    achieved,
    encode,
    floats,
    image,
    numbers,
    states_of,
)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    np.random.seed(0)


# -- against the list of trajectories ---------------------------------------------------------------------------------------

ALL_KINDS = dict.fromkeys(GOAL_KINDS, 1 / len(GOAL_KINDS))
EVENTS = st.sampled_from(["go"] * 5 + ["terminate", "truncate", "interrupt"])
BETWEEN = st.sampled_from(["nothing"] * 8 + ["truncate", "truncate and reset", "pickle"])


@settings(max_examples=120, deadline=None)
@given(
    data=st.data(),
    layout=st.sampled_from(list(LAYOUTS)),
    n_envs=st.integers(1, 3),
    buffer_size=st.integers(1, 24),
    length=st.integers(1, 45),
    n_steps=st.sampled_from([1, 2, 3, 10, float("inf")]),
    absorbing=st.booleans(),
    gamma=st.sampled_from([0.0, 0.7, 0.99, 1.0]),
    seed=st.integers(0, 1000),
)
def test_samples_are_those_of_the_trajectories_and_all_of_them(
    data: st.DataObject,
    layout: str,
    n_envs: int,
    buffer_size: int,
    length: int,
    n_steps: float,
    absorbing: bool,
    gamma: float,
    seed: int,
) -> None:
    np.random.seed(seed)
    world = Trajectories(LAYOUTS[layout], buffer_size, n_envs)
    program = data.draw(
        st.lists(
            st.tuples(BETWEEN, st.lists(EVENTS, min_size=n_envs, max_size=n_envs)), min_size=length, max_size=length
        )
    )  # fmt: skip
    for between, events in program:
        if between.startswith("truncate"):
            world.truncate(reset=between.endswith("reset"))
        elif between == "pickle":
            world.buffer = pickle.loads(pickle.dumps(world.buffer))
        world.step(events)
        # From the first step on, and while episodes are in progress
        for batch in world.buffer.sample_goals(
            12, ALL_KINDS, gamma=gamma, absorbing=absorbing, n_batches=2, n_steps=n_steps, returns=True
        ):
            world.check(batch, n_steps, gamma)

    stored = world.stored()
    assert world.buffer.size() * n_envs == len(stored)
    (batch,) = world.sample(60 * len(stored), "random", n_steps=n_steps, gamma=gamma)
    world.check(batch, n_steps, gamma)
    assert set(states_of(batch.observations)) == set(stored)
    assert {Goal(*row) for row in numbers(batch.observations["desired_goal"])} == {achieved(s.later()) for s in stored}


@pytest.mark.parametrize("kind", GOAL_KINDS)
@pytest.mark.parametrize("batch_size", [1, 2, 7])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sampling_works_after_the_first_step(layout: str, batch_size: int, kind: str) -> None:
    world = Trajectories(LAYOUTS[layout], 100, 2)
    world.step(["go", "terminate"])
    for batch in world.sample(batch_size, kind, n_batches=3):
        assert len(batch.actions) == batch_size
        world.check(batch)


def test_an_empty_buffer_says_so() -> None:
    with pytest.raises(ValueError, match="replay buffer is empty: collect or load"):
        Trajectories(LAYOUTS["floats"], 10).buffer.sample(1)


def test_reset_forgets_everything() -> None:
    world = Trajectories(LAYOUTS["camera"], 10, 2)
    for _ in range(7):
        world.step(["go", "terminate"])
    again = Trajectories(LAYOUTS["camera"], 10, 2)
    again.buffer = world.buffer
    again.buffer.reset()
    assert again.buffer.size() == 0
    again.step(["go", "go"])
    again.check(again.sample(50, "future")[0])


def test_an_episode_longer_than_the_ring_keeps_its_newest_states() -> None:
    world = Trajectories(LAYOUTS["floats"], 5)
    for event in ["go"] * 17 + ["terminate"]:
        world.step([event])
    (batch,) = world.sample(500, "future", gamma=1.0)
    world.check(batch)
    assert {state.t for state in states_of(batch.observations)} == {13, 14, 15, 16, 17}
    assert {goal[2] for goal in numbers(batch.observations["desired_goal"])} == {14, 15, 16, 17, 18}


def test_sample_gives_the_commanded_goals() -> None:
    world = Trajectories(LAYOUTS["floats"], 20, 2)
    for _ in range(8):
        world.step(["go", "truncate"])
    batch = world.buffer.sample(64)
    assert batch.kinds == {"original": slice(0, 64)}
    world.check(batch)


def test_stored_observations_and_actions_can_be_read() -> None:
    world = Trajectories(LAYOUTS["camera"], 12, 2)
    for _ in range(4):
        world.step(["go", "go"])
    for key, array in world.buffer.observations.items():
        assert array.shape == (6, 2, *LAYOUTS["camera"][key].shape)  # type: ignore[misc]
    assert world.buffer.observations["observation"][:4, 1].tolist() == [[1, 0, t] for t in range(4)]
    np.testing.assert_allclose(world.buffer.actions[:4, 1], [[0.01, 0, t / 100] for t in range(4)], atol=1e-7)


def test_samples_are_float32_or_the_images_own_type_and_one_matrix_where_all_keys_are_floats() -> None:
    space = LAYOUTS["floats"]
    world = Trajectories(space, 10)
    assert space["observation"].dtype == np.float64
    world.step(["go"])
    (batch,) = world.sample(4, "next")
    assert batch.inputs is not None
    assert batch.next_inputs is not None
    keys = list(space.spaces)
    th.testing.assert_close(batch.inputs, th.cat([*(batch.observations[key] for key in keys), batch.actions], dim=1))
    th.testing.assert_close(batch.next_inputs, th.cat([batch.next_observations[key] for key in keys], dim=1))
    tensors = [*batch.observations.values(), *batch.next_observations.values(), batch.actions, batch.dones, batch.inputs]
    assert {tensor.dtype for tensor in tensors} == {th.float32}

    world = Trajectories(LAYOUTS["camera"], 10)
    world.step(["go"])
    (batch,) = world.sample(4, "next")
    assert batch.observations["camera"].dtype == th.uint8
    assert batch.observations["camera"].shape == (4, 4, 4, 3)
    assert batch.observations["achieved_goal"].shape == (4, 2, 2)
    assert batch.inputs is None


def test_float64_observations_that_float32_rounds_do_not_interrupt_an_episode() -> None:
    space = spaces.Dict(observation=floats(1, dtype=np.float64), achieved_goal=floats(1), desired_goal=floats(1))
    buffer = GoalReplayBuffer(10, space, spaces.Box(-1, 1, (1,)), device="cpu")
    for t in range(5):
        obs, next_obs = ({key: np.array([[(t + i) / 3]]) for key in space.spaces} for i in (0, 1))
        buffer.add(obs, next_obs, np.zeros((1, 1)), np.zeros(1), np.array([False]), [{}])
    (batch,) = buffer.sample_goals(20, {"final": 1.0})
    assert batch.observations["desired_goal"].flatten().tolist() == pytest.approx([5 / 3] * 20)


# -- the laws of the goals --------------------------------------------------------------------------------------------------


def _law(horizon: int, gamma: float, absorbing: bool = False) -> np.ndarray:
    """:return: The probabilities of the offsets 1, ..., horizon, by a plain sum"""
    weights = np.array([gamma**delta for delta in range(horizon)])
    if not absorbing:
        return weights / weights.sum()
    probabilities = (1 - gamma) * weights
    probabilities[-1] = 1 - probabilities[:-1].sum()
    return probabilities


def _assert_follows(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """A chi-square test; offsets that are too rare for it are counted together."""
    assert (counts[probabilities == 0] == 0).all()
    order = np.argsort(-probabilities)
    counts, expected = counts[order], probabilities[order] * counts.sum()
    kept = max(int((expected >= 10).sum()), 1)
    if expected[kept:].sum() >= 10:
        counts = np.append(counts[:kept], counts[kept:].sum())
        expected = np.append(expected[:kept], expected[kept:].sum())
    else:
        counts = np.append(counts[: kept - 1], counts[kept - 1 :].sum())
        expected = np.append(expected[: kept - 1], expected[kept - 1 :].sum())
    if len(counts) > 1:
        assert stats.chisquare(counts, expected).pvalue > 1e-4


GAMMAS = [0.0, 0.3, 0.9, 0.99, 1 - 1e-9, 1.0]


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("horizon", [1, 2, 9, 200])
def test_truncated_geometric_follows_its_law(horizon: int, gamma: float) -> None:
    offsets = truncated_geometric(np.full(50_000, horizon), gamma, np.random.random_sample(50_000))
    assert offsets.min() >= 1
    _assert_follows(np.bincount(offsets, minlength=horizon + 1)[1:], _law(horizon, gamma))


@pytest.mark.parametrize("gamma", GAMMAS)
def test_truncated_geometric_stays_within_its_horizon_at_the_ends_of_the_uniform(gamma: float) -> None:
    horizon = np.array([1, 2, 1000, 10**6, 2**31 - 1])
    assert truncated_geometric(horizon, gamma, np.zeros(5)).tolist() == [1] * 5
    largest = truncated_geometric(horizon, gamma, np.full(5, np.nextafter(1, 0)))
    assert (largest >= 1).all()
    assert (largest <= horizon).all()


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("absorbing", [False, True])
@pytest.mark.parametrize(("kind", "n_steps"), [("future", 1), ("future", 3), ("next", 3), ("next", 7), ("next", np.inf)])
def test_later_goals_follow_the_truncated_geometric_law(kind: str, n_steps: float, gamma: float, absorbing: bool) -> None:
    world = Trajectories(LAYOUTS["floats"], 30)
    # A start that is overwritten, a terminated episode, a truncated one over the ring's seam, an interrupted one, an open one
    for length, end in ((11, "truncate"), (10, "terminate"), (8, "truncate"), (4, "interrupt"), (6, "go")):
        for event in ["go"] * (length - 1) + [end]:
            world.step([event])
    counts: dict[State, Counter[int]] = {state: Counter() for state in world.stored()}
    assert len({trajectory for trajectory in world.stored().values()}) == 5
    for batch in world.sample(2000, kind, n_batches=40, gamma=gamma, absorbing=absorbing, n_steps=n_steps):
        for state, goal in zip(states_of(batch.observations), numbers(batch.observations["desired_goal"]), strict=True):
            counts[state][goal[2] - state.t] += 1
    for state, trajectory in world.stored().items():
        left = world.final[trajectory].t - state.t
        horizon = left if kind == "future" else int(min(n_steps, left))
        observed = np.array([counts[state][offset] for offset in range(1, horizon + 1)])
        assert observed.sum() == counts[state].total()
        _assert_follows(observed, _law(horizon, gamma, absorbing and horizon == left and trajectory in world.terminated))


def test_transitions_are_drawn_uniformly() -> None:
    world = Trajectories(LAYOUTS["floats"], 21, 3)
    for step in range(12):
        world.step(["go", "terminate", "truncate" if step % 4 == 3 else "go"])
    (batch,) = world.sample(40_000, "next")
    counts = Counter(states_of(batch.observations))
    assert stats.chisquare([counts[state] for state in world.stored()]).pvalue > 1e-4


@pytest.mark.parametrize(
    ("batch_size", "relabel"),
    [
        (1, {"random": 1.0}),
        (2, {"random": 1.0}),
        (2, {"next": 0.5, "random": 0.5}),
        (3, {"random": 1.0}),
        (5, {"next": 0.3, "future": 0.2, "random": 0.5}),
        (256, {"next": 0.5, "random": 0.5}),
        (255, {"future": 0.5, "random": 0.25, "commanded": 0.25}),
    ],
)
@pytest.mark.parametrize("n_steps", [1, 3])
def test_random_goals_are_uniform_over_next_states_and_independent_of_their_transition(
    batch_size: int, relabel: dict[str, float], n_steps: int
) -> None:
    world = Trajectories(LAYOUTS["floats"], 10, 2)
    for step in range(7):
        world.step(["terminate" if step % 3 == 2 else "go", "go"])
    rank = {state: i for i, state in enumerate(world.stored())}
    part = goal_slices(relabel, batch_size)["random"]
    # Two rows may have each other's next states as goals: of such a pair only one is counted
    rows = slice(part.start, part.start + 1) if relabel == {"random": 1.0} else part
    table = np.zeros((10, 10))
    n_batches = int(np.ceil(8_000 / (rows.stop - rows.start)))
    for batch in world.buffer.sample_goals(batch_size, relabel, n_batches=n_batches, n_steps=n_steps):
        observations = batch.observations["observation"][rows]
        for state, goal in zip(numbers(observations), numbers(batch.observations["desired_goal"][rows]), strict=True):
            table[rank[State(*state)], rank[State(*goal[:3]).later(-1)]] += 1
    # One test of both: every pair of a transition and another's next state is equally probable
    assert stats.chisquare(table.reshape(-1)).pvalue > 1e-4


@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_commanded_goals_are_those_of_uniform_transitions_whatever_the_own_one(batch_size: int) -> None:
    world = Trajectories(LAYOUTS["floats"], 10)
    lengths = (1, 2, 3, 4)
    for length in lengths:
        for event in ["go"] * (length - 1) + ["terminate"]:
            world.step([event])
    table = np.zeros((4, 4))
    for batch in world.sample(batch_size, "commanded", n_batches=5_000):
        own, given_ = int(batch.observations["observation"][0, 1]), int(batch.observations["desired_goal"][0, 1])
        table[own, given_] += 1
    shares = np.outer(lengths, lengths) / 100
    assert stats.chisquare(table.reshape(-1), shares.reshape(-1) * table.sum()).pvalue > 1e-4


def test_batches_drawn_at_once_differ() -> None:
    world = Trajectories(LAYOUTS["floats"], 50)
    for _ in range(50):
        world.step(["go"])
    first, second = world.sample(32, "future", n_batches=2)
    assert states_of(first.observations) != states_of(second.observations)


# -- the shares of a batch --------------------------------------------------------------------------------------------------


@given(
    weights=st.dictionaries(st.sampled_from(GOAL_KINDS), st.integers(0, 20), min_size=1).filter(lambda w: sum(w.values()) > 0),
    batch_size=st.integers(1, 5000),
)
def test_goal_slices_divide_the_batch_in_order_and_within_one_of_the_exact_shares(
    weights: dict[str, int], batch_size: int
) -> None:
    relabel = {kind: weight / sum(weights.values()) for kind, weight in weights.items()}
    slices = goal_slices(relabel, batch_size)
    assert list(slices) == [kind for kind in GOAL_KINDS if relabel.get(kind, 0) > 0]
    end = 0
    for kind, part in slices.items():
        assert part.start == end
        end = part.stop
        assert abs(part.stop - part.start - relabel[kind] * batch_size) < 1
    assert end == batch_size


@pytest.mark.parametrize(
    "shares", [{"next": 1 / 3, "random": 2 / 3 + 9e-6}, {"next": 0.333333, "future": 0.333333, "random": 0.333333}]
)
@pytest.mark.parametrize("batch_size", [3, 256, 10**7])
def test_goal_slices_of_rounded_shares_still_add_up_to_the_batch(shares: dict[str, float], batch_size: int) -> None:
    slices = goal_slices(shares, batch_size)
    assert set(slices) == set(shares)
    assert sum(part.stop - part.start for part in slices.values()) == batch_size


@pytest.mark.parametrize(
    ("lambda_", "expected"), [(1.0, (128, 0, 128)), (0.6, (77, 51, 128)), (0.5, (64, 64, 128)), (0.0, (0, 128, 128))]
)
def test_goal_slices_of_the_papers_table(lambda_: float, expected: tuple[int, int, int]) -> None:
    slices = goal_slices({"next": lambda_ / 2, "future": (1 - lambda_) / 2, "random": 0.5}, 256)
    counts = [slices[kind].stop - slices[kind].start if kind in slices else 0 for kind in ("next", "future", "random")]
    assert tuple(counts) == expected


@pytest.mark.parametrize(
    ("relabel", "message"),
    [
        ({"next": 0.5, "past": 0.5}, r"Unknown kinds of goals \['past'\]: use some of"),
        ({"next": 0.5, "random": 0.4}, "add up to 1"),
        ({"next": 1.5, "random": -0.5}, "at least 0"),
        ({}, "add up to 1"),
    ],
)
def test_goal_slices_name_what_is_wrong(relabel: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        goal_slices(relabel, 256)


# -- memory and saving ------------------------------------------------------------------------------------------------------


def test_memory_is_bounded_over_a_long_run_of_short_episodes() -> None:
    world = Trajectories(LAYOUTS["camera"], 60, 3)
    sizes = []
    for step in range(600):
        # Encoded numbers must stay below 256 for the images
        world.states = [State(env, step % 250, 0) for env in range(3)]
        world.step(["terminate", "truncate", "interrupt"])
        if step >= 40:
            sizes.append(len(pickle.dumps(world.buffer)))
    # Places of overwritten episodes are taken again; only the lists of free ones may differ by a few bytes
    assert max(sizes) - min(sizes) < 500
    # At most two states a transition, and half of the places free after the last doubling
    a_state = 4 * (8 + 3 + 3) + 48
    assert max(sizes) < 60 * a_state * 3 + 5000


RESIDENT_PAGES = Path("/proc/self/statm")


#: In its own process: in one that has run other tests, the allocator may hand out memory that was used and clear it.
MEMORY = """
import resource
from pathlib import Path
import numpy as np
from tests.support.trajectories import LAYOUTS, Trajectories

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

before = resident()
world = Trajectories(LAYOUTS["camera"], 2_000_000)
world.step(["go"])
assert sum(array.nbytes for array in world.buffer.observations.values() if array.dtype == np.uint8) > 90e6
world.sample(256, "future")
print(resident() - before)
"""


@pytest.mark.skipif(not RESIDENT_PAGES.exists(), reason="The system does not say how much memory is resident")
def test_memory_is_taken_only_when_it_is_written_to() -> None:
    folder = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", MEMORY], cwd=folder, capture_output=True, text=True, check=True, timeout=300
    )
    assert int(result.stdout.split()[-1]) < 20e6


def test_a_buffer_larger_than_the_memory_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    class Poor:
        @staticmethod
        def virtual_memory() -> Any:
            return type("Memory", (), {"available": 1000})

    monkeypatch.setattr(sb3_buffers, "psutil", Poor)
    with pytest.warns(UserWarning, match="pass a smaller `buffer_size`"):
        Trajectories(LAYOUTS["floats"], 1000)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("length", [1, 7, 40])
def test_a_pickled_buffer_samples_and_continues_the_same(layout: str, length: int) -> None:
    world = Trajectories(LAYOUTS[layout], 30, 2)
    for step in range(length):
        world.step(["terminate" if step % 5 == 4 else "go", "go"])
    copy = pickle.loads(pickle.dumps(world.buffer))
    original = world.buffer
    for steps_since in range(3):
        for kind in GOAL_KINDS:
            batches = []
            for buffer in (original, copy):
                np.random.seed(steps_since)
                batches.append(buffer.sample_goals(20, {kind: 1.0})[0])
            for name in ("observations", "actions", "next_observations", "dones"):
                th.testing.assert_close(getattr(batches[0], name), getattr(batches[1], name), rtol=0, atol=0)
        states, cuts = list(world.states), list(world.cuts)
        world.step(["go", "truncate"])
        world.states, world.cuts, world.buffer = states, cuts, copy
        world.step(["go", "truncate"])
        world.buffer = original


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pickle_with_the_old_names_loads(layout: str) -> None:
    world = Trajectories(LAYOUTS[layout], 30, 2)
    for step in range(20):
        world.step(["terminate" if step % 5 == 4 else "go", "go"])
    old = {
        **{"rows": "_rows", "non_float": "_side", "next_slot": "_kept", "episode_end": "_last", "free_slots": "_free"},
        **{"slot_rows": "_kept_rows", "slot_non_float": "_kept_side", "slot_terminated": "_kept_terminated"},
        **{"in_progress": "_open", "episode_steps": "_length", "total_added": "added", "columns": "_columns"},
        **{"n_features": "_features", "action_columns": "_action_columns"},
    }
    state = world.buffer.__getstate__()
    assert set(old) <= set(state)
    copy = GoalReplayBuffer.__new__(GoalReplayBuffer)
    copy.__setstate__({old.get(name, name): value for name, value in state.items()})
    world.buffer = copy
    check_invariants(copy)
    assert copy.has_open_episodes
    world.step(["go", "truncate"])
    world.check(copy.sample_goals(60, ALL_KINDS)[0])


def test_a_pickle_holds_the_filled_rows_only() -> None:
    world = Trajectories(LAYOUTS["camera"], 1_000_000)
    for _ in range(10):
        world.step(["go"])
    assert len(pickle.dumps(world.buffer)) < 20_000


# -- with SB3 ---------------------------------------------------------------------------------------------------------------


class CountingEnv(gym.Env):
    """States are (env, episode, t). Every third episode terminates in its sixth step; the others are truncated after nine."""

    action_space = spaces.Box(-2, 2, (3,))

    def __init__(self, env: int, layout: str = "floats"):
        self.layout = LAYOUTS[layout]
        self.observation_space = deepcopy(self.layout)  # VecNormalize writes into it
        self.state = State(env, -1, 0)

    def _observation(self) -> dict[str, np.ndarray]:
        return {key: value[0] for key, value in encode(self.layout, [self.state]).items()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, np.ndarray], dict]:
        super().reset(seed=seed)
        self.state = State(self.state.env, self.state.episode + 1, 0)
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict]:
        self.state = self.state.later()
        terminated = self.state.episode % 3 == 0 and self.state.t == 6
        return self._observation(), float("nan"), terminated, self.state.t == 9, {}


def test_collecting_with_sb3_keeps_the_true_final_states_and_terminations() -> None:
    venv = DummyVecEnv([lambda env=env: CountingEnv(env) for env in range(3)])  # type: ignore[misc]
    model = CLearning("MultiInputPolicy", venv, learning_starts=1000, buffer_size=150, device="cpu", seed=0)
    model.learn(111)
    model.learn(111)  # resets the envs in the middle of their episodes
    assert model.replay_buffer.size() * 3 == 150
    # The first 37 steps of each env end in the middle of an episode, which the second `learn` must not continue
    ends = {episode: 6 if episode % 3 == 0 else 9 for episode in range(5)}
    interrupted, left = 0, 37
    while left >= ends[interrupted]:
        left -= ends[interrupted]
        interrupted += 1
    ends[interrupted] = left
    seen: Counter[str] = Counter()
    for batch in model.replay_buffer.sample_goals(500, {"final": 1.0}, n_batches=4):
        states, next_states = states_of(batch.observations), states_of(batch.next_observations)
        goals = numbers(batch.observations["desired_goal"])
        for state, next_state, goal, done in zip(states, next_states, goals, batch.dones.tolist(), strict=True):
            assert next_state == state.later()
            assert done == (state.episode % 3 == 0 and next_state.t == 6)
            assert goal[:2] == state[:2]
            if state.episode in ends:
                assert goal[2] == ends[state.episode]
            seen.update(terminated=int(done), truncated=next_state.t == 9, interrupted=state.episode == interrupted)
    assert min(seen["terminated"], seen["truncated"], seen["interrupted"]) > 0


@pytest.mark.parametrize("norm_obs_keys", [None, ["observation"], ["achieved_goal", "desired_goal"]])
@pytest.mark.parametrize("kind", GOAL_KINDS)
def test_normalized_samples_have_the_goals_by_the_statistics_of_desired_goal(
    kind: str, norm_obs_keys: list[str] | None
) -> None:
    venv = VecNormalize(DummyVecEnv([lambda: CountingEnv(0)]), norm_obs_keys=norm_obs_keys, clip_obs=3.0)
    moments = {"observation": (1.0, 4.0), "achieved_goal": (2.0, 9.0), "desired_goal": (-3.0, 25.0)}
    assert isinstance(venv.obs_rms, dict)
    for key, rms in venv.obs_rms.items():
        rms.mean, rms.var = (np.full_like(rms.mean, moment) for moment in moments[key])
    world = Trajectories(LAYOUTS["floats"], 20)
    for event in ["go"] * 5 + ["terminate"] + ["go"] * 6:
        world.step([event])
    batches = []
    for env in (None, venv):
        np.random.seed(1)
        batches.append(world.sample(40, kind, env=env)[0])
    raw, normalized = batches
    for plain, ours in ((raw.observations, normalized.observations), (raw.next_observations, normalized.next_observations)):
        for key, (mean, variance) in moments.items():
            expected = plain[key].double()
            if norm_obs_keys is None or key in norm_obs_keys:
                expected = ((expected - mean) / np.sqrt(variance + venv.epsilon)).clamp(-3, 3)
            th.testing.assert_close(ours[key].double(), expected, rtol=1e-5, atol=1e-5)
            assert ours[key].dtype == th.float32
    th.testing.assert_close(raw.actions, normalized.actions)
    assert normalized.inputs is not None
    th.testing.assert_close(normalized.inputs[:, :3], normalized.observations[next(iter(LAYOUTS["floats"].spaces))][:, :3])


def test_normalized_image_goals_are_stored_as_floats_and_normalized() -> None:
    venv = VecNormalize(DummyVecEnv([lambda: CountingEnv(0, "image goals")]), norm_obs_keys=["achieved_goal", "desired_goal"])
    assert isinstance(venv.obs_rms, dict)
    venv.obs_rms["desired_goal"].mean[:] = 2.0
    assert isinstance(venv.observation_space, spaces.Dict)
    world = Trajectories(venv.observation_space, 20)  # VecNormalize makes the images' spaces those of floats
    world.step(["go"])
    (batch,) = world.sample(3, "next", env=venv)
    for observations in (batch.observations, batch.next_observations):
        np.testing.assert_allclose(observations["desired_goal"].flatten(1), [[-2, -2, -1, -2]] * 3, atol=1e-3)
    np.testing.assert_allclose(batch.next_observations["achieved_goal"].flatten(1), [[0, 0, 1, 0]] * 3, atol=1e-3)


def test_a_camera_beside_normalized_floats_keeps_its_type_and_values() -> None:
    venv = VecNormalize(DummyVecEnv([lambda: CountingEnv(0, "camera")]), norm_obs_keys=["observation"])
    assert isinstance(venv.obs_rms, dict)
    venv.obs_rms["observation"].mean[:] = 5.0
    world = Trajectories(LAYOUTS["camera"], 20)
    world.step(["go"])
    (batch,) = world.sample(3, "next", env=venv)
    assert batch.observations["camera"].dtype == th.uint8
    assert numbers(batch.next_observations["camera"]) == [(0, 0, 1) * 16] * 3
    np.testing.assert_allclose(batch.next_observations["observation"], [[-5, -5, -4]] * 3, atol=1e-3)


# -- what is not a goal space ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (floats(3), "needs a goal environment.*GoalFromObservation"),
        (spaces.Dict(observation=floats(3), desired_goal=floats(2)), r"lacks \['achieved_goal'\]"),
        (spaces.Dict(observation=floats(3), achieved_goal=floats(2), desired_goal=floats(3)), "goal spaces do not match"),
        (spaces.Dict(observation=floats(3), achieved_goal=floats(2), desired_goal=image(2)), "goal spaces do not match"),
    ],
)
def test_a_space_that_is_not_of_goals_is_refused_with_advice(space: spaces.Space, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GoalReplayBuffer(10, space, ACTION_SPACE, device="cpu")
