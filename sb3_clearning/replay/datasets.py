"""
Reads datasets: arrays, files, Minari datasets and replay buffers become an :class:`Experience`.

Every consumer of data (the replay buffer, the estimators, the experiments) reads through :func:`read_dataset` or one of the
readers that it chooses from. A new kind of dataset needs one reader, a function that returns an ``Experience``. What may be
larger than memory has a reader in :func:`dataset_chunks`, too.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer

from sb3_clearning.files.array_file import UnreadableFileError
from sb3_clearning.replay.experience import Experience, Values, n_rows, space_of, take
from sb3_clearning.replay.goal_transitions import check_finite, check_range
from sb3_clearning.replay.npz_file import NpzFile
from sb3_clearning.replay.ring import EpisodeRing

#: About how much of an .npz file is read at once.
CHUNK_BYTES = 2**21


def read_dataset(dataset: Any, action_space: spaces.Space | None = None) -> Experience:
    """
    Read a dataset of any kind.

    :param dataset: A mapping of arrays (``observations``, ``actions``, ``next_observations``, ``terminations``,
        ``truncations``; D4RL's names ``terminals`` and ``timeouts`` are known too), the path of such arrays in an .npz file,
        a Minari dataset or its name, an SB3 replay buffer, a :class:`GoalReplayBuffer`, an Experience or the path of its file.
        With neither ``next_observations`` nor ``timeouts``, as in OGBench's files, ``terminals`` is 1 at the last row of each
        episode and says nothing of a true termination
    :param action_space: The actions' space if the data does not have it (None: guessed from the arrays)
    :return: The transitions
    """
    if isinstance(dataset, Experience):
        return dataset
    path = _file_of(dataset)
    if path is not None:
        return _read_file(path, action_space)
    if isinstance(dataset, EpisodeRing):
        return _read_goal_buffer(dataset)
    if isinstance(dataset, ReplayBuffer):
        return _read_sb3_buffer(dataset)
    if isinstance(dataset, Mapping):
        return _read_mapping(dataset, action_space)
    if isinstance(dataset, str) or hasattr(dataset, "iterate_episodes"):
        return read_minari(dataset)
    raise ValueError(
        f"A {type(dataset).__name__} is not a dataset. Pass a mapping of arrays (observations, actions, terminations, "
        "truncations), a Minari dataset or its name, a file's path, or a replay buffer."
    )


def has_spaces(dataset: Any) -> bool:
    """:return: Whether a dataset says what its spaces are: arrays do not"""
    path = _file_of(dataset)
    return not isinstance(dataset, Mapping) and (path is None or path.suffix != ".npz")


@contextmanager
def dataset_chunks(
    dataset: Any, observation_space: spaces.Dict, action_space: spaces.Box
) -> Iterator[Callable[[], Iterable[Experience]]]:
    """
    Read a dataset of any kind in chunks of whole episodes: those of .npz files and Minari datasets are small. A file must fit
    the spaces.

    :return: A function that reads the chunks from the beginning
    """
    path = _file_of(dataset)
    if path is not None and path.suffix == ".npz":
        with _naming(path), NpzFile(path) as file:
            yield lambda: _npz_chunks(file, observation_space, action_space)
    elif path is None and (isinstance(dataset, str) or hasattr(dataset, "iterate_episodes")):
        found = load_minari(dataset)
        yield lambda: minari_episodes(found)
    else:
        experience = read_dataset(dataset, action_space)
        if isinstance(dataset, Mapping) and "next_observations" not in dataset and not any(map(np.any, _flags(dataset))):
            raise _no_end_of(dataset)
        yield lambda: [experience]


# -- arrays ------------------------------------------------------------------------------------------------------------


def read_arrays(
    observations: Values,
    actions: np.ndarray,
    terminations: np.ndarray,
    truncations: np.ndarray,
    next_observations: Values | None = None,
    observation_space: spaces.Space | None = None,
    action_space: spaces.Space | None = None,
) -> Experience:
    """
    :param observations: ``(n, …)``, or a dict of such
    :param next_observations: Like ``observations``. If None, the next state is the following row, and the last transition of
        every episode, whose next state is unknown, is left out
    :param observation_space: None: guessed, like the action space
    :return: The transitions. Episode ends that the flags do not mark are not detected
    """
    observations, actions = _as_arrays(observations), np.asarray(actions)
    terminations, truncations = _as_flags(terminations), _as_flags(truncations)
    n = n_rows(observations)
    lengths = {"observations": n, "actions": len(actions), "terminations": len(terminations), "truncations": len(truncations)}
    if next_observations is not None:
        next_observations = _as_arrays(next_observations)
        lengths["next_observations"] = n_rows(next_observations)
    if len(set(lengths.values())) > 1:
        raise ValueError(f"The arrays of a dataset need the same length, above 0, but have {lengths}.")
    ends = terminations | truncations
    if next_observations is None and n:
        keep = np.flatnonzero(~ends[:-1])  # the row after an episode's last one belongs to the next episode
        if not len(keep):
            raise ValueError("No transition is left: every episode has a single row. Pass `next_observations`.")
        ends = ends[keep + 1] | (np.diff(np.append(keep, n)) > 1)
        terminations = np.zeros(len(keep), dtype=bool)  # the real ending is not in the data
        next_observations = take(observations, keep + 1)
        observations, actions = take(observations, keep), actions[keep]
    return Experience(
        observations,
        actions,
        observations if next_observations is None else next_observations,
        terminations,
        ends,
        space_of(observations) if observation_space is None else observation_space,
        space_of(actions) if action_space is None else action_space,
    )


def _as_flags(values: Any) -> np.ndarray:
    """:return: ``(n,)`` booleans"""
    flags = np.asarray(values).reshape(-1)
    if flags.dtype != bool and not np.isin(flags, (0, 1)).all():
        raise ValueError(f"Ends of episodes are booleans, or 0 and 1, not values like {flags[~np.isin(flags, (0, 1))][0]}.")
    return flags.astype(bool)


#: The names of an episode's end.
_ENDS = ("terminations", "terminals", "truncations", "timeouts")
#: Other names for it, too vague or misspelled. Ends that are not read would join episodes silently.
_UNCLEAR_ENDS = {"dones", "done", "ends", "termination", "terminated", "terminal", "truncation", "truncated", "timeout"}


def _check_names(names: Iterable[str]) -> None:
    missing = [name for name in ("observations", "actions") if name not in names]
    if missing:
        raise ValueError(f"The dataset lacks {missing}; it has {sorted(names)}.")
    unclear = sorted(_UNCLEAR_ENDS & set(names))
    if unclear:
        raise ValueError(
            f"The dataset has {unclear[0]!r}: name the ends of episodes `terminations` (the state is final) and `truncations` "
            "(a time limit, or the data just ends)."
        )


def _read_mapping(data: Mapping[str, Any], action_space: spaces.Space | None) -> Experience:
    _check_names(data)
    next_observations = data.get("next_observations")
    experience = read_arrays(
        data["observations"], data["actions"], *_flags(data), next_observations, action_space=action_space
    )
    if next_observations is None:
        return experience
    return replace(experience, ends=experience.ends | _resets(experience.observations, experience.next_observations))


def _flags(data: Mapping[str, Any]) -> tuple[Any, Any]:
    """:return: Terminations and truncations of a mapping"""
    never = np.zeros(n_rows(data["observations"]), dtype=bool)
    if "terminals" in data and not {"next_observations", "timeouts", "terminations", "truncations"} & set(data):
        # OGBench's layout: a trajectory's last row is marked, and its action leads to a state that is not in the data.
        return never, data["terminals"]
    return data.get("terminations", data.get("terminals", never)), data.get("truncations", data.get("timeouts", never))


def _as_arrays(values: Any) -> Values:
    if isinstance(values, Mapping):
        return {key: np.asarray(value) for key, value in values.items()}
    return np.asarray(values)


def _resets(observations: Values, next_observations: Values) -> np.ndarray:
    """:return: ``(n,)``, where the following row differs from the next observation: the environment was reset"""
    if isinstance(observations, Mapping):
        missing = set(observations) - set(next_observations) if isinstance(next_observations, Mapping) else set(observations)
        if missing - {"desired_goal"}:
            raise ValueError(f"`next_observations` needs the keys of `observations`, and lacks {sorted(missing)}.")
        assert isinstance(next_observations, Mapping)
        # A commanded goal may change within an episode; it is not part of the state.
        parts = [_resets(observations[key], next_observations[key]) for key in observations if key != "desired_goal"]
        return np.logical_or.reduce(parts)
    assert isinstance(next_observations, np.ndarray)
    if observations.shape != next_observations.shape:
        raise ValueError(
            f"Observations and next observations need the same shape, not {observations.shape} and {next_observations.shape}."
        )
    resets = np.zeros(len(observations), dtype=bool)
    if len(resets) > 1:
        resets[:-1] = (observations[1:] != next_observations[:-1]).reshape(len(resets) - 1, -1).any(axis=1)
    return resets


# -- files -------------------------------------------------------------------------------------------------------------


def _file_of(dataset: Any) -> Path | None:
    """:return: The path if a dataset is a file. Other strings are names of Minari datasets"""
    if isinstance(dataset, str) and not dataset.endswith((".npz", ".safetensors")) and not os.path.isfile(dataset):
        return None
    return Path(dataset) if isinstance(dataset, (str, os.PathLike)) else None


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Errors name the file."""
    try:
        yield
    except ValueError as error:
        kind = UnreadableFileError if isinstance(error, UnreadableFileError) else ValueError
        raise kind(f"{path}: {error}") from error


def _read_file(path: Path, action_space: spaces.Space | None) -> Experience:
    if path.suffix != ".npz":
        return Experience.load(path)
    with _naming(path), NpzFile(path) as file:
        return _read_mapping(_join(list(file.blocks(_npz_columns(file), CHUNK_BYTES))), action_space)


def _npz_columns(file: NpzFile) -> list[str]:
    """:return: The arrays to read, which fit together. Others, as OGBench's ``qpos``, are not needed"""
    _check_names(file.names)
    columns = [name for name in ("observations", "actions", "next_observations", *_ENDS) if name in file.names]
    shapes = {name: file.header(name).shape for name in columns}
    lengths = {name: shape[0] for name, shape in shapes.items()}
    if len(set(lengths.values())) > 1 or not lengths["observations"]:
        raise ValueError(f"The arrays of a dataset need the same length, above 0, but have {lengths}.")
    if shapes.get("next_observations", shapes["observations"]) != shapes["observations"]:
        raise ValueError(f"`observations` and `next_observations` need the same shape, but have {shapes}.")
    for name in set(_ENDS) & set(columns):
        if np.prod(shapes[name]) != lengths[name]:
            raise ValueError(f"`{name}` needs one value a row, but has the shape {shapes[name]}.")
    ends = [name for name in columns if name in _ENDS]
    # With next observations, an episode also ends where the following row is another state.
    if "next_observations" not in columns and not (
        ends and any(block[name].any() for block in file.blocks(ends, CHUNK_BYTES) for name in ends)
    ):
        raise _no_end_of(file.names)
    return columns


def _no_end_of(names: Iterable[str]) -> ValueError:
    return ValueError(
        f"No row ends an episode: the arrays are {sorted(names)}. Mark the last row of each episode in `terminals`, "
        "or in `terminations` and `truncations`."
    )


def _npz_chunks(file: NpzFile, observation_space: spaces.Dict, action_space: spaces.Box) -> Iterator[Experience]:
    columns = _npz_columns(file)
    for name, space in (("observations", observation_space["observation"]), ("actions", action_space)):
        shape, expected = file.header(name).shape, space.shape or ()
        if shape[1:] != expected:
            raise ValueError(f"`{name}` has the shape {shape}, but {(shape[0], *expected)} is needed.")
    first, any_left = 0, False
    waiting: list[Values] = []  # parts of an episode whose end has not been read
    for block in file.blocks(columns, CHUNK_BYTES):
        for name in columns:
            check_finite(f"`{name}` has", block[name], first, "row")
        check_range("`actions`", block["actions"], action_space, first, "row")
        first += len(block["actions"])
        last = np.flatnonzero(_ends_of(block))
        if len(last):
            chunk = _join([*waiting, take(block, slice(last[-1] + 1))])
            if _has_transitions(chunk):
                any_left = True
                yield _read_mapping(chunk, action_space)
            waiting = [take(block, slice(last[-1] + 1, None))]
        else:
            waiting.append(block)
    rest = _join(waiting)
    if _has_transitions(rest):
        yield _read_mapping(rest, action_space)
    elif not any_left:
        raise ValueError("No transition is left: every episode has a single row. Add `next_observations`.")


def _ends_of(block: Mapping[str, np.ndarray]) -> np.ndarray:
    """:return: ``(n,)``, the rows that are known to end an episode"""
    ends = np.logical_or(*(_as_flags(flags) for flags in _flags(block)))
    if "next_observations" in block:
        ends = ends | _resets(block["observations"], block["next_observations"])
    return ends


def _has_transitions(data: Mapping[str, np.ndarray]) -> bool:
    """:return: Whether there is a row with a next state"""
    if "next_observations" in data:
        return len(data["actions"]) > 0
    return not _ends_of(data)[:-1].all()


def _join(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Mapping):
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return np.concatenate(parts)


# -- Minari ------------------------------------------------------------------------------------------------------------


def read_minari(dataset: Any) -> Experience:
    """:return: A Minari dataset's transitions. An episode is over after its last one, even if nothing in the data says so"""
    parts = list(minari_episodes(load_minari(dataset)))
    columns = ("observations", "actions", "next_observations", "terminations", "ends")
    return replace(parts[0], **{name: _join([getattr(part, name) for part in parts]) for name in columns})


def minari_episodes(dataset: Any) -> Iterator[Experience]:
    """:return: The episodes of a Minari dataset, one after the other"""
    empty = True
    for episode in dataset.iterate_episodes():
        actions = np.asarray(episode.actions)
        if not len(actions):
            continue
        observations = _as_arrays(episode.observations)  # one state more than there are actions
        empty = False
        yield Experience(
            take(observations, slice(None, -1)),
            actions,
            take(observations, slice(1, None)),
            np.asarray(episode.terminations, dtype=bool),
            np.arange(len(actions)) == len(actions) - 1,
            dataset.observation_space,
            dataset.action_space,
        )
    if empty:
        raise ValueError("The Minari dataset has no episodes.")


def load_minari(dataset: Any) -> Any:
    """:return: The Minari dataset, if it is not one but the name of one"""
    if not isinstance(dataset, str):
        if not hasattr(dataset, "iterate_episodes"):
            raise ValueError(f"A {type(dataset).__name__} is not a Minari dataset: pass one, or its name.")
        return dataset
    try:
        import minari
    except ImportError as error:
        raise ImportError('Minari is not installed: pip install "sb3_clearning[envs]"') from error
    try:
        return minari.load_dataset(dataset)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"There is neither a file {dataset} (an .npz file, or what `Experience.save` wrote) nor a Minari dataset of this "
            f"name on this machine: for one of Minari's run `minari download {dataset}` first."
        ) from error


