"""
Reads datasets: arrays, Minari datasets and replay buffers become an :class:`Experience`.

Every consumer of data (the replay buffer, the estimators, the experiments) reads through :func:`read_dataset` or one of the
readers that it chooses from. A new kind of dataset needs one reader, a function that returns an ``Experience``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer

from sb3_clearning.goal_spaces import Crop, crop_observation
from sb3_clearning.replay.ring import EpisodeRing
from sb3_clearning.replay.transitions import Transitions

#: Observations, actions or goals: an array with one value per row, or a dict of such arrays.
Values = np.ndarray | Mapping[str, np.ndarray]


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

    def __post_init__(self) -> None:
        if len(self) == 0:
            raise ValueError("The dataset is empty: collect or load some transitions first.")

    def __len__(self) -> int:
        return len(self.actions)

    def last(self) -> np.ndarray:
        """:return: For each transition the index of the last one of its episode"""
        closed = self.ends.copy()
        closed[-1] = True
        last = np.flatnonzero(closed)
        return last[np.searchsorted(last, np.arange(len(closed)))]


def space_of(values: Values) -> spaces.Space:
    """
    :param values: Values without a space, ``(n, …)``, or a dict of such
    :return: The space that they seem to come from; integers ``(n,)`` are the values of a Discrete space
    """
    if isinstance(values, Mapping):
        return spaces.Dict({key: space_of(value) for key, value in values.items()})
    values = np.asarray(values)
    if np.issubdtype(values.dtype, np.integer) and values.ndim == 1:
        if values.size and values.min() < 0:
            raise ValueError(f"Integers are read as values 0, 1, … of a Discrete space, but {values.min()} is among them.")
        return spaces.Discrete(int(values.max()) + 1 if values.size else 1)
    if values.dtype == np.uint8:
        return spaces.Box(0, 255, values.shape[1:], np.uint8)
    return spaces.Box(-np.inf, np.inf, values.shape[1:], np.float32)


def take(values: Values, index: np.ndarray | slice | None) -> Values:
    """
    :param values: ``(n, …)``, or a dict of such
    :param index: Rows; None: all values are one row
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


