"""PolicyFuture: the future of a CLearning model's policy, from its own classifiers."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import VecNormalize

from sb3_clearning.goal_spaces import as_channels_first
from sb3_clearning.losses import log_mass
from sb3_clearning.prediction.encoding import Encoder
from sb3_clearning.prediction.queries import N_VISITED, FuturePredictor, in_chunks
from sb3_clearning.replay.experience import Values

#: Pairs of a state and a goal in one forward pass.
CHUNK = 16_384


@runtime_checkable
class ClassifierModel(Protocol):
    """A model whose critic is a classifier: CLearning, but not Q-learning."""

    observation_space: spaces.Space
    action_space: spaces.Space
    policy: Any
    critic: Any
    device: th.device
    replay_buffer: Any
    commanded_goal_fraction: float
    gamma: float
    lambda_: float

    @property
    def bootstrap_factor(self) -> float:
        """:return: The factor on the importance weights beside gamma"""

    def get_vec_normalize_env(self) -> VecNormalize | None:
        """:return: The VecNormalize, or None"""


class PolicyFuture(FuturePredictor):
    r"""
    The future of a goal-conditioned policy, :math:`p_+^\pi(g \mid s, a, \text{commanded } g)`: the policy is commanded to
    reach the same goal that the query is about. So this is not one distribution over goals, and an average over candidates
    (the expected future state, the probability of an event) shows which of them the policy can reach, not where it goes. For
    the future under one command fit a :class:`FutureStateEstimator` on the model's replay buffer.

    The ratio is to the distribution p(g) of training's random goals: the visited next states, and a share
    ``commanded_goal_fraction`` of commanded goals. Candidates, and the marginal of a density, are draws of that mixture.

    Observations are those of the environment; their ``desired_goal`` is not used and may be missing.

    :param model: The model. Queries use its current weights, also after more training
    """

    _sums_to_one = False  # each goal is asked about under its own command

    def __init__(self, model: ClassifierModel):
        if not isinstance(model, ClassifierModel):
            raise ValueError(f"PolicyFuture needs a CLearning, whose critic is a classifier, not {model!r}.")
        self._model = model
        space = model.observation_space
        assert isinstance(space, spaces.Dict)
        kept = {key: part for key, part in space.spaces.items() if key != "desired_goal"}
        self._states = Encoder(spaces.Dict(kept), "observations")
        self._actions = Encoder(model.action_space, "actions")
        self._goals = Encoder(space.spaces["achieved_goal"], "goals")

    def _visited_goals(self) -> np.ndarray:
        buffer = self._model.replay_buffer
        if buffer is None or buffer.size() == 0:
            raise ValueError(
                "The model's replay buffer is empty, so there are no visited goals to choose from: pass `candidates`, or load "
                "the buffer with `model.load_replay_buffer(path)`."
            )
        # A fixed seed: the answer to a query does not change from one call to the next.
        return self._goals.encode(buffer.random_goals(N_VISITED, self._model.commanded_goal_fraction, seed=0))

    def _log_ratios(self, observations: Values, actions: np.ndarray | None, goals: np.ndarray) -> np.ndarray:
        assert not isinstance(observations, np.ndarray)
        commanded = self._goals.decode(goals)
        n = len(next(iter(observations.values())))
        scaled = None
        if actions is not None:
            space = self._model.action_space
            scaled = self._model.policy.scale_action(actions.reshape(n, *space.shape)).reshape(n, -1)  # type: ignore[misc]

        def logits(states: slice) -> np.ndarray:
            part = {
                key: as_channels_first(np.asarray(observations[key])[states], encoder.space)
                for key, encoder in self._states.parts.items()
            }
            return self._logits(part, None if scaled is None else scaled[states], commanded)

        return in_chunks(logits, n, len(goals), CHUNK)

    @th.no_grad()
    def _logits(self, observations: dict[str, np.ndarray], actions: np.ndarray | None, goals: np.ndarray) -> np.ndarray:
        """:return: The classifiers' mean logits as those of a density, ``(n, m)``"""
        model = self._model
        n, m = len(next(iter(observations.values()))), len(goals)
        batch = {key: np.repeat(value, m, axis=0) for key, value in observations.items()}
        batch["desired_goal"] = np.tile(goals, (n, *[1] * (goals.ndim - 1)))
        keys = model.observation_space.spaces  # type: ignore[attr-defined]
        batch = {key: batch[key].astype(space.dtype) for key, space in keys.items()}
        normalize = model.get_vec_normalize_env()
        if normalize is not None:
            batch = normalize.normalize_obs(batch)  # type: ignore[assignment]
        tensors = obs_as_tensor(batch, model.device)
        assert isinstance(tensors, dict)
        model.policy.set_training_mode(False)
        if actions is None:
            chosen = model.policy(tensors, deterministic=True)
        else:
            chosen = th.as_tensor(np.repeat(actions, m, axis=0), dtype=th.float32, device=model.device)
        logits = model.critic(tensors, chosen).mean(dim=0) - log_mass(model.gamma, model.lambda_, model.bootstrap_factor)
        return logits.reshape(n, m).cpu().numpy()
