"""FutureStateEstimator: the density of future states, learned from a dataset by classification."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.utils import get_device
from torch import nn

from sb3_clearning.checks import check_number
from sb3_clearning.goal_spaces import StateCrop, crop_by_function, crop_observation, key_and_crop
from sb3_clearning.prediction.encoding import Encoder
from sb3_clearning.prediction.fitted import FittedPredictor
from sb3_clearning.prediction.next_actions import ActionPool, check_policy, following_actions, policy_actions
from sb3_clearning.prediction.queries import N_VISITED, in_chunks
from sb3_clearning.prediction.training import (
    BatchedClassifiers,
    TrainingData,
    TrainingSettings,
    standardization,
    train_classifiers,
)
from sb3_clearning.progress import progress
from sb3_clearning.replay.datasets import has_spaces, read_dataset
from sb3_clearning.replay.experience import Experience, Values, n_rows, space_of

SelfEstimator = TypeVar("SelfEstimator", bound="FutureStateEstimator")

#: Pairs of a state and a goal in one forward pass.
CHUNK = 65_536


def achieved_goals(observations: Values, crop: StateCrop) -> np.ndarray:
    """
    :param observations: ``(n, …)``, or a dict of such
    :param crop: Which part of the observation is the goal: of a dict ``{key: crop}`` or a function of the dict, else a crop
        of its ``observation``. None: a dict's ``achieved_goal`` if it has one, else the whole observation
    :return: The goals that the observations achieve, ``(n, …)``
    """
    if not isinstance(observations, np.ndarray):
        if crop is None and "achieved_goal" in observations:
            return observations["achieved_goal"]
        if callable(crop):
            return crop_by_function(dict(observations), crop, n_rows(observations))
        key = "observation"
        if isinstance(crop, Mapping):
            key, crop = key_and_crop(crop, observations)
        if key not in observations:
            raise ValueError(
                f"The observations have the keys {sorted(observations)}, not 'observation'. Say which of them is predicted: "
                '`crop={"key": None}`, or `crop={"key": [0, 1]}` for a part of it.'
            )
        observations = observations[key]
    if isinstance(crop, Mapping):
        raise ValueError(f"`crop` must name one key of a dict of observations, not {crop!r}.")
    return crop_observation(observations, crop)


def widest(seen: spaces.Space, policy: Any) -> spaces.Space:
    """
    :param seen: The action space as the data shows it
    :param policy: The policy, which may have actions that are not in the data
    :return: The policy's space if it is of the same kind and not smaller
    """
    known = getattr(policy, "action_space", None)
    if isinstance(policy, np.ndarray) and policy.ndim == 2:
        known = spaces.Discrete(policy.shape[1])
    if isinstance(seen, spaces.Discrete):
        return known if isinstance(known, spaces.Discrete) and known.n >= seen.n else seen
    return known if isinstance(known, spaces.Box) and known.shape == seen.shape else seen


class FutureStateEstimator(FittedPredictor):
    r"""
    Estimates which states a policy will visit, from on- or off-policy data: Algorithms 1 (Monte Carlo) and 2
    (temporal differences) of the paper. Rewards are not used.

    .. code-block:: python

        estimator = FutureStateEstimator(gamma=0.95).fit(model.replay_buffer, policy=model)
        estimator.probability(observation, action, lambda states: states[:, 0] > 1.0)

    :param gamma: The discount factor: the future lies about :math:`1/(1-\gamma)` steps ahead
    :param crop: Which part of the observation is predicted: indices, a slice, a function of an array ``(n, …)``, or None for
        ``achieved_goal`` if the observations have it, else for the whole observation; of Dict observations ``{key: crop}`` or
        a function of the dict
    :param n_classifiers: Number of classifiers; their logits are averaged
    :param normalize: Whether the networks' inputs are scaled to mean 0 and standard deviation 1
    :param policy_samples: How many next actions of a policy that is not a table are sampled in each state
    :param seed: The seed of weights and batches
    :param device: PyTorch device
    :param settings: See :class:`sb3_clearning.prediction.training.TrainingSettings`: ``hidden``, ``learning_rate``,
        ``batch_size``, ``lambda_``, ``w_clip`` (here :math:`10/(1-\gamma)` by default: a smaller limit cuts off the odds of
        near states), ``tau``, ``average_next_actions``, ``n_random``, ``absorbing`` (here True by default: the data does not
        say what follows a terminal state), ``weight_decay``
    """

    #: The methods of `fit`.
    methods: tuple[str, ...] = ("mc", "td", "mixed")

    def __init__(
        self,
        gamma: float = 0.99,
        crop: StateCrop = None,
        n_classifiers: int = 1,
        normalize: bool = True,
        policy_samples: int = 8,
        seed: int | None = None,
        device: th.device | str = "cpu",
        **settings: Any,
    ):
        check_number("n_classifiers", n_classifiers, 1, whole=True)
        check_number("policy_samples", policy_samples, 1, whole=True)
        self.gamma, self.crop, self.n_classifiers, self.normalize = gamma, crop, n_classifiers, normalize
        self.policy_samples, self.seed, self.device = policy_samples, seed, get_device(device)
        unknown = set(settings) - set(TrainingSettings.__dataclass_fields__) | ({"method", "steps", "n_steps"} & set(settings))
        if unknown:
            raise ValueError(f"Unknown arguments {sorted(unknown)}. `method`, `steps` and `n_steps` are `fit`'s.")
        TrainingSettings(gamma=gamma, **settings)  # raises an error for values out of range
        self._arguments = {"w_clip": 10 / (1 - gamma), "absorbing": True, **settings}

    # -- learning ------------------------------------------------------------------------------------------------------

    def fit(
        self: SelfEstimator,
        dataset: Any,
        policy: Any = None,
        method: str = "td",
        steps: int = 10_000,
        deterministic: bool = False,
        progress_bar: bool = False,
        action_space: spaces.Space | None = None,
        random_goals: np.ndarray | None = None,
        n_steps: float | None = None,
    ) -> SelfEstimator:
        r"""
        Train from scratch on a dataset.

        :param dataset: A mapping of arrays (``observations``, ``actions``, ``terminations``, ``truncations``, if known
            ``next_observations``), a Minari dataset or its name, an SB3 replay buffer, a :class:`GoalReplayBuffer`, an
            :class:`Experience`, or the path of a file, see :meth:`GoalReplayBuffer.load_dataset`
        :param policy: The policy whose future is estimated: an SB3 model (observations pass through its VecNormalize, if it
            has one); a callable from observations ``(n, …)`` to actions, or to the probabilities of discrete ones; a table
            ``(n_states, n_actions)``; None: that of the data
        :param method: "mc" (the data's own policy only), "td", or "mixed"
        :param steps: Number of batches
        :param deterministic: Whether an SB3 model acts deterministically
        :param progress_bar: Whether to show a progress bar (needs tqdm)
        :param action_space: The actions' space if neither data nor policy has it
        :param random_goals: The negative samples ``(m, …)``, draws of a distribution p(g); None: the visited goals. The ratio
            is relative to p(g), and candidates are drawn from it. Any distribution that covers the future is valid: a uniform
            one helps if the policy visits what is rare in the data
        :param n_steps: "td" and "mixed": the recursion takes n steps from the data before it bootstraps,
            :math:`p_+(g \mid s_t, a_t) = \sum_{k=1}^m (1-\gamma) \gamma^{k-1} p(s_{t+k} = g) + \gamma^m E[p_+(g \mid s_{t+m},
            a')]` with m = n, or fewer where the recorded episode ends. A whole number, or ``float("inf")``: Monte Carlo that
            bootstraps where the recorded episode ends. As in n-step Q-learning, the first m actions are the data's. With
            another policy, n > 1 is therefore biased towards the data's future. If ``policy`` is None, the recursion
            bootstraps one transition before a truncation, because the data does not have the action that would have
            followed. None: 10 for "td" with the data's own policy, else 1
        :return: Itself
        """
        if isinstance(policy, list):
            policy = np.asarray(policy)  # a table
        if method not in self.methods:
            raise ValueError(f"`method` must be one of {self.methods}, not {method!r}.")
        if n_steps is None:
            n_steps = 10 if method == "td" and policy is None else 1
        settings = TrainingSettings(method=method, gamma=self.gamma, steps=steps, n_steps=n_steps, **self._arguments)
        experience = self._read(dataset, policy, action_space)
        self._warn_about(experience, policy, settings)
        data = self._training_data(experience, policy, settings, deterministic)
        self._policy, self._deterministic = policy, deterministic
        if random_goals is not None:
            data.random_goals = self._goals.encode(random_goals)
            if len(data.random_goals) == 0:
                raise ValueError("`random_goals` is empty: give at least one negative sample.")
        drawn = data.goals if data.random_goals is None else data.random_goals
        self._visited = drawn[np.random.default_rng(self.seed).permutation(len(drawn))[:N_VISITED]]
        self._network = self._train(data, settings, progress_bar)
        return self

    def _read(self, dataset: Any, policy: Any, action_space: spaces.Space | None) -> Experience:
        """Read the dataset and choose the encoders."""
        experience = read_dataset(dataset, action_space)
        if action_space is None and not has_spaces(dataset):
            experience = replace(experience, action_space=widest(experience.action_space, policy))
        observation_space = experience.observation_space
        if isinstance(observation_space, spaces.Discrete) and not has_spaces(dataset):
            # Arrays do not carry the number of states: infer it from the data or the policy table.
            rows = [np.asarray(experience.observations), np.asarray(experience.next_observations)]
            table = len(policy) if isinstance(policy, np.ndarray) else 0
            observation_space = spaces.Discrete(max(table, *(int(part.max()) + 1 for part in rows)))
        self._states = Encoder(observation_space, "observations")
        self._actions = Encoder(experience.action_space, "actions")
        goals = achieved_goals(experience.next_observations, self.crop)
        whole = self.crop is None and not self._states.parts
        self._goals = Encoder(observation_space if whole else space_of(goals), "goals")
        check_policy(policy, self._states, self._actions)
        return experience

    @staticmethod
    def _warn_about(experience: Experience, policy: Any, settings: TrainingSettings) -> None:
        if settings.method in ("mc", "mixed"):
            longest = int((experience.last() - np.arange(len(experience))).max()) + 1
            horizon = 1 / (1 - settings.gamma)
            if longest < horizon:
                warnings.warn(
                    f"The longest episode has {longest} steps, less than the horizon 1 / (1 - gamma) = {horizon:.0f}: Monte "
                    'Carlo ignores what comes after an episode. Use method="td", longer episodes or a smaller gamma.',
                    stacklevel=3,
                )
            if policy is not None:
                warnings.warn(
                    "Monte Carlo C-learning estimates the future of the policy that collected the data, whatever `policy` is. "
                    'Use method="td" for another one.',
                    stacklevel=3,
                )

    def _training_data(
        self, experience: Experience, policy: Any, settings: TrainingSettings, deterministic: bool
    ) -> TrainingData:
        states, actions = self._states.encode(experience.observations), self._actions.encode(experience.actions)
        goals = self._goals.encode(achieved_goals(experience.next_observations, self.crop))
        inputs = np.concatenate([states, actions, goals], axis=1)
        shift, scale = standardization(inputs, (self._states, self._actions, self._goals))
        self._remember_states(states, scale[: self._states.size])
        if not self.normalize:
            shift, scale = np.zeros_like(shift), np.ones_like(scale)
        pool = None
        if settings.bootstraps:
            if policy is None:
                pool = following_actions(experience, self._actions)
            else:
                pool = self._pool(experience.next_observations, policy, deterministic)
        next_states = self._states.encode(experience.next_observations)
        return TrainingData(
            states, actions, next_states, goals, experience.last(), experience.terminations, pool, shift, scale
        )

    def _pool(self, observations: Values, policy: Any, deterministic: bool) -> ActionPool:
        return policy_actions(policy, observations, self._states, self._actions, self.policy_samples, deterministic)

    def _train(self, data: TrainingData, settings: TrainingSettings, progress_bar: bool) -> BatchedClassifiers:
        with progress(progress_bar, settings.method, settings.steps) as bar:

            def report(step: int, loss: th.Tensor) -> None:
                bar.update(1)
                if step % 100 == 0:
                    bar.set_postfix(loss=f"{float(loss) / self.n_classifiers:.4f}")

            shown = None if bar is None else report
            return train_classifiers([data], settings, self.n_classifiers, self.seed, self.device, shown)

    # -- files ---------------------------------------------------------------------------------------------------------

    def _constructor_arguments(self) -> dict[str, Any]:
        names = ("gamma", "crop", "n_classifiers", "normalize", "policy_samples", "seed")
        return {**{name: getattr(self, name) for name in names}, **self._arguments}

    def _empty_network(self) -> BatchedClassifiers:
        inputs = self._states.size + self._actions.size + self._goals.size
        hidden = TrainingSettings(gamma=self.gamma, **self._arguments).hidden
        return BatchedClassifiers(self.n_classifiers, (inputs, *hidden), np.zeros((1, inputs)), np.ones((1, inputs)))

    def _restored_network(self, arrays: dict[str, np.ndarray]) -> nn.Module:
        return super()._restored_network(arrays).to(self.device)

    # -- answering -----------------------------------------------------------------------------------------------------

    def _log_ratios(self, observations: Values, actions: np.ndarray | None, goals: np.ndarray) -> np.ndarray:
        states = self._states.encode(observations)
        self._warn_if_far(states)
        if actions is not None:
            return self._logits(states, actions, goals)
        if self._policy is None:
            raise ValueError("The policy is that of the data, so its actions here are unknown: pass `actions`.")
        pool = self._pool(observations, self._policy, self._deterministic)
        logs = []
        for i in range(pool.probabilities.shape[1]):
            chosen = np.broadcast_to(pool.actions[:, i], (len(states), self._actions.size))
            with np.errstate(divide="ignore"):
                logs.append(np.log(pool.probabilities[:, i : i + 1]) + self._logits(states, chosen, goals))
        return np.logaddexp.reduce(logs, axis=0)

    @th.no_grad()
    def _logits(self, states: np.ndarray, actions: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """:return: The classifiers' mean logits, ``(n, m)``"""
        assert self._network is not None
        classifiers, m = self._network, len(goals)
        pairs = th.as_tensor(np.concatenate([states, actions], axis=1), dtype=th.float32, device=self.device)
        targets = th.as_tensor(goals, dtype=th.float32, device=self.device)

        def logits(states: slice) -> np.ndarray:
            part = pairs[states]
            inputs = th.cat([part[:, None].expand(-1, m, -1), targets.expand(len(part), -1, -1)], dim=-1)
            each = classifiers(inputs.reshape(1, len(part) * m, -1).expand(self.n_classifiers, -1, -1))
            return each.mean(dim=0).reshape(len(part), m).cpu().numpy()

        return in_chunks(logits, len(pairs), m, CHUNK)