def read_dataset(dataset: Any, action_space: spaces.Space | None = None) -> Experience:
    """
    Read a dataset of any kind.

    :param dataset: A mapping of arrays (``observations``, ``actions``, ``next_observations``, ``terminations``,
        ``truncations``; D4RL's names ``terminals`` and ``timeouts`` are known too), a Minari dataset or its name, an SB3
        replay buffer, a :class:`GoalReplayBuffer`, or an Experience
    :param action_space: The actions' space if the data does not have it (None: guessed from the arrays)
    :return: The transitions
    """
    if isinstance(dataset, Experience):
        return dataset
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
        "truncations), a Minari dataset or its name, or a replay buffer."
    )


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
    :param actions: ``(n, …)``
    :param terminations: ``(n,)``
    :param truncations: ``(n,)``
    :param next_observations: Like ``observations``. If None, the next state is the following row, and the last transition of
        every episode, whose next state is unknown, is left out
    :param observation_space: None: guessed
    :param action_space: None: guessed
    :return: The transitions. Episode ends that the flags do not mark are not detected
    """
    observations, actions = _as_arrays(observations), np.asarray(actions)
    terminations, truncations = (np.asarray(flags, dtype=bool).reshape(-1) for flags in (terminations, truncations))
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


#: Other names for an episode's end, too vague or misspelt. Ends that are not read would join episodes silently.
_UNCLEAR_ENDS = {"dones", "done", "ends", "termination", "terminated", "terminal", "truncation", "truncated", "timeout"}


def _read_mapping(data: Mapping[str, Any], action_space: spaces.Space | None) -> Experience:
    missing = [name for name in ("observations", "actions") if name not in data]
    if missing:
        raise ValueError(f"The dataset lacks {missing}; it has {sorted(data)}.")
    unclear = sorted(_UNCLEAR_ENDS & set(data))
    if unclear:
        raise ValueError(
            f"The dataset has {unclear[0]!r}: name the ends of episodes `terminations` (the state is final) and `truncations` "
            "(a time limit, or the data just ends)."
        )
    observations, next_observations = data["observations"], data.get("next_observations")
    never = np.zeros(n_rows(observations), dtype=bool)
    terminations = data.get("terminations", data.get("terminals", never))
    truncations = data.get("truncations", data.get("timeouts", never))
    experience = read_arrays(
        observations, data["actions"], terminations, truncations, next_observations, action_space=action_space
    )
    if next_observations is None:
        return experience
    return replace(experience, ends=experience.ends | _resets(experience.observations, experience.next_observations))


def _as_arrays(values: Any) -> Values:
    if isinstance(values, Mapping):
        return {key: np.asarray(value) for key, value in values.items()}
    return np.asarray(values)


def _resets(observations: Values, next_observations: Values) -> np.ndarray:
    """:return: ``(n,)``, where the following row differs from the next observation: the environment was reset"""
    if isinstance(observations, Mapping):
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


# -- Minari ------------------------------------------------------------------------------------------------------------


def read_minari(dataset: Any) -> Experience:
    """
    :param dataset: A Minari dataset, or the name of one that is on this machine
    :return: Its transitions. An episode is over after its last one, even if nothing in the data says so
    """
    dataset = _load_minari(dataset)
    states, actions, next_states, terminations, ends = [], [], [], [], []
    for episode in dataset.iterate_episodes():
        observations = _as_arrays(episode.observations)  # one state more than there are actions
        states.append(take(observations, slice(None, -1)))
        next_states.append(take(observations, slice(1, None)))
        actions.append(np.asarray(episode.actions))
        terminations.append(np.asarray(episode.terminations, dtype=bool))
        ends.append(np.arange(len(actions[-1])) == len(actions[-1]) - 1)
    if not states:
        raise ValueError("The Minari dataset has no episodes.")

    def join(parts: list[Any]) -> Any:
        if isinstance(parts[0], Mapping):
            return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        return np.concatenate(parts)

    return Experience(
        join(states),
        join(actions),
        join(next_states),
        join(terminations),
        join(ends),
        dataset.observation_space,
        dataset.action_space,
    )


def _load_minari(dataset: Any) -> Any:
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
            f"The Minari dataset {dataset} is not on this machine: run `minari download {dataset}` first."
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


# -- for the goal buffer -----------------------------------------------------------------------------------------------


def with_achieved_goals(observations: Values, crop: Crop) -> dict[str, np.ndarray]:
    """
    :param observations: A dict of arrays, or one array for the key ``observation``
    :param crop: The achieved goal as a part of the observation, if the data has none
    :return: The observations as a dict that has at least ``observation`` and ``achieved_goal``
    """
    if not isinstance(observations, Mapping):
        observations = {"observation": np.asarray(observations)}
    result = {key: np.asarray(value) for key, value in observations.items()}
    if "observation" not in result:
        raise ValueError(f'The dataset\'s observations have no key "observation", only {sorted(result)}.')
    if "achieved_goal" not in result:
        result["achieved_goal"] = crop_observation(result["observation"], crop)
    return result


def goal_transitions(experience: Experience, space: spaces.Dict, action_space: spaces.Box, crop: Crop) -> Transitions:
    """
    Check that data fits a goal environment, and complete its goals. Where the data has no ``desired_goal``, an episode's is
    the last goal that it reached.

    :param experience: The data
    :param space: The environment's observation space
    :param action_space: The environment's action space
    :param crop: See :func:`with_achieved_goals`
    :return: The transitions, as a replay buffer stores them
    """
    n = len(experience)
    scaled = _scaled(experience.actions, action_space, n)
    states = with_achieved_goals(experience.observations, crop)
    next_states = with_achieved_goals(experience.next_observations, crop)
    if "desired_goal" not in states:
        states["desired_goal"] = next_states["desired_goal"] = next_states["achieved_goal"][experience.last()]
    next_states.setdefault("desired_goal", states["desired_goal"])
    _check_observations("The observations", states, space, n)
    _check_observations("The next observations", next_states, space, n)
    truncations = experience.ends & ~experience.terminations
    return Transitions(states, next_states, scaled, experience.terminations, truncations)


def _check_observations(name: str, observations: dict[str, np.ndarray], space: spaces.Dict, n: int) -> None:
    for key, part in space.spaces.items():
        if key not in observations:
            raise ValueError(f"{name} of the dataset lack the environment's key `{key}`; they have {sorted(observations)}.")
        expected = (n, *part.shape)  # type: ignore[misc]
        if observations[key].shape != expected:
            hint = " Pass `crop` to say which part of the observation is the goal." if key == "achieved_goal" else ""
            raise ValueError(
                f"{name} of the dataset do not fit the environment: the key `{key}` has the shape {observations[key].shape}, "
                f"but {expected} is needed.{hint}"
            )
        if not np.isfinite(observations[key]).all():
            raise ValueError(f"{name} of the dataset have NaN or inf in the key `{key}`.")


def _scaled(actions: np.ndarray, space: spaces.Box, n: int) -> np.ndarray:
    """:return: The actions, from the range of the action space to [-1, 1]"""
    actions = np.asarray(actions, dtype=np.float32)
    if actions.shape != (n, *space.shape):
        raise ValueError(f"The dataset's actions have the shape {actions.shape}, but {(n, *space.shape)} is needed.")
    if not np.isfinite(actions).all():
        raise ValueError("The dataset's actions have NaN or inf.")
    if (actions < space.low - 1e-4).any() or (actions > space.high + 1e-4).any():
        raise ValueError(
            f"The dataset's actions lie outside of the environment's action space {space}: they range from "
            f"{actions.min():.3g} to {actions.max():.3g}. Clip or rescale them, in the same way as when they were applied."
        )
    return (2.0 * (actions - space.low) / (space.high - space.low) - 1.0).reshape(n, -1)
