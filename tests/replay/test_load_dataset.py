"""Datasets of every kind reach the buffer as a plain loop over their trajectories would add them, or not at all."""

import os
import signal
import sys
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sb3_clearning import CLearning, Experience, FutureStateEstimator, GoalReplayBuffer, UnreadableFileError, collect
from sb3_clearning.envs import GoalFromObservation
from sb3_clearning.replay import datasets
from sb3_clearning.replay.experience import Transitions
from sb3_clearning.replay.ring import EpisodeRing
from tests.support.goal_envs import ImageGoalEnv, PointEnv, RobotEnv
from tests.support.ring_invariants import check_invariants

LOW, HIGH = np.array([-2.0, -1.0], dtype=np.float32), np.array([4.0, 1.0], dtype=np.float32)
ACTIONS = spaces.Box(LOW, HIGH)
BOX, GOAL = spaces.Box(-np.inf, np.inf, (3,)), spaces.Box(-np.inf, np.inf, (2,))
SPACE = spaces.Dict(observation=BOX, achieved_goal=GOAL, desired_goal=GOAL)
CROP = [0, 2]

IMAGE = (ImageGoalEnv.SIZE, ImageGoalEnv.SIZE, 1)

Row = tuple[tuple[float, ...], ...]


def ogbench(lengths: list[int], seed: int = 0) -> dict[str, np.ndarray]:
    """:return: Trajectories of so many rows, in OGBench's layout: the last row of each is marked, and has no next state"""
    rng, n = np.random.default_rng(seed), sum(lengths)
    terminals = np.zeros(n, dtype=np.float32)
    terminals[np.cumsum(lengths) - 1] = 1
    return {
        "observations": rng.normal(size=(n, 3)).astype(np.float32),
        "actions": rng.uniform(LOW, HIGH, (n, 2)).astype(np.float32),
        "terminals": terminals,
        "qpos": rng.normal(size=(n, 5)).astype(np.float32),
    }


def without_states(lengths: list[int]) -> dict[str, np.ndarray]:
    return {key: value for key, value in ogbench(lengths).items() if key in ("actions", "terminals")}


def expected(data: dict[str, np.ndarray], lengths: list[int]) -> list[Row]:
    """:return: State, commanded goal, scaled action, next state and termination of each transition, by a plain loop"""
    rows, start = [], 0
    for length in lengths:
        states, actions = (data[name][start : start + length] for name in ("observations", "actions"))
        for t in range(length - 1):
            scaled = np.float32(2) * (actions[t] - LOW) / (HIGH - LOW) - np.float32(1)
            rows.append((*map(tuple, (states[t], states[-1][CROP], scaled, states[t + 1])), (0.0,)))
        start += length
    return rows


def stored(buffer: GoalReplayBuffer) -> list[Row]:
    check_invariants(buffer)
    observations, following, actions, terminations, _ = buffer.transitions()
    columns = [observations["observation"], observations["desired_goal"], actions, following["observation"]]
    for values in (observations, following):
        assert np.array_equal(values["achieved_goal"], values["observation"][:, CROP])
    return [(*map(tuple, row), (float(end),)) for *row, end in zip(*columns, terminations, strict=True)]


def new_buffer(size: int = 200, n_envs: int = 1) -> GoalReplayBuffer:
    return GoalReplayBuffer(size, SPACE, ACTIONS, device="cpu", n_envs=n_envs)


def assert_same(left: Transitions, right: Transitions) -> None:
    for one, two in zip(left[:2], right[:2], strict=True):
        assert one.keys() == two.keys()
        assert all(np.array_equal(one[key], two[key]) for key in one)
    assert all(np.array_equal(one, two) for one, two in zip(left[2:], right[2:], strict=True))


def everything(buffer: GoalReplayBuffer) -> dict[str, Any]:
    """:return: All that the buffer is made of, for bit for bit comparisons"""
    return {name: value.copy() if hasattr(value, "copy") else value for name, value in vars(buffer).items()}


def assert_untouched(buffer: GoalReplayBuffer, before: dict[str, Any]) -> None:
    now = vars(buffer)
    assert now.keys() == before.keys()
    for name, value in before.items():
        same = np.array_equal(now[name], value) if isinstance(value, np.ndarray) else now[name] == value
        assert same, name


