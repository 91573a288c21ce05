"""Offline data for the replay buffer: plain arrays and Minari datasets become transitions."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import spaces

from sb3_clearning.goal_spaces import crop_indices

if TYPE_CHECKING:
    from sb3_clearning.replay.goal_buffer import GoalReplayBuffer

#: Observations of a dataset: per key, or one array for the key "observation".
Observations = Mapping[str, np.ndarray] | np.ndarray
#: The achieved goal as a part of the observation: indices, a slice, a function of an array ``(…, n)``, or None for all of it.
Crop = Sequence[int] | np.ndarray | slice | Callable[[np.ndarray], np.ndarray] | None


class Transitions(NamedTuple):
    """
    A sequence of transitions in the order in which they happened.

    :param observations: Per key ``(n, …)``
    :param next_observations: Per key ``(n, …)``; at an episode's end the final ones
    :param actions: ``(n, action_dim)``, within [-1, 1]
    :param terminations: ``(n,)``
    :param truncations: ``(n,)``
    """

    observations: dict[str, np.ndarray]
    next_observations: dict[str, np.ndarray]
    actions: np.ndarray
    terminations: np.ndarray
    truncations: np.ndarray


def crop_observation(observation: np.ndarray, crop: Crop) -> np.ndarray:
    """
    :param observation: ``(…, n)``
    :param crop: Indices, a slice, a function, or None for the whole observation
    :return: The cropped observation
    """
    if crop is None:
        return observation
    if callable(crop):
        return np.asarray(crop(observation))
    return observation[..., crop_indices(crop, observation.shape[-1])]


def _with_goals(observations: Observations, crop: Crop) -> dict[str, np.ndarray]:
    """:return: The observations as a dict that has at least ``observation`` and ``achieved_goal``"""
    if not isinstance(observations, Mapping):
        observations = {"observation": np.asarray(observations)}
    result = {key: np.asarray(value) for key, value in observations.items()}
    if "observation" not in result:
        raise ValueError(f'The dataset\'s observations have no key "observation", only {sorted(result)}.')
    if "achieved_goal" not in result:
        result["achieved_goal"] = crop_observation(result["observation"], crop)
    return result


def _check(buffer: "GoalReplayBuffer", name: str, observations: dict[str, np.ndarray], n: int) -> None:
    for key, space in buffer.observation_space.spaces.items():
        if key not in observations:
            raise ValueError(f"{name} of the dataset lack the environment's key `{key}`; they have {sorted(observations)}.")
        expected = (n, *space.shape)  # type: ignore[misc]
        if observations[key].shape != expected:
            hint = " Pass `crop` to say which part of the observation is the goal." if key == "achieved_goal" else ""
            raise ValueError(
                f"{name} of the dataset do not fit the environment: the key `{key}` has the shape {observations[key].shape}, "
                f"but {expected} is needed.{hint}"
            )
        if not np.isfinite(observations[key]).all():
            raise ValueError(f"{name} of the dataset have NaN or inf in the key `{key}`.")


def _scaled(actions: np.ndarray, space: spaces.Space, n: int) -> np.ndarray:
    """:return: The actions, from the range of the action space to [-1, 1]"""
    assert isinstance(space, spaces.Box)
    actions = np.asarray(actions, dtype=np.float32)
    if actions.shape != (n, *space.shape):
        raise ValueError(f"The dataset's actions have the shape {actions.shape}, but {(n, *space.shape)} is needed.")
    if not np.isfinite(actions).all():
        raise ValueError("The dataset's actions have NaN or inf.")
    if (actions < space.low - 1e-4).any() or (actions > space.high + 1e-4).any():
        raise ValueError(
            f"The dataset's actions lie outside of the environment's action space {space}: they range from "
            f"{actions.min():.3g} to "
            f"{actions.max():.3g}. Clip or rescale them, in the same way as when they were applied."
        )
    return (2.0 * (actions - space.low) / (space.high - space.low) - 1.0).reshape(n, -1)


def transitions_from_arrays(
    buffer: "GoalReplayBuffer",
    observations: Observations,
    actions: np.ndarray,
    terminations: np.ndarray,
    truncations: np.ndarray,
    next_observations: Observations | None = None,
    crop: Crop = None,
) -> Transitions:
    """
    Check arrays and make transitions of them. Where the data has no ``desired_goal``, an episode's is the last state that it
    reached.

    :param buffer: The buffer whose spaces they must fit
    :param observations: See :meth:`GoalReplayBuffer.load_arrays`
    :param actions: Likewise
    :param terminations: Likewise
    :param truncations: Likewise
    :param next_observations: Likewise
    :param crop: Likewise
    :return: The transitions
    """
    if isinstance(actions, Mapping):
        raise ValueError(
            "`actions` is a dict. The order is observations, actions, terminations, truncations; pass "
            "`next_observations` by name."
        )
    states = _with_goals(observations, crop)
    n = len(states["observation"])
    terminations, truncations = (np.asarray(ends, dtype=bool).reshape(-1) for ends in (terminations, truncations))
    lengths = {"observations": n, "actions": len(actions), "terminations": len(terminations), "truncations": len(truncations)}
    if next_observations is not None:
        next_states = _with_goals(next_observations, crop)
        lengths["next_observations"] = len(next_states["observation"])
    if n == 0 or len(set(lengths.values())) > 1:
        raise ValueError(f"The arrays of a dataset need the same length, above 0, but have {lengths}.")
    scaled = _scaled(actions, buffer.action_space, n)
    ends = terminations | truncations
    if next_observations is None:
        # The row after an episode's last one belongs to the next episode.
        keep = np.flatnonzero(~ends[:-1])
        cut = ends[1:][keep]  # the last transition that is left of an episode ends it: its real ending is unknown
        cut |= np.diff(np.append(keep, n)) > 1
        next_states = {key: value[keep + 1] for key, value in states.items()}
        states = {key: value[keep] for key, value in states.items()}
        scaled, terminations, truncations = scaled[keep], np.zeros(len(keep), dtype=bool), cut
        ends = truncations
        if len(keep) == 0:
            raise ValueError("No transition is left: every episode has a single row. Pass `next_observations`.")
    if "desired_goal" in buffer.observation_space.spaces and "desired_goal" not in states:
        last = last_of_episode(ends)
        states["desired_goal"] = next_states["desired_goal"] = next_states["achieved_goal"][last]
    elif "desired_goal" not in next_states:
        next_states["desired_goal"] = states["desired_goal"]
    _check(buffer, "The observations", states, len(scaled))
    _check(buffer, "The next observations", next_states, len(scaled))
    return Transitions(states, next_states, scaled, terminations, truncations)


def last_of_episode(ends: np.ndarray) -> np.ndarray:
    """
    :param ends: ``(n,)``, whether the episode is over after the transition
    :return: For each transition the index of the last one of its episode
    """
    closed = ends.copy()
    closed[-1] = True
    last = np.flatnonzero(closed)
    return last[np.searchsorted(last, np.arange(len(ends)))]


def _merge(parts: list[Transitions]) -> Transitions:
    def join(observations: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        return {key: np.concatenate([part[key] for part in observations]) for key in observations[0]}

    return Transitions(
        join([part.observations for part in parts]),
        join([part.next_observations for part in parts]),
        *(np.concatenate([part[i] for part in parts]) for i in (2, 3, 4)),
    )


def load_minari_dataset(dataset: Any) -> Any:
    """
    :param dataset: A Minari dataset, or the name of one that is on this machine
    :return: The dataset
    """
    if not isinstance(dataset, str):
        if not hasattr(dataset, "iterate_episodes"):
            raise ValueError(f"A {type(dataset).__name__} is no Minari dataset: pass one, or its name.")
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


def transitions_from_minari(buffer: "GoalReplayBuffer", dataset: Any, crop: Crop = None) -> Transitions:
    """
    :param buffer: The buffer whose spaces the data must fit
    :param dataset: A Minari dataset, or the name of one that is on this machine
    :param crop: See :meth:`GoalReplayBuffer.load_arrays`
    :return: The transitions
    """
    dataset = load_minari_dataset(dataset)
    parts = []
    for episode in dataset.iterate_episodes():
        states = _with_goals(episode.observations, crop)  # one state more than there are actions
        parts.append(
            transitions_from_arrays(
                buffer,
                {key: value[:-1] for key, value in states.items()},
                episode.actions,
                episode.terminations,
                _cut_at_end(np.asarray(episode.truncations, dtype=bool), np.asarray(episode.terminations, dtype=bool)),
                {key: value[1:] for key, value in states.items()},
            )
        )
    if not parts:
        raise ValueError("The Minari dataset has no episodes.")
    return _merge(parts)


def _cut_at_end(truncations: np.ndarray, terminations: np.ndarray) -> np.ndarray:
    """:return: The truncations, with one at the end: a stored episode is over even if its collection was stopped"""
    result = truncations.copy()
    result[-1] |= not terminations[-1]
    return result


def _streams(transitions: Transitions, n_envs: int) -> Iterator[np.ndarray]:
    """:return: Indices ``(n_envs,)`` to add together: the sequence is cut into as many pieces of equal length"""
    length = len(transitions.actions) // n_envs
    starts = np.arange(n_envs) * length
    for step in range(length):
        yield starts + step


def add_transitions(buffer: "GoalReplayBuffer", transitions: Transitions) -> int:
    """
    Add transitions to the buffer. A buffer of several environments gets as many pieces of equal length; up to ``n_envs - 1``
    transitions that are left over are not added.

    :param buffer: The buffer
    :param transitions: The transitions
    :return: The number of transitions that were added
    """
    capacity = buffer.buffer_size * buffer.n_envs
    if len(transitions.actions) > capacity:
        warnings.warn(
            f"The dataset has {len(transitions.actions)} transitions, but the replay buffer holds {capacity}: only "
            "the last ones are "
            "kept. Raise `buffer_size`.",
            stacklevel=3,
        )
    buffer.truncate_last_trajectory()
    added = 0
    for index in _streams(transitions, buffer.n_envs):
        terminated = transitions.terminations[index]
        buffer.add(
            {key: value[index] for key, value in transitions.observations.items()},
            {key: value[index] for key, value in transitions.next_observations.items()},
            transitions.actions[index],
            np.zeros(buffer.n_envs),  # rewards are not read
            terminated | transitions.truncations[index],
            [{"TimeLimit.truncated": not ended} for ended in terminated],
        )
        added += buffer.n_envs
    buffer.truncate_last_trajectory()
    return added
