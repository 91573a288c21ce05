"""Experience: transitions in order of time, from arrays, a Minari dataset or a replay buffer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer

from sb3_clearning.replay.datasets import last_of_episode, load_minari_dataset
from sb3_clearning.replay.ring import EpisodeRing

#: Observations, actions or goals: an array with one value per row, or a dict of such arrays.
Values = np.ndarray | Mapping[str, np.ndarray]


def space_of(values: Values) -> spaces.Space:
    """
    The space that data without one seems to come from: whole numbers ``(n,)`` are those of a Discrete space.

    :param values: The data's values, ``(n, …)``, or a dict of such
    :return: The space
    """
    if isinstance(values, Mapping):
        return spaces.Dict({key: space_of(value) for key, value in values.items()})
    values = np.asarray(values)
    if np.issubdtype(values.dtype, np.integer) and values.ndim == 1:
        if values.size and values.min() < 0:
            raise ValueError(
                f"Whole numbers stand for the values 0, 1, … of a Discrete space, but {values.min()} is among them."
            )
        return spaces.Discrete(int(values.max()) + 1 if values.size else 1)
    if values.dtype == np.uint8:
        return spaces.Box(0, 255, values.shape[1:], np.uint8)
    return spaces.Box(-np.inf, np.inf, values.shape[1:], np.float32)


@dataclass(frozen=True)
class Experience:
    """
    Transitions in order of time.

    :param observations: ``(n, …)``, or a dict of such
    :param actions: ``(n, …)``, in the range of the action space
    :param next_observations: Like ``observations``; at an episode's end the final ones
    :param terminations: ``(n,)``, whether the environment terminated after the transition
    :param ends: ``(n,)``, whether the next row belongs to another episode
    :param observation_space: The observations' space
    :param action_space: The actions' space
    """

    observations: Values
    actions: np.ndarray
    next_observations: Values
    terminations: np.ndarray
    ends: np.ndarray
    observation_space: spaces.Space
    action_space: spaces.Space

    def __len__(self) -> int:
        return len(self.actions)

    def last(self) -> np.ndarray:
        """:return: For each transition the index of the last one of its episode"""
        return last_of_episode(self.ends)


def take(values: Values, index: np.ndarray | slice) -> Values:
    """
    :param values: ``(n, …)``, or a dict of such
    :param index: Rows
    :return: These rows
    """
    if isinstance(values, Mapping):
        return {key: np.asarray(value)[index] for key, value in values.items()}
    return np.asarray(values)[index]


def n_rows(values: Values) -> int:
    """
    :param values: ``(n, …)``, or a dict of such
    :return: n
    """
    if isinstance(values, Mapping):
        lengths = {key: len(value) for key, value in values.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"The keys of the observations need the same length, but have {lengths}.")
        return next(iter(lengths.values()))
    return len(values)


def experience_from(dataset: Any, action_space: spaces.Space | None = None) -> Experience:
    """
    Read a dataset of any kind.

    :param dataset: A mapping of arrays (``observations``, ``actions``, ``next_observations``, ``terminations``,
        ``truncations``; D4RL's names ``terminals`` and ``timeouts`` are known too), a Minari dataset or the name of one,
        an SB3 replay buffer, a :class:`GoalReplayBuffer`, or an Experience
    :param action_space: The actions' space if the data does not say (else: guessed from the arrays)
    :return: The transitions
    """
    if isinstance(dataset, Experience):
        result = dataset
    elif isinstance(dataset, EpisodeRing):
        result = _from_goal_buffer(dataset)
    elif isinstance(dataset, ReplayBuffer):
        result = _from_sb3_buffer(dataset)
    elif isinstance(dataset, Mapping):
        result = _from_arrays(dataset, action_space)
    elif isinstance(dataset, str) or hasattr(dataset, "iterate_episodes"):
        result = _from_minari(dataset)
    else:
        raise ValueError(
            f"A {type(dataset).__name__} is no dataset. Give a mapping of arrays (observations, actions, terminations, "
            "truncations), a Minari dataset or its name, or a replay buffer."
        )
    if len(result) == 0:
        raise ValueError("The dataset is empty: collect or load some transitions first.")
    return result


def _ends_of(data: Mapping[str, Any], names: tuple[str, str], n: int) -> np.ndarray:
    for name in names:
        if name in data:
            ends = np.asarray(data[name], dtype=bool).reshape(-1)
            if len(ends) != n:
                raise ValueError(f"`{name}` has the length {len(ends)}, but there are {n} observations.")
            return ends
    return np.zeros(n, dtype=bool)


#: Other words for an episode's end, which say too little or are slips: ends that are not read would join episodes silently.
_UNCLEAR_ENDS = {"dones", "done", "ends", "termination", "terminated", "terminal", "truncation", "truncated", "timeout"}


def _from_arrays(data: Mapping[str, Any], action_space: spaces.Space | None) -> Experience:
    missing = [name for name in ("observations", "actions") if name not in data]
    if missing:
        raise ValueError(f"The dataset lacks {missing}; it has {sorted(data)}.")
    unclear = sorted(_UNCLEAR_ENDS & set(data))
    if unclear:
        raise ValueError(
            f"The dataset has {unclear[0]!r}: name the ends of episodes `terminations` (the state is final) and `truncations` "
            "(a time limit, or the data just ends)."
        )
    observations = _as_arrays(data["observations"])
    actions = np.asarray(data["actions"])
    n = n_rows(observations)
    if len(actions) != n:
        raise ValueError(f"The dataset has {n} observations, but {len(actions)} actions.")
    terminations = _ends_of(data, ("terminations", "terminals"), n)
    truncations = _ends_of(data, ("truncations", "timeouts"), n)
    ends = terminations | truncations
    if data.get("next_observations") is not None:
        next_observations = _as_arrays(data["next_observations"])
        if n_rows(next_observations) != n:
            raise ValueError(f"The dataset has {n} observations, but {n_rows(next_observations)} next observations.")
        ends = ends | _jumps(observations, next_observations)
    else:  # the row after an episode's last one belongs to the next episode
        keep = np.flatnonzero(~ends[:-1])
        if n and not len(keep):
            raise ValueError("No transition is left: every episode has a single row. Pass `next_observations`.")
        following = keep + 1
        ends = ends[following] | (np.diff(np.append(keep, n)) > 1)
        terminations = np.zeros(len(keep), dtype=bool)  # the real ending is not in the data
        next_observations = take(observations, following)
        observations, actions = take(observations, keep), actions[keep]
    space = action_space if action_space is not None else space_of(actions)
    return Experience(observations, actions, next_observations, terminations, ends, space_of(observations), space)


def _as_arrays(values: Any) -> Values:
    if isinstance(values, Mapping):
        return {key: np.asarray(value) for key, value in values.items()}
    return np.asarray(values)


def _jumps(observations: Values, next_observations: Values) -> np.ndarray:
    """:return: ``(n,)``, where the following row does not go on from the next observation: the environment was reset"""
    if isinstance(observations, Mapping):
        assert isinstance(next_observations, Mapping)
        # A commanded goal may change within an episode; it is no part of the state.
        parts = [_jumps(observations[key], next_observations[key]) for key in observations if key != "desired_goal"]
        return np.logical_or.reduce(parts)
    n = len(observations)
    if observations.shape != next_observations.shape:  # type: ignore[union-attr]
        raise ValueError(
            f"Observations and next observations need the same shape, not {observations.shape} and "
            f"{next_observations.shape}."  # type: ignore[union-attr]
        )
    jumps = np.zeros(n, dtype=bool)
    different = observations[1:] != next_observations[:-1]  # type: ignore[index]
    jumps[:-1] = different.reshape(max(n - 1, 0), -1).any(axis=1) if n > 1 else False
    return jumps


def _from_minari(dataset: Any) -> Experience:
    dataset = load_minari_dataset(dataset)
    parts: list[tuple[Values, np.ndarray, Values, np.ndarray, np.ndarray]] = []
    for episode in dataset.iterate_episodes():
        states = _as_arrays(episode.observations)  # one state more than there are actions
        terminations = np.asarray(episode.terminations, dtype=bool)
        ends = np.zeros(len(terminations), dtype=bool)
        ends[-1:] = True
        first, following = take(states, slice(None, -1)), take(states, slice(1, None))
        parts.append((first, np.asarray(episode.actions), following, terminations, ends))
    if not parts:
        raise ValueError("The Minari dataset has no episodes.")

    def join(column: int) -> Any:
        values = [part[column] for part in parts]
        if isinstance(values[0], Mapping):
            return {key: np.concatenate([value[key] for value in values]) for key in values[0]}
        return np.concatenate(values)  # type: ignore[arg-type]

    columns = [join(column) for column in range(5)]
    return Experience(*columns, dataset.observation_space, dataset.action_space)  # type: ignore[call-arg]


def unscaled(actions: np.ndarray, space: spaces.Space) -> np.ndarray:
    """
    SB3's off-policy algorithms store continuous actions within [-1, 1].

    :param actions: ``(n, …)``, as stored
    :param space: The action space
    :return: The actions in the space's own range
    """
    if not isinstance(space, spaces.Box):
        return actions.reshape(len(actions)).astype(np.int64)
    actions = actions.reshape(len(actions), *space.shape)
    return (space.low + 0.5 * (actions + 1.0) * (space.high - space.low)).astype(np.float32)


def _from_goal_buffer(buffer: EpisodeRing) -> Experience:
    found = buffer.transitions()
    actions = unscaled(found.actions, buffer.action_space)
    ends = found.terminations | found.truncations
    return Experience(
        found.observations, actions, found.next_observations, found.terminations, ends, buffer.observation_space,
    buffer.action_space )  # fmt: skip


def _from_sb3_buffer(buffer: ReplayBuffer) -> Experience:
    size, newest = buffer.size(), (buffer.pos - 1) % buffer.buffer_size
    order = (np.arange(size) + (buffer.pos if buffer.full else 0)) % buffer.buffer_size
    if buffer.optimize_memory_usage and buffer.full:
        order = order[1:]  # the oldest row was overwritten by the newest next state

    def flat(array: np.ndarray) -> np.ndarray:
        """One environment after the other."""
        return np.swapaxes(array[order], 0, 1).reshape(-1, *array.shape[2:])

    observations: Values
    next_observations: Values
    if isinstance(buffer, DictReplayBuffer):
        observations = {key: flat(value) for key, value in buffer.observations.items()}
        next_observations = {key: flat(value) for key, value in buffer.next_observations.items()}
    elif buffer.optimize_memory_usage:
        observations = flat(buffer.observations)
        following = (np.arange(buffer.buffer_size) + 1) % buffer.buffer_size
        next_observations = flat(buffer.observations[following])
    else:
        observations, next_observations = flat(buffer.observations), flat(buffer.next_observations)
    space = buffer.observation_space
    if isinstance(space, spaces.Discrete):
        assert isinstance(observations, np.ndarray)
        assert isinstance(next_observations, np.ndarray)
        observations, next_observations = observations.reshape(-1).astype(int), next_observations.reshape(-1).astype(int)
    dones = flat(buffer.dones).astype(bool)
    truncated = flat(buffer.timeouts).astype(bool)
    is_newest = np.tile(order == newest, buffer.n_envs)
    ends = dones | truncated | is_newest
    ends |= _jumps(observations, next_observations)
    actions, terminations = unscaled(flat(buffer.actions), buffer.action_space), dones & ~truncated
    if buffer.optimize_memory_usage:
        # In the place of a final state is the first one of the next episode, if one has begun: that transition is not known.
        keep = np.flatnonzero(~(dones | truncated) | is_newest)
        ends = ends[keep] | (np.diff(np.append(keep, len(ends))) > 1)
        observations, next_observations = take(observations, keep), take(next_observations, keep)
        actions, terminations = actions[keep], terminations[keep]
    return Experience(
        observations, actions, next_observations, terminations, ends, space, buffer.action_space
    )  # fmt: skip
