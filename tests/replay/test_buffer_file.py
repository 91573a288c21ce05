"""The buffer's own file: histories against the list of trajectories, and files that are not what they should be."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sb3_clearning.files.array_file import UnreadableFileError, from_bytes, to_bytes
from sb3_clearning.replay.goal_buffer import GOAL_KINDS, GoalReplayBuffer
from tests.support.ring_invariants import check_invariants
from tests.support.trajectories import ACTION_SPACE, LAYOUTS, State, Trajectories, floats

ALL_KINDS = dict.fromkeys(GOAL_KINDS, 1 / len(GOAL_KINDS))
EVENTS = ["go"] * 5 + ["terminate", "truncate", "interrupt"]
BETWEEN = ["sample"] * 3 + ["save and load", "truncate", "truncate and reset", "resize", "shrink", "grow", "damaged file"]


def _resize(trajectories: Trajectories, n_envs: int, buffer_size: int, path: Path) -> None:
    """Load into a buffer of other environments, and do with the lists what its documentation says."""
    before = trajectories.buffer
    before.save(path)
    trajectories.buffer = GoalReplayBuffer(buffer_size, trajectories.space, ACTION_SPACE, device="cpu", n_envs=n_envs)
    trajectories.buffer.load(path)
    capacity = trajectories.capacity = max(buffer_size // n_envs, 1)
    old, finals, ended = trajectories.transitions, trajectories.final, trajectories.terminated
    sequence = [item for transitions in old for item in transitions[len(transitions) - before.size() :]][-capacity * n_envs :]
    length = len(sequence) // n_envs
    # A trajectory's part in another piece is a trajectory by itself, and ends where the piece ends.
    trajectories.transitions = [[] for _ in range(n_envs)]
    trajectories.final, trajectories.terminated = {}, set()
    names: dict[Any, tuple[int, int]] = {}
    for piece in range(n_envs):
        for state, trajectory in sequence[piece * length : (piece + 1) * length]:
            renamed = names.setdefault((piece, trajectory), (-1, len(names)))
            trajectories.transitions[piece].append((state, renamed))
            trajectories.final[renamed] = state.later()
            if trajectory in ended and finals[trajectory] == state.later():
                trajectories.terminated.add(renamed)
    trajectories.n_envs = n_envs
    episode = max((state.episode for transitions in old for state, _ in transitions), default=0) + 1
    trajectories.states = [State(env, episode, 0) for env in range(n_envs)]
    trajectories.cuts = [0] * n_envs


def _damage(trajectories: Trajectories, path: Path, where: float) -> None:
    """A file that is cut off or changed leaves the buffer as it is."""
    trajectories.buffer.save(path)
    data = bytearray(path.read_bytes())
    place = int(where * (len(data) - 1))
    path.write_bytes(data[:place])
    storage = trajectories.buffer.rows
    with pytest.raises(UnreadableFileError, match="Nothing was changed"):
        trajectories.buffer.load(path)
    data[place] ^= 0x41
    path.write_bytes(data)
    with pytest.raises(UnreadableFileError, match="Nothing was changed"):
        trajectories.buffer.load(path)
    assert trajectories.buffer.rows is storage


def _history(folder: Path, data: st.DataObject, layout: str, n_envs: int, buffer_size: int, n_steps: int) -> None:
    path = folder / "buffer.safetensors"
    trajectories = Trajectories(LAYOUTS[layout], buffer_size, n_envs)
    for _ in range(n_steps):
        trajectories.step(
            data.draw(st.lists(st.sampled_from(EVENTS), min_size=trajectories.n_envs, max_size=trajectories.n_envs))
        )
        between = data.draw(st.sampled_from(BETWEEN))
        if between == "save and load":
            trajectories.buffer.save(path)
            trajectories.buffer = GoalReplayBuffer(
                buffer_size, trajectories.space, ACTION_SPACE, device="cpu", n_envs=trajectories.n_envs
            )
            trajectories.buffer.load(path)
        elif between in ("shrink", "grow"):
            if between == "grow":  # what the smaller buffer has lost does not come back
                kept = trajectories.buffer.size()
                trajectories.transitions = [found[len(found) - kept :] for found in trajectories.transitions]
            buffer_size = data.draw(st.integers(1, buffer_size) if between == "shrink" else st.integers(buffer_size, 48))
            trajectories.buffer.save(path)
            trajectories.buffer = GoalReplayBuffer(
                buffer_size, trajectories.space, ACTION_SPACE, device="cpu", n_envs=trajectories.n_envs
            )
            trajectories.buffer.load(path)
            trajectories.capacity = max(buffer_size // trajectories.n_envs, 1)
        elif between == "resize":
            other = data.draw(st.integers(1, 3).filter(lambda n: n != trajectories.n_envs))
            _resize(trajectories, other, buffer_size, path)
        elif between.startswith("truncate"):
            trajectories.truncate(reset=between.endswith("reset"))
        elif between == "damaged file":
            _damage(trajectories, path, data.draw(st.floats(0, 1)))
        check_invariants(trajectories.buffer)
        if trajectories.buffer.size():
            gamma, absorbing = data.draw(st.sampled_from([0.0, 0.7, 1.0])), data.draw(st.booleans())
            for batch in trajectories.buffer.sample_goals(17, ALL_KINDS, gamma=gamma, absorbing=absorbing, n_batches=2):
                trajectories.check(batch)
        found = {State(*map(int, row)) for row in _observations(trajectories.buffer)}
        assert found == set(trajectories.stored())


def _observations(buffer: GoalReplayBuffer) -> np.ndarray:
    return buffer.observations["observation"][: buffer.size()].reshape(buffer.size() * buffer.n_envs, 3)


HISTORY: dict[str, Any] = {
    "data": st.data(),
    "layout": st.sampled_from(list(LAYOUTS)),
    "n_envs": st.integers(1, 3),
    "buffer_size": st.integers(1, 24),  # it may grow to 48
}
QUICK: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}


@settings(max_examples=100, **QUICK)
@given(n_steps=st.integers(1, 12), **HISTORY)
def test_histories(tmp_path: Path, **history: Any) -> None:
    _history(tmp_path, **history)


@pytest.mark.slow
@settings(max_examples=10_000, **QUICK)
@given(n_steps=st.integers(1, 25), **HISTORY)
def test_ten_thousand_histories(tmp_path: Path, **history: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)  # a hundred thousand files; no power is lost here
        _history(tmp_path, **history)


# -- files that do not fit -------------------------------------------------------------------------------------------------


def _filled(layout: str = "camera", n_envs: int = 2, steps: int = 20) -> Trajectories:
    trajectories = Trajectories(LAYOUTS[layout], 24, n_envs)
    for step in range(steps):
        trajectories.step(["terminate" if step % 7 == 6 else "truncate" if step % 5 == 4 else "go"] * n_envs)
    return trajectories


def test_a_buffer_of_other_spaces(tmp_path: Path) -> None:
    _filled("floats").buffer.save(tmp_path / "buffer")
    with pytest.raises(UnreadableFileError, match="holds a buffer of other spaces"):
        _filled("camera").buffer.load(tmp_path / "buffer")
    wider = GoalReplayBuffer(24, LAYOUTS["floats"], spaces.Box(-2, 1, (3,)), n_envs=2)
    with pytest.raises(UnreadableFileError, match="other spaces"):
        wider.load(tmp_path / "buffer")
    bounded = spaces.Dict(observation=floats(3), achieved_goal=floats(4), desired_goal=floats(4))
    with pytest.raises(UnreadableFileError, match="other spaces"):
        GoalReplayBuffer(24, bounded, ACTION_SPACE).load(tmp_path / "buffer")


@pytest.mark.parametrize("n_envs", [1, 2, 3])
def test_an_empty_buffer(n_envs: int, tmp_path: Path) -> None:
    Trajectories(LAYOUTS["floats"], 24, 2).buffer.save(tmp_path / "empty")
    trajectories = _filled("floats", n_envs)
    trajectories.buffer.load(tmp_path / "empty")
    assert trajectories.buffer.size() == 0


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    buffer = _filled().buffer
    with pytest.raises(UnreadableFileError, match="There is no file"):
        buffer.load(tmp_path / "missing")
    with pytest.raises(UnreadableFileError, match="cannot be read"):
        buffer.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        buffer.save(tmp_path / "missing" / "buffer")
    assert buffer.size() == 12


def test_a_version_of_the_future_and_another_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "buffer"
    buffer = _filled().buffer
    monkeypatch.setattr("sb3_clearning.files.array_file.VERSION", 2)
    buffer.save(path)
    monkeypatch.undo()
    with pytest.raises(UnreadableFileError, match=r"layout's version '2'.*reads version 1: install"):
        buffer.load(path)
    path.write_bytes(to_bytes("export", {}, {}))
    with pytest.raises(UnreadableFileError, match=r"holds 'sb3_clearning\.export', not 'sb3_clearning\.buffer'"):
        buffer.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content, arrays: content.update(added=10**30), "arrays do not fit"),
        (lambda content, arrays: content.update(added=-1), "Invalid range of steps"),
        (lambda content, arrays: content.update(oldest="0"), "Invalid range of steps|not a buffer"),
        (lambda content, arrays: content.pop("n_envs"), "not a buffer"),
        (lambda content, arrays: content.update(n_envs=10**9), "Invalid number of environments"),
        (lambda content, arrays: content.update(n_envs=3), "do not fit"),
        (lambda content, arrays: arrays.pop("rows"), "do not fit"),
        (lambda content, arrays: arrays.update(rows=arrays["rows"][:, :1]), "do not fit"),
        (lambda content, arrays: arrays.update(rows=arrays["rows"].astype(np.float64)), "do not fit"),
        (lambda content, arrays: arrays.update(rows=np.full_like(arrays["rows"], np.nan)), "NaN or inf"),
        (lambda content, arrays: arrays.update(ends=np.full_like(arrays["ends"], 3)), "do not fit|Unknown kind"),
        (lambda content, arrays: arrays.update({"head/open": ~arrays["head/open"]}), "episodes in progress do not fit"),
        (lambda content, arrays: arrays.update({"head/length": arrays["head/length"] + 1}), "episodes in progress do not fit"),
        (lambda content, arrays: arrays.update({"final": arrays["final"][1:]}), "do not fit"),
    ],
)
def test_a_file_with_a_right_checksum_and_wrong_content(change: Any, message: str, tmp_path: Path) -> None:
    path, trajectories = tmp_path / "buffer", _filled(steps=33)
    trajectories.buffer.save(path)
    content, arrays = from_bytes("buffer", path.read_bytes())
    content, arrays = json.loads(json.dumps(content)), dict(arrays)
    change(content, arrays)
    path.write_bytes(to_bytes("buffer", content, arrays))
    with pytest.raises(UnreadableFileError, match=message):
        trajectories.buffer.load(path)
    check_invariants(trajectories.buffer)
    trajectories.check(trajectories.buffer.sample_goals(50, ALL_KINDS)[0])


def test_saving_over_a_file_keeps_the_old_one_if_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, buffer = tmp_path / "buffer", _filled().buffer
    buffer.save(path)
    before = path.read_bytes()

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        _filled(steps=25).buffer.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["buffer"]