# -- OGBench's files ---------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=8).filter(lambda lengths: max(lengths) > 1),
    chunk=st.integers(1, 1500),
    compressed=st.booleans(),
    n_envs=st.integers(1, 3),
    size=st.integers(3, 120),
    before=st.integers(0, 12),
)
def test_a_file_in_chunks_of_any_size(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    chunk: int,
    compressed: bool,
    n_envs: int,
    size: int,
    before: int,
) -> None:
    data = ogbench(lengths)
    path = tmp_path_factory.mktemp("npz") / "data.npz"
    (np.savez_compressed if compressed else np.savez)(path, **data)  # type: ignore[arg-type]
    buffer = new_buffer(size, n_envs)
    capacity = buffer.buffer_size * n_envs
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if before:
            old = ogbench([before + 1], seed=1)
            buffer.load_dataset(old, crop=CROP)
        patch.setattr(datasets, "CHUNK_BYTES", chunk)
        rows = expected(data, lengths)
        n = len(rows) // n_envs * n_envs
        assert buffer.load_dataset(path, crop=CROP) == n
    rows = rows[-capacity:] if len(rows) >= capacity else rows[:n]
    found = stored(buffer)
    per_env, each = len(found) // n_envs, len(rows) // n_envs
    # The newest steps of each environment: a part of the data, the parts in order.
    newest = [row for env in range(n_envs) for row in found[(env + 1) * per_env - each : (env + 1) * per_env]]
    assert newest == rows


def test_episodes_end_where_the_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [7, 2, 30, 5]
    data = ogbench(lengths)
    np.savez_compressed(tmp_path / "data.npz", **data)  # type: ignore[arg-type]
    monkeypatch.setattr(datasets, "CHUNK_BYTES", 4 * sum(array[0].nbytes for array in data.values()))
    buffer = new_buffer()
    buffer.load_dataset(str(tmp_path / "data.npz"), crop=CROP)
    *_, terminations, truncations = buffer.transitions()
    assert not terminations.any()
    assert np.flatnonzero(truncations).tolist() == (np.cumsum(np.subtract(lengths, 1)) - 1).tolist()
    # The same arrays in memory mean the same, and so does the file for an estimator.
    in_memory, whole = datasets.read_dataset(data), datasets.read_dataset(tmp_path / "data.npz")
    for found in (in_memory, whole):
        assert np.array_equal(np.asarray(found.observations), buffer.transitions().observations["observation"])
        assert found.ends.tolist() == truncations.tolist()
        assert not found.terminations.any()
    FutureStateEstimator(gamma=0.5).fit(tmp_path / "data.npz", steps=2)


def test_d4rls_terminals_stay_terminations(tmp_path: Path) -> None:
    data = ogbench([4, 4])
    data.update(next_observations=data["observations"] + 1, timeouts=np.eye(8)[3])
    data["terminals"] = np.eye(8)[7]
    np.savez(tmp_path / "data.npz", **data)  # type: ignore[arg-type]
    buffer = new_buffer()
    assert buffer.load_dataset(tmp_path / "data.npz", crop=CROP) == 8
    *_, terminations, truncations = buffer.transitions()
    assert terminations.tolist() == [False] * 7 + [True]
    # Each next state is made up, so that no row follows from the one before.
    assert truncations.tolist() == [True] * 7 + [False]


def test_an_unfinished_last_episode_is_kept(tmp_path: Path) -> None:
    data = ogbench([4, 5])
    data["terminals"][-1] = 0
    np.savez(tmp_path / "data.npz", **data)  # type: ignore[arg-type]
    buffer = new_buffer()
    assert buffer.load_dataset(tmp_path / "data.npz", crop=CROP) == 7
    assert stored(buffer) == expected(data, [4, 5])


def test_a_file_ten_times_as_large_as_the_buffer(tmp_path: Path) -> None:
    lengths = [21] * 50
    data = ogbench(lengths)
    np.savez_compressed(tmp_path / "data.npz", **data)  # type: ignore[arg-type]
    buffer = new_buffer(100)
    with pytest.warns(UserWarning, match="has 1000 transitions, but .* holds 100: only the last 100 are kept") as said:
        assert buffer.load_dataset(tmp_path / "data.npz", crop=CROP) == 1000
    assert [warning.filename for warning in said] == [__file__]
    assert stored(buffer) == expected(data, lengths)[-100:]


