"""StandardizingExtractor: what the networks see has mean 0 and standard deviation 1."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.preprocessing import get_flattened_obs_dim
from stable_baselines3.common.torch_layers import CombinedExtractor
from stable_baselines3.common.type_aliases import TensorDict
from torch import nn

#: No standard deviation counts as less than this share of the median one, so that nearly constant coordinates are not
#: amplified.
SMALLEST_DEVIATION = 0.1
#: Scaled values are limited to plus and minus this, so that outliers cannot dominate.
LIMIT = 10.0
#: The data doubles between two fits. A standard deviation that changes by more than this factor belongs to a coordinate that
#: was nearly constant so far: its weights are left unscaled. On FetchPush that of the object's rotation grows 130-fold when it
#: is first hit, and weights 130 times as large would dominate all other inputs.
MAX_RESCALE_FACTOR = 4.0
#: The last fit comes before this many transitions. By then there are hundreds of episodes on most tasks (32 where they have
#: 1,000 steps), new data changes little, and most of the training is still to come.
LAST_FIT = 32_768

_GOALS = ("achieved_goal", "desired_goal")


class StandardizingExtractor(CombinedExtractor):
    """
    SB3's CombinedExtractor, then for each coordinate of the vectors in it (not for the features of images): minus its mean,
    divided by its standard deviation, limited to plus and minus ``LIMIT``. Until the first :meth:`fit`, observations stay as
    they are.

    Unscaled, an object's displacement of centimeters is small beside the arm's motion, and classifiers learn it late.

    The state dict has ``mean``, ``deviation`` and ``n_fitted``: the number of transitions that there were at the last fit. 0
    means never fitted, more than half of ``LAST_FIT`` means that there will be no other fit.
    """

    mean: th.Tensor
    deviation: th.Tensor
    n_fitted: th.Tensor
    _limits: th.Tensor

    def __init__(self, observation_space: spaces.Dict, cnn_output_dim: int = 256, normalized_image: bool = False) -> None:
        super().__init__(observation_space, cnn_output_dim, normalized_image)
        self.register_buffer("mean", th.zeros(self.features_dim))
        self.register_buffer("deviation", th.ones(self.features_dim))
        self.register_buffer("n_fitted", th.zeros(()))
        self.register_buffer("_limits", th.full((self.features_dim,), th.inf), persistent=False)
        # Where the vectors are among the features.
        self._columns: dict[str, slice] = {}
        start = 0
        for key, extractor in self.extractors.items():
            is_vector = isinstance(extractor, nn.Flatten)
            stop = start + (get_flattened_obs_dim(observation_space[key]) if is_vector else cnn_output_dim)
            if is_vector:
                self._columns[key] = slice(start, stop)
                if np.issubdtype(observation_space[key].dtype, np.floating):  # the others are not scaled
                    self._limits[start:stop] = LIMIT
            start = stop
        self._copy_to_host()

    def _copy_to_host(self) -> None:
        """Cache on the CPU what every update reads, to avoid device synchronization."""
        self._n_fitted = float(self.n_fitted)
        self.fingerprint = th.stack([self.mean, self.deviation]).cpu().numpy().tobytes()

    def forward(self, observations: TensorDict) -> th.Tensor:
        """:return: The features of observations, ``(batch, features_dim)``"""
        return self.standardize(super().forward(observations))

    def standardize(self, features: th.Tensor) -> th.Tensor:
        """:return: Features ``(batch, features_dim)``, each with mean 0 and standard deviation 1, within the limit"""
        scaled = (features - self.mean) / self.deviation
        return scaled.clamp(-self._limits, self._limits) if self.is_fitted else scaled

    @property
    def is_fitted(self) -> bool:
        """:return: Whether there are means and standard deviations"""
        return self._n_fitted > 0

    @property
    def is_final(self) -> bool:
        """:return: Whether the statistics are final, as the data would double only after ``LAST_FIT``"""
        return 2 * self._n_fitted > LAST_FIT

    def refit_is_due(self, n_transitions: int) -> bool:
        """:return: Whether it is time to fit: at first, then each time that the data has doubled, until ``LAST_FIT``"""
        return not self.is_final and n_transitions >= 2 * self._n_fitted

    def sees_the_same_as(self, other: "StandardizingExtractor") -> bool:
        """:return: Whether both scale them in the same way"""
        return self is other or (self.is_fitted == other.is_fitted and self.fingerprint == other.fingerprint)

    def statistics(self, key: str) -> tuple[np.ndarray, np.ndarray] | None:
        """:return: The mean and the standard deviation of a key's values, ``(size,)`` each; None for images"""
        if key not in self._columns:
            return None
        return self.mean[self._columns[key]].cpu().numpy(), self.deviation[self._columns[key]].cpu().numpy()

    def fit(self, states: Mapping[str, np.ndarray], n_transitions: int) -> tuple[th.Tensor, th.Tensor]:
        """
        Take means and standard deviations from data. Achieved and commanded goals are pooled: the same place has the same
        scaled value, and commanded goals that nothing has reached yet are within the scale.

        :param states: ``(n, …)`` per key; keys that are not in it stay as they are
        :param n_transitions: The number of transitions that were ever stored
        :return: A slope and an offset for each feature, ``(features_dim,)`` in float64: what was ``z`` before is now
            ``slope * z' + offset``. This is exact within the limit, except for a standard deviation that has changed by more
            than ``MAX_RESCALE_FACTOR``: there only at the old mean
        """
        flat = {key: self._checked(key, states[key]) for key in self._columns if key in states}
        if all(key in flat for key in _GOALS):
            flat.update(dict.fromkeys(_GOALS, np.concatenate([flat[key] for key in _GOALS])))
        deviations = {key: values.std(axis=0, dtype=np.float64) for key, values in flat.items()}
        # The median is over the whole state: a rarely moved object would make a goal-only median tiny.
        state = [deviation for key, deviation in deviations.items() if key != "desired_goal"]
        smallest = SMALLEST_DEVIATION * np.median(np.concatenate(state)) if state else 0.0
        old_mean, old_deviation = (values.to(th.float64, copy=True) for values in (self.mean, self.deviation))
        for key, values in flat.items():
            deviation = np.maximum(deviations[key], smallest)
            deviation[deviation == 0] = 1.0
            self.mean[self._columns[key]] = th.as_tensor(values.mean(axis=0, dtype=np.float64)).to(self.mean)
            self.deviation[self._columns[key]] = th.as_tensor(deviation).to(self.deviation)
        self.n_fitted.fill_(n_transitions)
        self._copy_to_host()
        change = self.deviation.double() / old_deviation
        slope = th.where(change.log().abs() > math.log(MAX_RESCALE_FACTOR), 1.0, change)
        offset = slope * (self.mean.double() - old_mean) / self.deviation.double()
        return slope, offset.clamp(-LIMIT, LIMIT)

    def freeze(self) -> None:
        """Make the means and standard deviations final."""
        self.n_fitted.clamp_(min=LAST_FIT)
        self._copy_to_host()

    def _checked(self, key: str, values: np.ndarray) -> np.ndarray:
        """:return: A key's values, ``(n, size)``"""
        size = self._columns[key].stop - self._columns[key].start
        if len(values) == 0 or values[0].size != size:
            raise ValueError(f"`states` must have arrays (n, {size}) for {key!r}, not {values.shape}.")
        return values.reshape(len(values), size)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        own = {name: state_dict.pop(name) for name in list(state_dict) if name.startswith(prefix)}
        state_dict.update(with_n_fitted(own))
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        self._copy_to_host()


def with_n_fitted(weights: Mapping[str, th.Tensor]) -> dict[str, th.Tensor]:
    """
    :param weights: A state dict, possibly of an earlier version: it has ``is_fitted``, and statistics that were fitted once
    :return: The same with ``n_fitted``
    """
    found = {}
    for name, tensor in weights.items():
        if name.rpartition(".")[2] == "is_fitted":
            name, tensor = name.removesuffix("is_fitted") + "n_fitted", LAST_FIT * tensor.float()
        found[name] = tensor
    return found
