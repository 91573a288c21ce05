"""StandardizingExtractor: what the networks see has mean 0 and deviation 1."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import BaseModel
from stable_baselines3.common.preprocessing import get_flattened_obs_dim
from stable_baselines3.common.torch_layers import CombinedExtractor
from stable_baselines3.common.type_aliases import TensorDict
from torch import nn

#: Of fewer states than these a mean and a deviation say little.
FEW_STATES = 10
#: No coordinate's deviation counts as less than this share of the median one: what hardly moves is not blown up.
SMALLEST_DEVIATION = 0.1


class StandardizingExtractor(CombinedExtractor):
    """
    SB3's CombinedExtractor, then for each coordinate of the vectors in it (not for the features of images): minus its mean,
    divided by its deviation. These are 0 and 1 until :meth:`fit` takes them from data, once: networks that have learned would
    see everything change under them.

    In metres an object's move of some centimetres is lost beside the arm's, and the classifiers learn it late.

    :param observation_space: The observations, with ``achieved_goal`` and ``desired_goal``
    :param cnn_output_dim: Number of features of an image
    :param normalized_image: Whether images are within [0, 1] already
    """

    mean: th.Tensor
    deviation: th.Tensor
    is_fitted: th.Tensor

    def __init__(self, observation_space: spaces.Dict, cnn_output_dim: int = 256, normalized_image: bool = False) -> None:
        super().__init__(observation_space, cnn_output_dim, normalized_image)
        self.register_buffer("mean", th.zeros(self.features_dim))
        self.register_buffer("deviation", th.ones(self.features_dim))
        self.register_buffer("is_fitted", th.tensor(False))
        # Where the vectors stand among the features.
        self._columns: dict[str, slice] = {}
        start = 0
        for key, extractor in self.extractors.items():
            is_vector = isinstance(extractor, nn.Flatten)
            stop = start + (get_flattened_obs_dim(observation_space[key]) if is_vector else cnn_output_dim)
            if is_vector:
                self._columns[key] = slice(start, stop)
            start = stop

    def forward(self, observations: TensorDict) -> th.Tensor:
        """
        :param observations: ``(batch, …)`` per key
        :return: The features, ``(batch, features_dim)``
        """
        return self.standardize(super().forward(observations))

    def standardize(self, features: th.Tensor) -> th.Tensor:
        """
        :param features: All keys one after the other, ``(batch, features_dim)``
        :return: Each coordinate with mean 0 and deviation 1
        """
        return (features - self.mean) / self.deviation

    def fit(self, states: Mapping[str, np.ndarray]) -> None:
        """
        Take means and deviations from data, unless it was done before. Goals are states: commanded ones get the statistics of
        those that were achieved.

        :param states: ``(n, …)`` per key; keys that are not in it stay as they are
        """
        if self.is_fitted:
            return
        sources = {key: "achieved_goal" if key == "desired_goal" else key for key in self._columns}
        flat = {key: self._checked(key, states[source]) for key, source in sources.items() if source in states}
        if not flat:
            return
        deviations = {key: values.std(axis=0, dtype=np.float64) for key, values in flat.items()}
        # Of the whole state: an object that random actions hardly touched would make a goal's own median tiny.
        state = [deviation for key, deviation in deviations.items() if key != "desired_goal"]
        smallest = SMALLEST_DEVIATION * np.median(np.concatenate(state))
        for key, values in flat.items():
            deviation = np.maximum(deviations[key], smallest)
            deviation[deviation == 0] = 1.0
            self.mean[self._columns[key]] = th.as_tensor(values.mean(axis=0, dtype=np.float64)).to(self.mean)
            self.deviation[self._columns[key]] = th.as_tensor(deviation).to(self.deviation)
        self.is_fitted.fill_(True)

    def _checked(self, key: str, values: np.ndarray) -> np.ndarray:
        """:return: A key's values, ``(n, size)``"""
        size = self._columns[key].stop - self._columns[key].start
        if len(values) == 0 or values[0].size != size:
            raise ValueError(f"`states` must have arrays (n, {size}) for {key!r}, not {values.shape}.")
        return values.reshape(len(values), size)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        # A file from before these were there holds networks of the observations themselves.
        for name, value in (("mean", self.mean), ("deviation", self.deviation), ("is_fitted", th.tensor(True))):
            state_dict.setdefault(prefix + name, value)
        super()._load_from_state_dict(state_dict, prefix, *arguments)


def fit_extractors(networks: Iterable[BaseModel], states: Mapping[str, np.ndarray]) -> None:
    """
    Take the means and deviations from data, for each network that standardizes.

    :param networks: Actors and critics
    :param states: ``(n, …)`` per key of floats
    """
    found = [network.features_extractor for network in networks]
    extractors = [
        extractor for extractor in found if isinstance(extractor, StandardizingExtractor) and not extractor.is_fitted
    ]
    n = min((len(values) for values in states.values()), default=FEW_STATES)
    if extractors and 0 < n < FEW_STATES:
        warnings.warn(
            f"The networks' inputs are standardized, for good, by the mean and deviation of {n} states, all that there are at "
            "the first update: give `learning_starts` some hundred steps, or pass `policy_kwargs=dict(standardize=False)`.",
            stacklevel=2,
        )
    for extractor in extractors:
        extractor.fit(states)
