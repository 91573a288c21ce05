"""Noise of many environments as one array operation per step, with the law of each environment's own noise."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise, VectorizedActionNoise

from sb3_clearning.checks import check_number
from sb3_clearning.files.array_file import UnreadableFileError

#: Filters whose sum is pink noise. More of them follow 1/f more closely.
N_FILTERS = 8


@lru_cache(maxsize=16)
def pink_filters(length: int, beta: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""
    White noise :math:`\epsilon` through first-order filters, :math:`x_i \leftarrow a_i x_i + \epsilon`, so that
    :math:`\sum_i b_i x_i` has the variance 1 and nearly the spectrum 1/f^beta above the frequency 1/length, as a sequence of
    that length made by a Fourier transform. Its memory is the filters' state, not the sequence.

    :return: The decays a, the weights b, and a matrix that makes the filters' joint stationary state out of white noise
    """
    n = 2 ** int(np.ceil(np.log2(16 * length + 16)))
    # Below, the spectrum is flat. A sequence of `length` steps has three values there, at 0 and at both signs of 1/length.
    spectrum = np.maximum(np.abs(np.fft.fftfreq(n)), min(0.91 / length, 0.5)) ** -beta
    # The causal filter with this spectrum is the minimum-phase one, by folding the cepstrum.
    cepstrum = np.fft.ifft(np.log(spectrum) / 2).real
    cepstrum[1 : n // 2] *= 2
    cepstrum[n // 2 + 1 :] = 0
    wanted = np.exp(np.fft.fft(cepstrum))

    # Decay times evenly spaced on a log scale, and none: the white noise itself. Weights by least squares of relative errors.
    decays = np.append(0.0, np.exp(-2 * np.pi * np.geomspace(min(0.3 / length, 0.3), 0.35, N_FILTERS - 1)))
    index = np.append(0, np.unique(np.geomspace(1, n // 2, 400).round().astype(int)))
    responses = 1 / (1 - decays * np.exp(-2j * np.pi * index / n)[:, None]) / np.abs(wanted[index, None])
    target = wanted[index] / np.abs(wanted[index])
    weights = np.linalg.lstsq(
        np.concatenate([responses.real, responses.imag]), np.concatenate([target.real, target.imag]), rcond=None
    )[0]
    covariance = 1 / (1 - np.outer(decays, decays))
    weights /= np.sqrt(weights @ covariance @ weights)
    return decays, weights, np.linalg.cholesky(covariance)


class BatchedNoise(VectorizedActionNoise):
    """The noise of parallel environments. Not SB3's list of copies: one array for all of them."""

    def __init__(self, base_noise: ActionNoise, n_envs: int):
        self.base_noise, self.n_envs = base_noise, n_envs

    def reset(self, indices: Iterable[int] | None = None) -> None:
        """Start new sequences, in the environments whose episode ended. None: in all."""

    def __call__(self) -> np.ndarray:
        """:return: The next step of every environment, ``(n_envs, …)``"""
        raise NotImplementedError

    def snapshot(self) -> dict[str, Any]:
        """:return: The state within the sequences"""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """:param state: What :meth:`snapshot` of a noise with the same arguments returned"""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_noise!r}, n_envs={self.n_envs})"


class BatchedNormalNoise(BatchedNoise):
    """SB3's Gaussian noise for all environments: the same numbers as its copies draw one after the other."""

    def __init__(self, base_noise: NormalActionNoise, n_envs: int):
        super().__init__(base_noise, n_envs)
        self._mean, self._sigma = base_noise._mu, base_noise._sigma  # noqa: SLF001 (SB3 has no other way to read them)
        self._dtype = base_noise._dtype  # noqa: SLF001

    def __call__(self) -> np.ndarray:
        """:return: New noise, ``(n_envs, …)``"""
        shape = (self.n_envs, *np.broadcast_shapes(np.shape(self._mean), np.shape(self._sigma)))
        return np.random.normal(self._mean, self._sigma, shape).astype(self._dtype)


class BatchedPinkNoise(BatchedNoise):
    """
    Pink noise for all environments, from a state of a few numbers per environment and action, however long an episode is.

    :param base_noise: What it is made from, for saving
    :param sigma: Standard deviation of each action dimension
    :param length: As of :class:`PinkActionNoise`: the noise is white at frequencies below 1/length
    """

    def __init__(
        self,
        base_noise: ActionNoise,
        n_envs: int,
        sigma: np.ndarray,
        length: int = 1000,
        beta: float = 1.0,
        dtype: DTypeLike = np.float32,
    ):
        check_number("n_envs", n_envs, 1, whole=True)
        super().__init__(base_noise, n_envs)
        self._sigma, self._dtype = sigma, dtype
        decays, weights, self._mix = pink_filters(length, beta)
        self._decays, self._weights = decays.astype(np.float32), weights.astype(np.float32)
        self._state = np.zeros((len(decays), n_envs * sigma.size), dtype=np.float32)
        # Not drawn before it is used: during the warm-up nobody asks for it.
        self._fresh = np.ones(n_envs, dtype=bool)

    def reset(self, indices: Iterable[int] | None = None) -> None:
        """Start new sequences, in the environments whose episode ended. None: in all."""
        self._fresh[slice(None) if indices is None else np.asarray(indices, dtype=np.int64)] = True

    def __call__(self) -> np.ndarray:
        """:return: The next step of every environment's sequence, ``(n_envs, *sigma.shape)``"""
        size = self._sigma.size
        self._state *= self._decays[:, None]
        self._state += np.random.standard_normal(self.n_envs * size).astype(np.float32)
        if self._fresh.any():
            fresh = np.flatnonzero(self._fresh)
            white = np.random.standard_normal((len(self._decays), len(fresh) * size))
            stationary = (self._mix @ white).reshape(len(self._decays), len(fresh), size)
            self._state.reshape(len(self._decays), self.n_envs, size)[:, fresh] = stationary
            self._fresh[fresh] = False
        noise = (self._weights @ self._state).reshape(self.n_envs, *self._sigma.shape)
        return (self._sigma * noise).astype(self._dtype)

    def snapshot(self) -> dict[str, Any]:
        """:return: The filters' state, and whose sequences start at the next step"""
        return {"state": self._state.copy(), "fresh": self._fresh.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """:param state: What :meth:`snapshot` of a noise with the same arguments returned"""
        for name, own in (("state", self._state), ("fresh", self._fresh)):
            given = state.get(name)
            fits = isinstance(given, np.ndarray) and given.shape == own.shape and given.dtype == own.dtype
            if not fits or not np.isfinite(given).all():  # type: ignore[arg-type]
                raise UnreadableFileError("Invalid state of a BatchedPinkNoise in the checkpoint.")
        self._state, self._fresh = state["state"].copy(), state["fresh"].copy()
