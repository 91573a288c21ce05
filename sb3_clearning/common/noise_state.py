"""The noises of a run as arrays and JSON."""

from typing import TYPE_CHECKING, Any

import numpy as np
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise, OrnsteinUhlenbeckActionNoise, VectorizedActionNoise

from sb3_clearning.common.noise import PinkActionNoise
from sb3_clearning.files.array_file import UnreadableFileError
from sb3_clearning.runs.snapshot import _is_count

if TYPE_CHECKING:
    from sb3_clearning.common.goal_algorithm import GoalAlgorithm


#: What changes in a noise from step to step, for those that can go on in the middle of an episode.
_NOISE_STATE: dict[type[ActionNoise], tuple[str, ...]] = {
    PinkActionNoise: ("_sequence", "_step"),
    OrnsteinUhlenbeckActionNoise: ("noise_prev",),
    NormalActionNoise: (),
}


def _noises(model: "GoalAlgorithm") -> dict[str, ActionNoise]:
    noises: dict[str, ActionNoise] = {"warmup": model._warmup._noise}
    return noises if model.action_noise is None else {**noises, "action": model.action_noise}


def _single(noise: ActionNoise) -> list[ActionNoise]:
    return list(noise.noises) if isinstance(noise, VectorizedActionNoise) else [noise]


def _take_noise(prefix: str, noise: ActionNoise, arrays: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    content = []
    for i, single in enumerate(_single(noise)):
        numbers: dict[str, Any] = {"class": type(single).__name__}
        for name in _NOISE_STATE.get(type(single), ()):
            value = getattr(single, name)
            if isinstance(value, np.ndarray):
                arrays[f"{prefix}/{i}/{name}"] = value
            else:
                numbers[name] = value
        content.append(numbers)
    return content


def _is_another(noise: ActionNoise, states: Any) -> bool:
    """:return: Whether the user has put this noise in the place of the checkpoint's, or of none"""
    if states is None:
        return True
    saved = [numbers.get("class") for numbers in states if isinstance(numbers, dict)] if isinstance(states, list) else []
    own = [type(single).__name__ for single in _single(noise)]
    return len(saved) == len(own) and all(isinstance(name, str) for name in saved) and saved != own


def _fits_noise(noise: ActionNoise, attribute: str, value: Any) -> bool:
    """:return: Whether a noise of this class and these arguments can have the value"""
    if isinstance(noise, PinkActionNoise) and attribute == "_step":
        return _is_count(value, noise._length + 1)
    if isinstance(noise, PinkActionNoise):
        shape: tuple[int, ...] = (noise._length, *noise._sigma.shape)
        fits_none = value is None
    else:
        shape, fits_none = np.shape(getattr(noise, attribute)), False
    return fits_none or bool(isinstance(value, np.ndarray) and value.shape == shape and np.isfinite(value).all())


def noises_can_be_saved(model: "GoalAlgorithm") -> bool:
    """:return: Whether the state of the action noise in the middle of an episode can be saved"""
    return model.action_noise is None or all(type(noise) in _NOISE_STATE for noise in _single(model.action_noise))


def snapshot_noises(model: "GoalAlgorithm", arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """
    :param model: A model
    :param arrays: Gets the arrays of the noises' state
    :return: What JSON can hold of it
    """
    return {name: _take_noise(f"noise/{name}", noise, arrays) for name, noise in _noises(model).items()}


def restore_noises(model: "GoalAlgorithm", content: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """
    :param model: A model
    :param content: What :func:`snapshot_noises` returned
    :param arrays: Its arrays
    """
    for name, noise in _noises(model).items():
        states = content.get(name)
        if name == "action" and _is_another(noise, states):
            noise.reset()
            continue
        lists = isinstance(states, list) and all(isinstance(numbers, dict) for numbers in states)
        if states is None or not lists or len(states) != len(_single(noise)):
            raise UnreadableFileError(f"The checkpoint has not the state of the {name} noise of {model.n_envs} environments.")
        for i, (single, numbers) in enumerate(zip(_single(noise), states, strict=True)):
            for attribute in _NOISE_STATE.get(type(single), ()):
                array = arrays.get(f"noise/{name}/{i}/{attribute}")
                value = numbers.get(attribute) if array is None else array.copy()
                if not _fits_noise(single, attribute, value):
                    raise UnreadableFileError(f"The checkpoint has not the state of a {type(single).__name__} ({name}).")
                setattr(single, attribute, value)
