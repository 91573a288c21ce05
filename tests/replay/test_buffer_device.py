"""``buffer_device``: the ring on a device. The batches are those of NumPy's arrays, and no state is copied to the host."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_clearning import CLearning, GoalReplayBuffer, GoalTD3, ResumableCheckpoint
from sb3_clearning.replay.batch import GoalBatch
from sb3_clearning.replay.goal_buffer import GOAL_KINDS
from tests.replay.test_false_ends import Liar
from tests.support.goal_envs import ImageGoalEnv, PointEnv, make
from tests.support.ring_invariants import check_invariants
from tests.support.small_models import same, small_model, weights
from tests.support.trajectories import LAYOUTS, Trajectories

ON_CPU: dict[str, Any] = {"buffer_device": "cpu"}
ALL_KINDS = dict.fromkeys(GOAL_KINDS, 1 / len(GOAL_KINDS))
EVENTS = ["go"] * 5 + ["terminate", "truncate", "interrupt"]


def _batches(buffer: GoalReplayBuffer, **kwargs: Any) -> list[GoalBatch]:
    np.random.seed(1)
    return buffer.sample_goals(24, ALL_KINDS, gamma=0.8, n_batches=2, **kwargs)


def _assert_same_batches(left: GoalReplayBuffer, right: GoalReplayBuffer, **kwargs: Any) -> None:
    for one, other in zip(_batches(left, **kwargs), _batches(right, **kwargs), strict=True):
        for key in one.observations:
            assert th.equal(one.observations[key], other.observations[key])
            assert th.equal(one.next_observations[key], other.next_observations[key])
        assert th.equal(one.actions, other.actions)
        assert th.equal(one.dones, other.dones)
        assert th.equal(one.returns, other.returns) if one.discounts is None else th.equal(one.discounts, other.discounts)  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n_envs", [1, 3])
def test_batches_are_those_of_the_ring_on_the_host(layout: str, n_envs: int) -> None:
    rng = np.random.default_rng(0)
    kinds: tuple[dict[str, Any], ...] = ({}, ON_CPU)
    world, beside = (Trajectories(LAYOUTS[layout], 20 * n_envs, n_envs, **kwargs) for kwargs in kinds)
    for step in range(50):
        events = rng.choice(EVENTS, n_envs).tolist()
        for one in (world, beside):
            one.step(events)
        if step % 7 == 0:
            for n_steps, absorbing in ((1, False), (3, True)):
                _assert_same_batches(world.buffer, beside.buffer, n_steps=n_steps, absorbing=absorbing)
    beside.check(beside.sample(200, "future")[0])
    check_invariants(beside.buffer)
    left, right = world.buffer, beside.buffer
    for key, values in left.observations.items():
        assert np.array_equal(values, right.observations[key])
    assert np.array_equal(left.actions, right.actions)
    assert np.array_equal(left.random_goals(30, 0.3, seed=0), right.random_goals(30, 0.3, seed=0))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_that_is_stored_is_copied_to_the_host(layout: str) -> None:
    """A tensor on ``meta`` has no values: whatever reads one raises an error."""
    world = Trajectories(LAYOUTS[layout], 30, 2, device="meta", buffer_device="meta")
    rng = np.random.default_rng(0)
    for _ in range(40):
        world.step(rng.choice(EVENTS, 2).tolist())
        for n_steps in (1, 3):
            for batch in _batches(world.buffer, n_steps=n_steps, absorbing=True):
                values = [*batch.observations.values(), *batch.next_observations.values(), batch.actions]
                assert {value.device.type for value in values} == {"meta"}
    with pytest.raises(NotImplementedError, match="meta tensor"):
        world.buffer.transitions()  # the check would see a copy


def test_training_gives_the_same_weights_also_with_false_ends() -> None:
    def trained(**kwargs: Any) -> CLearning:
        model = small_model(Liar("reset"), replay_buffer_kwargs=kwargs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.learn(150)

    on_host, on_device = trained(), trained(**ON_CPU)
    assert isinstance(on_device.replay_buffer.to_torch(on_device.replay_buffer.rows), th.Tensor)
    assert not isinstance(on_device.replay_buffer.rows, np.ndarray)
    assert same(weights(on_host), weights(on_device))


def test_image_goals_and_the_baseline_learn_from_it() -> None:
    model = small_model(ImageGoalEnv(), replay_buffer_kwargs=ON_CPU)
    model.learn(40)
    arguments: dict[str, Any] = {"learning_starts": 12, "batch_size": 16, "buffer_size": 500, "seed": 0, "device": "cpu"}
    left, right = (
        GoalTD3("MultiInputPolicy", PointEnv(), replay_buffer_kwargs=kwargs, **arguments).learn(60) for kwargs in ({}, ON_CPU)
    )
    assert same(weights(left), weights(right))


def test_it_is_saved_loaded_and_pickled(tmp_path: Path) -> None:
    worlds = [Trajectories(LAYOUTS["camera"], 40, 2, **kwargs) for kwargs in ({}, ON_CPU)]
    for world in worlds:
        for event in ["go", "go", "terminate", "go", "truncate", "go"]:
            world.step([event, "go"])
    host, device = (world.buffer for world in worlds)
    device.save(tmp_path / "buffer")
    again = Trajectories(LAYOUTS["camera"], 40, 2, **ON_CPU).buffer
    again.load(tmp_path / "buffer")
    copy = pickle.loads(pickle.dumps(device))
    for found in (again, copy):
        _assert_same_batches(host, found)
    assert copy.buffer_device is None  # a pickle may be loaded where there is no such device
    copy.move_to(th.device("cpu"), th.device("cpu"))
    world = worlds[0]
    states = list(world.states)
    world.step(["go", "go"])
    for buffer in (again, copy):
        beside = Trajectories(LAYOUTS["camera"], 40, 2)
        beside.buffer, beside.states = buffer, list(states)
        beside.step(["go", "go"])
        assert buffer.n_episodes == host.n_episodes  # those in progress continue
        _assert_same_batches(host, buffer)


def test_a_run_resumes_and_a_loaded_buffer_moves_to_the_models_device(tmp_path: Path) -> None:
    kwargs: dict[str, Any] = {"replay_buffer_kwargs": ON_CPU}
    straight = small_model(PointEnv(), **kwargs).learn(90, callback=ResumableCheckpoint(tmp_path / "straight", every=30))
    small_model(PointEnv(), **kwargs).learn(60, callback=ResumableCheckpoint(tmp_path / "run", every=30))
    resumed = CLearning.resume(tmp_path / "run", PointEnv())
    resumed.learn(90, callback=ResumableCheckpoint(tmp_path / "run", every=30))
    assert resumed.replay_buffer.buffer_device == th.device("cpu")
    assert same(weights(straight), weights(resumed))

    straight.save_replay_buffer(tmp_path / "buffer.pkl")
    for model in (small_model(PointEnv()), small_model(PointEnv(), **kwargs)):
        kept = model.replay_buffer.buffer_device
        model.load_replay_buffer(tmp_path / "buffer.pkl")
        assert model.replay_buffer.buffer_device == kept
        _assert_same_batches(straight.replay_buffer, model.replay_buffer)


def test_datasets_are_loaded_and_an_error_undoes_all() -> None:
    world = Trajectories(LAYOUTS["floats"], 40, 2)
    for _ in range(9):
        world.step(["go", "truncate"])
    host, device = (
        GoalReplayBuffer(12, LAYOUTS["floats"], world.buffer.action_space, "cpu", 2, **kwargs) for kwargs in ({}, ON_CPU)
    )
    for buffer in (host, device):
        buffer.add_transitions(world.buffer.transitions())
    _assert_same_batches(host, device)

    def broken() -> Any:
        yield world.buffer.transitions()
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        device.add_pieces(broken(), 18)
    _assert_same_batches(host, device)


def test_a_buffer_for_a_missing_gpu_is_on_the_cpu_as_sb3s_device_is() -> None:
    if th.cuda.is_available():
        pytest.skip("there is a GPU")
    model = small_model(PointEnv(), replay_buffer_kwargs={"buffer_device": "cuda"})
    assert model.replay_buffer.buffer_device == th.device("cpu")


def test_what_does_not_work_says_why() -> None:
    space, actions = LAYOUTS["floats"], PointEnv().action_space
    with pytest.raises(ValueError, match="must be a device such as \"cuda\", or None, not 'gpu'"):
        GoalReplayBuffer(10, space, actions, "cpu", buffer_device="gpu")
    with pytest.raises(ValueError, match="is meta, but the networks are on cpu: every batch would be copied"):
        small_model(PointEnv(), replay_buffer_kwargs={"buffer_device": "meta"})
    with pytest.raises(ValueError, match="VecNormalize computes on the host"):
        small_model(VecNormalize(DummyVecEnv([make(PointEnv)]), norm_reward=False), replay_buffer_kwargs=ON_CPU)
    with pytest.raises(ValueError, match=r"n-step returns are searched for on the host.*`n_steps=1`"):
        GoalTD3("MultiInputPolicy", PointEnv(), n_steps=3, replay_buffer_kwargs=ON_CPU, device="cpu")