def test_the_memory_is_that_of_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 200_000
    terminals = (np.arange(n) % 500 == 499).astype(np.float32)
    data = {"observations": np.ones((n, 64), np.float32), "actions": np.zeros((n, 2), np.float32), "terminals": terminals}
    data["observations"][:, 0] = np.arange(n)
    np.savez_compressed(tmp_path / "data.npz", **data)
    whole = sum(array.nbytes for array in data.values())
    del data
    monkeypatch.setattr(datasets, "CHUNK_BYTES", 2**18)
    box = spaces.Box(-np.inf, np.inf, (64,))
    space = spaces.Dict(observation=box, achieved_goal=GOAL, desired_goal=GOAL)
    buffer = GoalReplayBuffer(1000, space, ACTIONS, device="cpu")
    tracemalloc.start()
    try:
        with pytest.warns(UserWarning, match="only the last 1000"):
            buffer.load_dataset(tmp_path / "data.npz", crop=CROP)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < whole / 20
    assert buffer.transitions().observations["observation"][-1, 0] == n - 2


# -- errors ------------------------------------------------------------------------------------------------------------


def changed(**arrays: Any) -> Callable[[Path], None]:
    """:return: A function that writes a file with some arrays changed, or left out if None"""

    def write(path: Path) -> None:
        data = {**ogbench([6, 6, 6]), **arrays}
        np.savez_compressed(path, **{name: array for name, array in data.items() if array is not None})

    return write


def with_value(name: str, row: int, value: float) -> Callable[[Path], None]:
    array = ogbench([6, 6, 6])[name].copy()
    array[row, -1] = value
    return changed(**{name: array})


