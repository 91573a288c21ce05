"""Temporally correlated (pink, 1/f) noise, as action noise and for the random warm-up; the state of noises in checkpoints."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch as th
from numpy.typing import DTypeLike
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise, OrnsteinUhlenbeckActionNoise, VectorizedActionNoise

from sb3_clearning.common.batched_noise import BatchedNoise, BatchedNormalNoise, BatchedPinkNoise
from sb3_clearning.files.array_file import UnreadableFileError, under_prefix
from sb3_clearning.files.json_values import is_count, register_object


def pink_noise(length: int, shape: tuple[int, ...] = (), beta: float = 1.0) -> np.ndarray:
    """
    Gaussian noise with the power spectrum 1/f^beta along its first axis, independent along the others.

    White noise is filtered in the frequency domain. The filter is scaled by its own analytic variance and not by that of the
    sequence it made, so every value is exactly N(0, 1) over the draws; a sequence's own mean and variance fluctuate. The mean
    (frequency 0, where 1/f^beta is infinite) gets the power of the lowest frequency, 1/length.

    :param beta: Exponent of the spectrum: 0 is white noise, 1 pink, 2 red
    :return: Array ``(length, *shape)`` in float64, drawn from NumPy's global generator
    """
    white = np.random.standard_normal((length, *shape))
    frequencies = np.abs(np.fft.fftfreq(length))
    frequencies[0] = 1.0 / length
    amplitudes = frequencies ** (-beta / 2)
    amplitudes /= np.sqrt(np.mean(amplitudes**2))
    # Real input: the second half of the spectrum mirrors the first
    half = amplitudes[: length // 2 + 1].reshape(-1, *[1] * len(shape))
    return np.fft.irfft(np.fft.rfft(white, axis=0) * half, n=length, axis=0)


class PinkActionNoise(ActionNoise):
    """
    Temporally correlated Gaussian action noise with the power spectrum 1/f^beta.

    It explores further than white noise of the same size, because it pushes the same way for a while. Each episode gets a new
    sequence; an episode longer than ``length`` continues with another one.

    Like SB3's noises it draws from NumPy's global generator, so ``set_random_seed`` (and a model's ``seed``) governs it::

        noise = PinkActionNoise(sigma=0.2 * np.ones(env.action_space.shape[0]))
        model = CLearning("MultiInputPolicy", env, action_noise=noise)

    :param sigma: Standard deviation of each action dimension, ``(action_dim,)``
    :param length: Steps in a sequence: about an episode, or more. Longer ones have slower drifts
    :param beta: Exponent of the spectrum: 0 is white noise, 1 pink, 2 red
    """

    def __init__(self, sigma: np.ndarray, length: int = 1000, beta: float = 1.0, dtype: DTypeLike = np.float32) -> None:
        super().__init__()
        try:
            self._sigma = np.array(sigma, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"sigma must be an array of numbers, got {sigma!r}") from error
        if self._sigma.ndim == 0 or self._sigma.size == 0:
            raise ValueError(f"sigma needs one value per action dimension, e.g. 0.1 * np.ones(action_dim), got {sigma!r}")
        if not (np.isfinite(self._sigma).all() and (self._sigma >= 0).all()):
            raise ValueError(f"sigma must be finite and not negative, got {sigma!r}")
        if not isinstance(length, (int, np.integer)) or length < 1:
            raise ValueError(f"length must be at least 1 step, got {length!r}")
        if not (isinstance(beta, (int, float)) and math.isfinite(beta) and beta >= 0):
            raise ValueError(f"beta must be finite and not negative, got {beta!r}")
        self._length = int(length)
        self._beta = float(beta)
        self._dtype = dtype
        self.reset()

    def reset(self) -> None:
        """Forget the current sequence. The next call draws a new one."""
        # Not drawn here: VectorizedActionNoise copies its base noise, and a drawn sequence would be shared by all copies
        self._sequence: np.ndarray | None = None
        self._step = 0

    def __call__(self) -> np.ndarray:
        """:return: The next step of the sequence, of the shape of ``sigma``"""
        if self._sequence is None or self._step == self._length:
            self._sequence = (self._sigma * pink_noise(self._length, self._sigma.shape, self._beta)).astype(self._dtype)
            self._step = 0
        noise = self._sequence[self._step]
        self._step += 1
        return noise

    def snapshot(self) -> dict[str, Any]:
        """:return: The current sequence and the position in it"""
        return {"_sequence": self._sequence, "_step": self._step}

    def restore(self, state: dict[str, Any]) -> None:
        """:param state: What :meth:`snapshot` of a noise with the same arguments returned"""
        sequence, step = state.get("_sequence"), state.get("_step")
        fits = sequence is None or _is_finite(sequence, (self._length, *self._sigma.shape))
        if step is None or not is_count(step, self._length + 1) or not fits:
            raise UnreadableFileError("Invalid state of a PinkActionNoise in the checkpoint.")
        self._sequence, self._step = sequence, step

    def batched(self, n_envs: int) -> BatchedPinkNoise:
        """:return: Noise of the same law for parallel environments, from a state that is not as long as a sequence"""
        return BatchedPinkNoise(self, n_envs, self._sigma, self._length, self._beta, self._dtype)

    def __repr__(self) -> str:
        return f"PinkActionNoise(sigma={self._sigma}, length={self._length}, beta={self._beta})"


def vectorized_noise(noise: ActionNoise, n_envs: int) -> ActionNoise:
    """
    :return: The noise of parallel environments as one array operation where that is possible. One environment keeps its
        noise, and so the random numbers of earlier versions
    """
    if n_envs == 1 or isinstance(noise, VectorizedActionNoise):
        return noise
    if type(noise) is PinkActionNoise:
        return noise.batched(n_envs)
    if type(noise) is NormalActionNoise:
        return BatchedNormalNoise(noise, n_envs)
    return VectorizedActionNoise(noise, n_envs)


def named_noise(name: str, sigma: np.ndarray) -> ActionNoise:
    """:return: "gaussian" or "pink" noise that remembers its name: a loaded model rebuilds it with its own ``noise_std``"""
    noise = NormalActionNoise(np.zeros_like(sigma), sigma) if name == "gaussian" else PinkActionNoise(sigma)
    noise.__dict__["name"] = name
    return noise


def noise_argument(noise: ActionNoise | str | None) -> ActionNoise | str | None:
    """:return: What a model's ``action_noise`` was made from: its name if it was made by name, else the noise itself"""
    single = noise.base_noise if isinstance(noise, VectorizedActionNoise) else noise
    if isinstance(noise, BatchedNoise):
        noise = single  # it is batched again when learning starts
    return single.__dict__.get("name", noise) if isinstance(single, ActionNoise) else noise


class PinkUniformActions:
    """
    Random actions for the warm-up: each is uniform on [-1, 1], successive ones are correlated as pink noise.

    Gaussian pink noise goes through the normal distribution function, so that at any step the actions are distributed as those
    of ``action_space.sample()`` (of a policy's scaled actions); only their order in time differs.

    :param n_envs: Number of parallel environments, each with its own sequence
    :param beta: Exponent of the Gaussian noise's spectrum: 0 gives independent uniform actions
    """

    def __init__(self, n_envs: int, action_dim: int, length: int = 1000, beta: float = 1.0) -> None:
        #: The Gaussian noise behind the actions.
        single = PinkActionNoise(np.ones(action_dim), length, beta)
        self.noise = VectorizedActionNoise(single, 1) if n_envs == 1 else single.batched(n_envs)

    def reset(self, indices: Iterable[int] | None = None) -> None:
        """Start new sequences, in the environments whose episode ended. None: in all."""
        self.noise.reset(indices)

    def __call__(self) -> np.ndarray:
        """:return: The next action of every environment, ``(n_envs, action_dim)`` of float32 in [-1, 1]"""
        # 2 Phi(x) - 1 = erf(x / sqrt(2)) maps N(0, 1) to Uniform[-1, 1]
        return th.erf(th.from_numpy(self.noise()) / math.sqrt(2)).numpy()


register_object(PinkActionNoise, {"sigma": "_sigma", "length": "_length", "beta": "_beta", "dtype": "_dtype"})


def _is_finite(value: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(value, np.ndarray) and value.shape == shape and bool(np.isfinite(value).all())


def _single(noise: ActionNoise) -> list[ActionNoise]:
    """:return: The noises that have a state: one for each environment, or one for all of them"""
    return list(noise.noises) if isinstance(noise, VectorizedActionNoise) and not isinstance(noise, BatchedNoise) else [noise]


class ModelNoises:
    """The noises of a model, for checkpoints: of the random warm-up, and on its actions."""

    def __init__(self, warmup: PinkUniformActions, action: ActionNoise | None):
        self._noises: dict[str, ActionNoise] = {"warmup": warmup.noise}
        if action is not None:
            self._noises["action"] = action

    def reset(self) -> None:
        """Begin new sequences in all environments."""
        for noise in self._noises.values():
            noise.reset()

    def has_snapshot(self) -> bool:
        """:return: Whether the state within an episode can be saved. That of a user's class is unknown"""
        known = (PinkActionNoise, OrnsteinUhlenbeckActionNoise, NormalActionNoise, BatchedPinkNoise, BatchedNormalNoise)
        return all(type(single) in known for noise in self._noises.values() for single in _single(noise))

    def snapshot(self, arrays: dict[str, np.ndarray]) -> dict[str, list[dict[str, Any]]]:
        """:return: The JSON part of the state, for each noise and environment. Its arrays are added to ``arrays``"""
        content: dict[str, list[dict[str, Any]]] = {name: [] for name in self._noises}
        for name, noise in self._noises.items():
            for i, single in enumerate(_single(noise)):
                state: dict[str, Any] = {}
                if isinstance(single, BatchedNoise) or type(single) is PinkActionNoise:
                    state = single.snapshot()
                elif type(single) is OrnsteinUhlenbeckActionNoise:
                    state = {"noise_prev": single.noise_prev}
                found = {key: value for key, value in state.items() if isinstance(value, np.ndarray)}
                arrays.update({f"noise/{name}/{i}/{key}": value for key, value in found.items()})
                numbers = {key: value for key, value in state.items() if key not in found}
                content[name].append({"class": type(single).__name__, **numbers})
        return content

    def restore(self, content: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Set what :meth:`snapshot` returned."""
        for name, noise in self._noises.items():
            states = content.get(name)
            other = (states is None or _is_of_other_class(noise, states)) if name == "action" else _is_unbatched(noise, states)
            if other:
                noise.reset()  # the user has passed another noise to `resume`, or an earlier version had one per environment
                continue
            if not _are_dicts(states) or len(states) != len(_single(noise)):  # type: ignore[arg-type]
                raise UnreadableFileError(f"The checkpoint does not have the state of the {name} noise of every environment.")
            for i, (single, numbers) in enumerate(zip(_single(noise), states, strict=True)):  # type: ignore[arg-type]
                found = {key: array.copy() for key, array in under_prefix(arrays, f"noise/{name}/{i}/").items()}
                _restore_single(single, {**numbers, **found})


def _restore_single(noise: ActionNoise, state: dict[str, Any]) -> None:
    if isinstance(noise, BatchedNoise) or type(noise) is PinkActionNoise:
        noise.restore(state)
    elif type(noise) is OrnsteinUhlenbeckActionNoise:
        if not _is_finite(state.get("noise_prev"), np.shape(noise.noise_prev)):
            raise UnreadableFileError("Invalid state of an OrnsteinUhlenbeckActionNoise in the checkpoint.")
        noise.noise_prev = state["noise_prev"]


def _are_dicts(states: Any) -> bool:
    return isinstance(states, list) and all(isinstance(numbers, dict) for numbers in states)


def _is_of_other_class(noise: ActionNoise, states: Any) -> bool:
    saved = [numbers.get("class") for numbers in states] if _are_dicts(states) else []
    own = [type(single).__name__ for single in _single(noise)]
    if _is_unbatched(noise, states):
        return True
    return len(saved) == len(own) and all(isinstance(name, str) for name in saved) and saved != own


def _is_unbatched(noise: ActionNoise, states: Any) -> bool:
    """:return: Whether a checkpoint has a state for each environment, and this noise one for all of them"""
    known = ("PinkActionNoise", "NormalActionNoise")
    saved = [numbers.get("class") for numbers in states] if _are_dicts(states) else []
    return isinstance(noise, BatchedNoise) and len(saved) == noise.n_envs and all(name in known for name in saved)