# -- replay buffers ----------------------------------------------------------------------------------------------------


def _unscaled(actions: np.ndarray, space: spaces.Space) -> np.ndarray:
    """:return: The actions in the space's own range. SB3's off-policy algorithms store continuous ones within [-1, 1]"""
    if not isinstance(space, spaces.Box):
        return actions.reshape(len(actions)).astype(np.int64)
    actions = actions.reshape(len(actions), *space.shape)
    return (space.low + 0.5 * (actions + 1.0) * (space.high - space.low)).astype(np.float32)


def _read_goal_buffer(buffer: EpisodeRing) -> Experience:
    observations, next_observations, actions, terminations, truncations = buffer.transitions()
    return Experience(
        observations,
        _unscaled(actions, buffer.action_space),
        next_observations,
        terminations,
        terminations | truncations,
        buffer.observation_space,
        buffer.action_space,
    )


def _read_sb3_buffer(buffer: ReplayBuffer) -> Experience:
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
        observations, next_observations = flat(buffer.observations), flat(np.roll(buffer.observations, -1, axis=0))
    else:
        observations, next_observations = flat(buffer.observations), flat(buffer.next_observations)
    if isinstance(buffer.observation_space, spaces.Discrete):
        observations, next_observations = (
            np.asarray(values).reshape(-1).astype(int) for values in (observations, next_observations)
        )
    dones = flat(buffer.dones).astype(bool)
    truncated = flat(buffer.timeouts).astype(bool)
    is_newest = np.tile(order == newest, buffer.n_envs)
    ends = dones | truncated | is_newest | _resets(observations, next_observations)
    actions, terminations = _unscaled(flat(buffer.actions), buffer.action_space), dones & ~truncated
    if buffer.optimize_memory_usage:
        # A final state is overwritten by the first one of the next episode, if that has begun: the transition is unknown.
        keep = np.flatnonzero(~(dones | truncated) | is_newest)
        ends = ends[keep] | (np.diff(np.append(keep, len(ends))) > 1)
        observations, next_observations = take(observations, keep), take(next_observations, keep)
        actions, terminations = actions[keep], terminations[keep]
    return Experience(
        observations, actions, next_observations, terminations, ends, buffer.observation_space, buffer.action_space
    )