def edited(edit: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        changed()(path)
        path.write_bytes(edit(path.read_bytes()))

    return write


def shorter(path: Path) -> None:
    """A sound zip with half of an array."""
    changed()(path)
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name, data[: len(data) // 2] if name == "actions.npy" else data)


def flip(data: bytes) -> bytes:
    """One bit in the middle of the compressed observations."""
    place = data.index(b"observations.npy") + 150
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


def unknown_version(data: bytes) -> bytes:
    """A later version of the zip format than Python reads, in the directory at the file's end."""
    place = data.index(b"PK\x01\x02") + 6
    return data[:place] + bytes([83]) + data[place + 1 :]


ERRORS: dict[str, tuple[Callable[[Path], None], str]] = {
    "no file": (lambda path: None, "There is no such file"),
    "no zip": (lambda path: path.write_bytes(b"observations, actions"), "Not an .npz file"),  # type: ignore[dict-item]
    "cut file": (edited(lambda data: data[: len(data) // 2]), "Not an .npz file, or a truncated one.*[Ss]ave it again"),
    "zip version": (edited(unknown_version), "Not an .npz file.*zip file version 8.3"),
    "cut array": (shorter, "The array `actions` is truncated"),
    "flipped bit": (edited(flip), "The array `observations` is truncated or damaged"),
    "objects": (changed(actions=np.full(18, None)), "`actions` holds pickled Python objects.*save it as an array of numbers"),
    "strings": (changed(terminals=np.full(18, "no")), "`terminals` holds the type"),
    "columns": (changed(observations=np.asfortranarray(np.zeros((18, 3)))), "`observations` is not stored in rows"),
    "a number": (changed(terminals=np.zeros(())), "`terminals` is not stored in rows"),
    "no actions": (changed(actions=None), r"lacks \['actions'\]; it has \['observations', 'qpos', 'terminals'\]"),
    "lengths": (changed(actions=np.zeros((17, 2))), "need the same length, above 0, but have .*'actions': 17"),
    "empty": (changed(observations=np.zeros((0, 3)), actions=np.zeros((0, 2)), terminals=np.zeros(0)), "above 0"),
    "dones": (changed(dones=np.zeros(18)), "has 'dones': name the ends of episodes"),
    "no ends": (changed(terminals=None), "No row ends an episode.*Mark the last row of each episode in `terminals`"),
    "zeros": (changed(terminals=np.zeros(18)), "No row ends an episode"),
    "two flags": (changed(terminals=np.ones((18, 2))), r"`terminals` needs one value a row, but has the shape \(18, 2\)"),
    "single rows": (changed(terminals=np.ones(18)), "every episode has a single row"),
    "next": (changed(next_observations=np.zeros((18, 4))), "`observations` and `next_observations` need the same shape"),
    "shape": (changed(observations=np.zeros((18, 4))), r"`observations` has the shape \(18, 4\), but \(18, 3\) is needed"),
    "action shape": (changed(actions=np.zeros((18, 3))), r"`actions` has the shape \(18, 3\), but \(18, 2\) is needed"),
    "NaN": (with_value("observations", 17, np.nan), "`observations` has NaN or inf in row 17"),
    "inf": (with_value("actions", 12, np.inf), "`actions` has NaN or inf in row 12"),
    "range": (with_value("actions", 13, 1.5), r"`actions` lie outside of .*first in row 13\. Clip or rescale"),
}


@pytest.mark.parametrize("chunk", [70, 2**20])
@pytest.mark.parametrize("case", ERRORS)
def test_an_error_names_the_file_and_leaves_the_buffer_untouched(
    case: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, message = ERRORS[case]
    path = tmp_path / "data.npz"
    write(path)
    buffer = new_buffer()
    # An episode in progress: an error must not even close it.
    states = {key: np.zeros((1, *box.shape), np.float32) for key, box in SPACE.items()}  # type: ignore[misc]
    buffer.add(states, states, np.zeros((1, 2)), np.zeros(1), np.zeros(1), [{}])
    before = everything(buffer)
    monkeypatch.setattr(datasets, "CHUNK_BYTES", chunk)
    with pytest.raises(ValueError, match=message) as raised:
        buffer.load_dataset(path, crop=CROP)
    assert str(raised.value).startswith(f"{path}: ")
    assert_untouched(buffer, before)


@pytest.mark.parametrize(
    ("dataset", "crop", "message"),
    [
        (ogbench([6]), [0, 9], "out of range"),
        (ogbench([6]), None, "Pass `crop` to say which part"),
        ({**ogbench([6]), "observations": np.full((6, 3), np.nan)}, CROP, "NaN or inf in the key `observation`, transition 0"),
        ({**ogbench([6]), "observations": np.full((6, 3), "a")}, CROP, "have <U1 in the key `observation`, but float32"),
        ({**ogbench([6]), "actions": np.full((6, 2), 5.0)}, CROP, "outside of .* first in transition 0"),
        (
            {**ogbench([6]), "observations": np.full((6, 3), -1e300)},
            CROP,
            r"have -1e\+300 in the key `observation`, transition 0, which float32 cannot hold",
        ),
        (3, CROP, "A int is not a dataset.*a file's path"),
        ({**ogbench([6]), "terminals": np.zeros(6)}, CROP, "No row ends an episode"),
        (ogbench([6]), lambda states: states[:2], r"returned the shape \(2, 3\) for 5 observations.*leading axis"),
        (
            {"observations": {"observation": np.zeros((6, 3)), "achieved_goal": np.zeros((6, 2))}, **without_states([6])},
            CROP,
            "has the key `achieved_goal`, so `crop` would have no effect: leave it out",
        ),
        (
            {
                "observations": {"a": np.zeros((6, 3)), "b": np.zeros((6, 2))},
                "next_observations": {"a": np.zeros((6, 3))},
                **without_states([6]),
            },
            {"a": CROP},
            r"`next_observations` needs the keys of `observations`, and lacks \['b'\]",
        ),
    ],
)
def test_bad_data_in_memory_leaves_the_buffer_untouched(dataset: Any, crop: Any, message: str) -> None:
    buffer = new_buffer()
    before = everything(buffer)
    with pytest.raises(ValueError, match=message):
        buffer.load_dataset(dataset, crop=crop)
    assert_untouched(buffer, before)


def test_a_name_that_is_neither_a_file_nor_a_dataset() -> None:
    with pytest.raises(
        FileNotFoundError, match=r"neither a file walks.csv \(an .npz file, or .* nor a Minari dataset of this"
    ):
        new_buffer().load_dataset("walks.csv", crop=CROP)


@pytest.mark.parametrize("value", [256, -1])
def test_whole_numbers_that_would_wrap_around(value: int) -> None:
    box = spaces.Box(-1.0, 1.0, (2,))
    keys: dict[str, spaces.Space] = {
        "observation": box,
        "achieved_goal": box,
        "desired_goal": box,
        "camera": spaces.Box(0, 255, (2,), np.uint8),
    }
    buffer = GoalReplayBuffer(20, spaces.Dict(keys), spaces.Box(-9.0, 9.0, (2,)), device="cpu")
    camera = np.full((6, 2), 255)
    states = {"observation": np.zeros((6, 2)), "camera": camera}
    data = {"observations": states, **without_states([6])}
    assert buffer.load_dataset(data) == 5
    camera[3, 1] = value
    with pytest.raises(ValueError, match=rf"have {value} in the key `camera`, transition [23], which uint8 cannot hold"):
        buffer.load_dataset(data)
    assert buffer.size() == 5


def test_bad_values_of_a_crop_are_found_in_the_file(tmp_path: Path) -> None:
    changed()(tmp_path / "data.npz")
    buffer = new_buffer()
    before = everything(buffer)
    with pytest.raises(ValueError, match=r"data.npz: The observations .* NaN or inf in the key `achieved_goal`, transition"):
        buffer.load_dataset(tmp_path / "data.npz", crop=lambda states: states[..., :2] * np.nan)
    assert_untouched(buffer, before)


def test_a_missing_tqdm_is_named_before_anything_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = new_buffer()
    before = everything(buffer)
    monkeypatch.setitem(__import__("sys").modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match=r'pip install "sb3_clearning\[extra\]"'):
        buffer.load_dataset(ogbench([6]), crop=CROP, progress_bar=True)
    assert_untouched(buffer, before)


def test_the_progress_bar_counts_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed()(tmp_path / "data.npz")
    new_buffer().load_dataset(tmp_path / "data.npz", crop=CROP, progress_bar=True)
    assert "15/15" in capsys.readouterr().err


# -- all or nothing ----------------------------------------------------------------------------------------------------


def filled_buffer(n_envs: int = 1) -> GoalReplayBuffer:
    """:return: A buffer that is nearly full, with an episode in progress, so that loading overwrites and closes"""
    buffer = new_buffer(40, n_envs)
    buffer.load_dataset(ogbench([16, 16], seed=1), crop=CROP)
    states = {key: np.full((n_envs, *box.shape), 7, np.float32) for key, box in SPACE.items()}  # type: ignore[misc]
    following = {key: value + 1 for key, value in states.items()}
    buffer.add(states, following, np.zeros((n_envs, 2)), np.zeros(n_envs), np.zeros(n_envs), [{}] * n_envs)
    return buffer


@pytest.mark.parametrize("full", [False, True])
def test_ctrl_c_while_loading_leaves_the_buffer_untouched(full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed()(tmp_path / "data.npz")
    monkeypatch.setattr(datasets, "CHUNK_BYTES", 70)
    buffer = filled_buffer() if full else new_buffer()
    before, calls = everything(buffer), 0

    def crop(states: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == 10:  # twice for each of three chunks: all were checked, and the first one is in the buffer
            os.kill(os.getpid(), signal.SIGINT)
        return states[..., CROP]

    with pytest.raises(KeyboardInterrupt):
        buffer.load_dataset(tmp_path / "data.npz", crop=crop)
    assert calls == 10
    assert_untouched(buffer, before)
    assert buffer.load_dataset(tmp_path / "data.npz", crop=CROP) == 15
    check_invariants(buffer)


@pytest.mark.parametrize("n_envs", [1, 2])
def test_an_interruption_at_any_line_is_all_or_nothing(n_envs: int) -> None:
    new = ogbench([6, 5, 14, 4], seed=2)
    complete = filled_buffer(n_envs)
    complete.load_dataset(new, crop=CROP)
    module = sys.modules[EpisodeRing.__module__].__file__
    countdown, undoing = 0, False

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal countdown, undoing
        if frame.f_code.co_filename != module:
            return None
        if event == "line" and not undoing:
            countdown -= 1
            if countdown == 0:
                undoing = True
                raise KeyboardInterrupt
        return trace

    lines, outcomes = 0, set()
    while not lines or undoing:
        lines += 1
        buffer = filled_buffer(n_envs)
        before, countdown, undoing = everything(buffer), lines, False
        previous = sys.gettrace()
        sys.settrace(trace)
        try:
            buffer.load_dataset(new, crop=CROP)
        except KeyboardInterrupt:
            assert undoing
        finally:
            sys.settrace(previous)
        if buffer.total_added == complete.total_added:
            assert_same(buffer.transitions(), complete.transitions())
            outcomes.add("all")
        else:
            assert_untouched(buffer, before)
            outcomes.add("nothing")
        check_invariants(buffer)
    assert outcomes == {"all", "nothing"}
    assert lines > 50


def test_a_file_that_changes_between_the_passes(tmp_path: Path) -> None:
    buffer = filled_buffer()
    before = everything(buffer)
    with pytest.raises(ValueError, match="changed while it was read: it had 20 transitions, then 14"):
        buffer.add_pieces([new_buffer_with(15).transitions()], 20)
    assert_untouched(buffer, before)


def new_buffer_with(rows: int) -> GoalReplayBuffer:
    buffer = new_buffer()
    buffer.load_dataset(ogbench([rows]), crop=CROP)
    return buffer


# -- other kinds -------------------------------------------------------------------------------------------------------


def test_collected_saved_and_loaded(tmp_path: Path) -> None:
    env = PointEnv(terminates=True)
    experience = collect("random", env, 300, seed=0)
    assert experience.terminations.any()
    experience.save(tmp_path / "data.safetensors")
    buffers = [GoalReplayBuffer(400, env.observation_space, env.action_space, device="cpu") for _ in range(4)]
    sources: list[Any] = [experience, tmp_path / "data.safetensors", Experience.load(tmp_path / "data.safetensors")]
    for buffer, source in zip(buffers, [*sources, buffers[0]], strict=True):
        assert buffer.load_dataset(source) == 300
    first = buffers[0].transitions()
    assert np.array_equal(first.observations["observation"], experience.observations["observation"])
    assert np.array_equal(first.next_observations["observation"], experience.next_observations["observation"])
    assert first.terminations.tolist() == experience.terminations.tolist()
    assert (first.terminations | first.truncations).tolist() == experience.ends.tolist()
    for other in buffers[1:3]:
        assert_same(first, other.transitions())
    assert np.allclose(buffers[3].transitions().actions, first.actions, atol=1e-6)  # scaled back and forth


@settings(max_examples=100, deadline=None)
@given(
    n=st.integers(1, 60),
    n_envs=st.integers(1, 3),
    size=st.integers(3, 40),
    before=st.integers(0, 30),
    seed=st.integers(0, 10_000),
)
def test_adding_many_at_once_is_adding_them_one_by_one(n: int, n_envs: int, size: int, before: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    image = spaces.Box(0, 255, (2, 2, 1), np.uint8)
    space = spaces.Dict(observation=BOX, achieved_goal=GOAL, desired_goal=GOAL, camera=image)

    def states(count: int) -> dict[str, np.ndarray]:
        return {key: rng.integers(0, 200, (count, *box.shape)).astype(box.dtype) for key, box in space.items()}  # type: ignore

    def one_by_one(buffer: GoalReplayBuffer, parts: list[Transitions]) -> None:
        """The steps of all environments, as they would come from a VecEnv."""
        for t in range(len(parts[0].actions)):
            now = [part.take(slice(t, t + 1)) for part in parts]
            obs, following = (
                {key: np.concatenate([getattr(part, name)[key] for part in now]) for key in space}
                for name in ("observations", "next_observations")
            )
            actions, ended, truncated = (np.concatenate([part[i] for part in now]) for i in (2, 3, 4))
            infos = [{"TimeLimit.truncated": bool(cut)} for cut in truncated]
            buffer.add(obs, following, actions, np.zeros(n_envs), ended | truncated, infos)
        buffer.truncate_last_trajectory()

    def sequence(count: int) -> Transitions:
        now = states(count)
        # Mostly the next state is the following one; sometimes the environment was reset, with or without a flag.
        following = {key: np.roll(value, -1, axis=0) for key, value in now.items()}
        terminations, truncations, resets = rng.random((3, count)) < [[0.1], [0.1], [0.2]]
        for key, value in states(count).items():
            following[key][resets | terminations] = value[resets | terminations]
        actions = rng.uniform(-1, 1, (count, 2)).astype(np.float32)
        return Transitions(now, following, actions, terminations, truncations & ~terminations)

    buffers = [GoalReplayBuffer(size, space, ACTIONS, device="cpu", n_envs=n_envs) for _ in range(2)]
    steps = buffers[0].buffer_size
    if before:
        old = sequence(before * n_envs)
        for buffer in buffers:
            one_by_one(buffer, [old.take(slice(env * before, (env + 1) * before)) for env in range(n_envs)])
    new = sequence(n)
    kept = new.take(slice(max(n - steps * n_envs, 0), None))
    length = len(kept.actions) // n_envs
    assert buffers[0].add_transitions(new) == n // n_envs * n_envs
    one_by_one(buffers[1], [kept.take(slice(env * length, (env + 1) * length)) for env in range(n_envs)])
    check_invariants(buffers[0])
    assert buffers[0].total_added == buffers[1].total_added
    if buffers[0].size():
        assert_same(buffers[0].transitions(), buffers[1].transitions())
        assert np.array_equal(buffers[0].episode_end, buffers[1].episode_end)


def test_a_dataset_is_not_saved_as_npz(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data.npz: this is not written as an .npz file"):
        collect("random", PointEnv(), 10, seed=0).save(tmp_path / "data.npz")
    assert not list(tmp_path.iterdir())


def test_an_unreadable_file_is_no_other_error(tmp_path: Path) -> None:
    (tmp_path / "data.safetensors").write_bytes(b"something else")
    for path in (tmp_path / "data.safetensors", tmp_path / "none", tmp_path):
        with pytest.raises(UnreadableFileError, match=str(path)):
            new_buffer().load_dataset(path)


@pytest.mark.parametrize("crop", [[0, 1], {"joints": [0, 1]}])
def test_the_key_that_the_goal_is_in_becomes_the_observation(crop: Any) -> None:
    env = GoalFromObservation(RobotEnv(), crop={"joints": [0, 1]})
    raw = collect("random", RobotEnv(), 25, seed=0)
    assert isinstance(raw.observations, dict)
    model = CLearning.from_spaces(env.observation_space, env.action_space, device="cpu", buffer_size=100)
    data = {
        "observations": raw.observations,
        "actions": raw.actions,
        "terminations": raw.terminations,
        "truncations": raw.ends,
    }
    if not isinstance(crop, dict):
        with pytest.raises(ValueError, match=r"only \['camera', 'joints'\]. Say which key the goal is in: `crop=\{"):
            model.replay_buffer.load_dataset(data, crop=crop)
        with pytest.raises(ValueError, match=r"must name one of the observations' keys \['camera', 'joints'\], not \['arm'\]"):
            model.replay_buffer.load_dataset(data, crop={"arm": [0]})
        assert model.replay_buffer.size() == 0
        return
    n = model.replay_buffer.load_dataset(data, crop=crop)
    stored = model.replay_buffer.transitions().observations
    keep = np.flatnonzero(~raw.ends[:-1])
    assert n == len(keep)
    np.testing.assert_array_equal(stored["observation"], raw.observations["joints"][keep].astype(np.float32))
    np.testing.assert_array_equal(stored["achieved_goal"], stored["observation"][:, :2])
    # Images get their channels first, as around an environment.
    np.testing.assert_array_equal(stored["camera"], raw.observations["camera"][keep].transpose(0, 3, 1, 2))
    assert CLearning("MultiInputPolicy", env, device="cpu", buffer_size=10).observation_space == model.observation_space
    state = {key: value[5] for key, value in stored.items()}
    as_given = {**state, "camera": np.moveaxis(state["camera"], 0, -1)}
    answers = [model.future.log_ratio(one, None, stored["achieved_goal"][:3]) for one in (state, as_given)]
    assert answers[0].shape == (3,)
    np.testing.assert_array_equal(answers[0], answers[1])


def test_a_function_of_the_dict_is_the_wrappers() -> None:
    space = spaces.Box(-1.0, 1.0, (2,))

    def both(obs: Any) -> np.ndarray:
        return np.concatenate([obs["observation"][..., :1], obs["force"][..., 1:]], axis=-1)

    env = GoalFromObservation(RobotEnv("observation", force=space), crop=both, goal_sampler="reset")
    rng = np.random.default_rng(0)
    states: dict[str, np.ndarray] = {
        "observation": rng.random((9, 3)),
        "force": rng.random((9, 2)),
        "camera": np.zeros((9, *IMAGE), np.uint8),
    }
    model = CLearning.from_spaces(env.observation_space, env.action_space, device="cpu", buffer_size=100)
    data: dict[str, Any] = {"observations": states, "actions": np.zeros((9, 2)), "terminals": np.arange(9) == 8}
    assert model.replay_buffer.load_dataset(data, crop=both) == 8
    found = model.replay_buffer.transitions()
    goals = np.stack([states["observation"][:, 0], states["force"][:, 1]], axis=1).astype(np.float32)
    np.testing.assert_array_equal(found.observations["achieved_goal"], goals[:-1])
    np.testing.assert_array_equal(found.next_observations["achieved_goal"], goals[1:])
    # Of one key, a function is that of an array.
    other = CLearning.from_spaces(env.observation_space, env.action_space, device="cpu", buffer_size=100)
    other.replay_buffer.load_dataset(data, crop={"observation": lambda array: array[..., 1:]})
    np.testing.assert_array_equal(
        other.replay_buffer.transitions().observations["achieved_goal"][:, 0], states["observation"][:-1, 1].astype(np.float32)
    )


@pytest.mark.parametrize(("chunk", "n_chunks"), [(1, 1), (200, 2), (10**6, 2)])
def test_next_observations_tell_the_ends_in_a_file_too(
    chunk: int, n_chunks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "CHUNK_BYTES", chunk)
    rng = np.random.default_rng(0)
    paths = [rng.normal(size=(n + 1, 3)).astype(np.float32) for n in (4, 1, 7)]
    data = {
        "observations": np.concatenate([path[:-1] for path in paths]),
        "next_observations": np.concatenate([path[1:] for path in paths]),
        "actions": rng.uniform(LOW, HIGH, (12, 2)).astype(np.float32),
    }
    np.savez(tmp_path / "data.npz", allow_pickle=False, **data)
    stored_by = []
    for dataset in (data, tmp_path / "data.npz"):
        buffer = new_buffer()
        assert buffer.load_dataset(dataset, crop=CROP) == 12
        stored_by.append(stored(buffer))
        ends = buffer.transitions().truncations
        assert np.flatnonzero(ends).tolist() == [3, 4, 11]
        # Of each transition, the goal that its own episode reached last.
        reached = np.concatenate([np.tile(path[-1][CROP], (len(path) - 1, 1)) for path in paths])
        np.testing.assert_array_equal(buffer.transitions().observations["desired_goal"], reached)
    assert stored_by[0] == stored_by[1]
    with datasets.dataset_chunks(tmp_path / "data.npz", SPACE, ACTIONS) as chunks:
        # What is before an end within a block does not wait for the rest of the file.
        assert len(list(chunks())) == n_chunks


def test_ends_of_episodes_are_needed_and_are_booleans() -> None:
    buffer, data = GoalReplayBuffer(50, SPACE, ACTIONS), ogbench([5, 5])
    for changes, message in (
        ({"terminals": data["terminals"] * 7}, "booleans, or 0 and 1, not values like 7"),
        ({"terminals": None}, "No row ends an episode"),
    ):
        bad = {key: value for key, value in {**data, **changes}.items() if value is not None}
        with pytest.raises(ValueError, match=message):
            buffer.load_dataset(bad, crop=CROP)
    assert buffer.size() == 0
    assert buffer.load_dataset(data, crop=CROP) == 8
