"""OneStepModel: the paper's other comparison method, an unrolled model of the next state."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.torch_layers import create_mlp
from torch import nn
from torch.nn import functional as F

from sb3_clearning.checks import check_number, check_sizes
from sb3_clearning.goal_spaces import Crop
from sb3_clearning.prediction.encoding import Encoder
from sb3_clearning.prediction.estimator import achieved_goals, widest
from sb3_clearning.prediction.fitted import FittedPredictor
from sb3_clearning.prediction.next_actions import check_policy, policy_actions
from sb3_clearning.prediction.queries import N_VISITED, Estimate
from sb3_clearning.prediction.training import standardization
from sb3_clearning.replay.datasets import has_spaces, read_dataset
from sb3_clearning.replay.experience import Values, n_rows, space_of


class OneStepModel(FittedPredictor):
    r"""
    Learns the next state from state and action by least squares, and unrolls this model: the future is the average over the
    steps with the weights :math:`(1 - \gamma) \gamma^{\Delta - 1}`. Without a policy the network also predicts the data's next
    action. The density is a mixture of Gaussians around the predicted states, with the residuals' standard deviation.

    :param gamma: The discount factor
    :param crop: Which part of the observation is predicted, see :class:`FutureStateEstimator`; for densities indices or a
        slice
    :param horizon: Number of steps to unroll; later ones are left out. The paper: 100
    :param n_rollouts: Rollouts to average over, if the policy is stochastic
    :param noise: Whether a rollout adds the residuals' noise to each state
    :param hidden: Sizes of the hidden layers
    :param learning_rate: Adam's learning rate
    :param batch_size: Transitions in a batch
    :param seed: The seed of weights, batches and rollouts
    """

    def __init__(
        self,
        gamma: float = 0.99,
        crop: Crop = None,
        horizon: int = 100,
        n_rollouts: int = 1,
        noise: bool = False,
        hidden: tuple[int, ...] = (256, 256),
        learning_rate: float = 1e-3,
        batch_size: int = 256,
        seed: int | None = None,
    ):
        check_number("gamma", gamma, 0, 1, open_ends="high")
        for name, value in (("horizon", horizon), ("n_rollouts", n_rollouts), ("batch_size", batch_size)):
            check_number(name, value, 1, whole=True)
        check_number("learning_rate", learning_rate, 0, open_ends="low")
        check_sizes("hidden", hidden)
        self.gamma, self.crop, self.horizon, self.n_rollouts, self.noise = gamma, crop, horizon, n_rollouts, noise
        self.hidden, self.learning_rate, self.batch_size, self.seed = hidden, learning_rate, batch_size, seed

    def fit(self, dataset: Any, policy: Any = None, steps: int = 10_000, deterministic: bool = False) -> "OneStepModel":
        """
        Train from scratch on a dataset.

        :param dataset: See :meth:`FutureStateEstimator.fit`
        :param policy: The policy to unroll the model with; None: that of the data, which is learned too
        :param steps: Number of batches
        :param deterministic: Whether an SB3 model acts deterministically
        :return: Itself
        """
        check_number("steps", steps, 1, whole=True)
        experience = read_dataset(dataset)
        if not has_spaces(dataset):
            experience = replace(experience, action_space=widest(experience.action_space, policy))
        if not isinstance(experience.observation_space, spaces.Box):
            raise ValueError(f"OneStepModel needs observations of a Box, not of {experience.observation_space}.")
        self._states = Encoder(experience.observation_space, "observations")
        self._actions = Encoder(experience.action_space, "actions")
        check_policy(policy, self._states, self._actions)
        goals = achieved_goals(experience.next_observations, self.crop)
        self._goals = Encoder(space_of(goals), "goals")
        self._policy, self._deterministic = policy, deterministic
        rng = np.random.default_rng(self.seed)
        self._visited = self._goals.encode(goals)[rng.permutation(len(goals))[:N_VISITED]]

        states, actions = self._states.encode(experience.observations), self._actions.encode(experience.actions)
        step = self._states.encode(experience.next_observations) - states
        self._shift, self._scale = standardization(np.concatenate([states, actions], axis=1), (self._states, self._actions))
        self._remember_states(states, self._scale[: self._states.size])
        self._step_mean, self._step_std = standardization(step, (self._states,))
        inputs = th.as_tensor((np.concatenate([states, actions], axis=1) - self._shift) / self._scale)
        targets = th.as_tensor((step - self._step_mean) / self._step_std)
        following = np.minimum(np.arange(len(actions)) + 1, len(actions) - 1)
        known = ~experience.ends & (following > np.arange(len(actions)))
        if policy is None and not known.any():
            raise ValueError(
                "No two transitions of the data follow each other, so its own policy cannot be learned: pass `policy`."
            )
        next_actions, weights = th.as_tensor(actions[following]), th.as_tensor(known.astype(np.float32))
        with th.random.fork_rng(devices=[]):
            th.manual_seed(int(rng.integers(2**31)))
            self._network = self._empty_network()
        optimizer = th.optim.Adam(self._network.parameters(), float(self.learning_rate), fused=True)
        for _ in range(steps):
            index = th.as_tensor(rng.integers(len(inputs), size=self.batch_size))
            output = self._network(inputs[index])
            loss = (output[:, : self._states.size] - targets[index]).square().mean()
            if policy is None:
                loss = loss + self._action_loss(output[:, self._states.size :], next_actions[index], weights[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with th.no_grad():
            residual = (self._network(inputs)[:, : self._states.size] - targets).numpy() * self._step_std
        self._residual_std = np.maximum(residual.std(axis=0), 1e-6)
        return self

    def _empty_network(self) -> nn.Sequential:
        size = self._states.size + self._actions.size
        return nn.Sequential(*create_mlp(size, size, list(self.hidden)))

    def _action_loss(self, output: th.Tensor, actions: th.Tensor, known: th.Tensor) -> th.Tensor:
        """:return: How far the predicted following actions are from the data's, where these are known"""
        if self._actions.discrete:
            loss = F.cross_entropy(output, actions.argmax(dim=1), reduction="none")
        else:
            scale = th.as_tensor(self._scale[self._states.size :])
            loss = ((output - actions) / scale).square().mean(dim=1)
        return (loss * known).mean()

    # -- files ---------------------------------------------------------------------------------------------------------

    def _constructor_arguments(self) -> dict[str, Any]:
        names = ("gamma", "crop", "horizon", "n_rollouts", "noise", "hidden", "learning_rate", "batch_size", "seed")
        return {name: getattr(self, name) for name in names}

    def _statistics(self) -> dict[str, int]:
        size, inputs = self._states.size, self._states.size + self._actions.size
        return {"shift": inputs, "scale": inputs, "step_mean": size, "step_std": size, "residual_std": size}

    def _restore(self, content: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        super()._restore(content, arrays)
        if not isinstance(self._states.space, spaces.Box):
            raise ValueError("the observations' space must be a Box")
        if not callable(self.crop):  # raises an error if it does not lead to these goals
            self._goals.encode(achieved_goals(self._states.decode(self._shift[None, : self._states.size]), self.crop))

    # -- unrolling -----------------------------------------------------------------------------------------------------

    @th.no_grad()
    def _predict(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """:return: The next states, and the network's numbers for the following action"""
        assert self._network is not None
        inputs = (np.concatenate([states, actions], axis=1) - self._shift) / self._scale
        output = self._network(th.as_tensor(inputs.astype(np.float32))).numpy()
        return states + output[:, : self._states.size] * self._step_std + self._step_mean, output[:, self._states.size :]

    def _act(self, states: np.ndarray, predicted: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """:return: Encoded actions in the given states"""
        if self._policy is not None:
            pool = policy_actions(
                self._policy, self._states.decode(states), self._states, self._actions, 1, self._deterministic
            )  # fmt: skip
            probabilities, choices = pool.probabilities, pool.actions
        elif self._actions.discrete:
            odds = np.exp(predicted - predicted.max(axis=1, keepdims=True))
            probabilities, choices = odds / odds.sum(axis=1, keepdims=True), np.eye(self._actions.size, dtype=np.float32)[None]
        else:
            space = self._actions.space
            assert isinstance(space, spaces.Box)
            return np.clip(predicted, space.low.reshape(-1), space.high.reshape(-1))
        drawn = (rng.random((len(states), 1)) >= probabilities.cumsum(axis=1)).sum(axis=1).clip(max=probabilities.shape[1] - 1)
        return choices[0, drawn] if len(choices) == 1 else choices[np.arange(len(states)), drawn]

    def unroll(self, observations: Values, actions: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """
        :return: Predicted states ``(n, n_rollouts * horizon, state_size)`` and their weights ``(n_rollouts * horizon,)``,
            which add up to 1
        """
        self._check_ready()
        rows, encoded = self._state_and_action(observations, actions)
        rng = np.random.default_rng(self.seed)
        n = n_rows(rows)
        start = self._states.encode(rows)
        self._warn_if_far(start)
        states = np.repeat(start, self.n_rollouts, axis=0)
        if encoded is None:
            if self._policy is None:
                raise ValueError("The policy is that of the data, so its actions here are unknown: pass `actions`.")
            current = self._act(states, np.zeros((len(states), 0)), rng)
        else:
            current = np.repeat(encoded, self.n_rollouts, axis=0)
        path = []
        low, high = self._range
        for _ in range(self.horizon):
            states, predicted = self._predict(states, current)
            if self.noise:
                states = states + (rng.standard_normal(states.shape) * self._residual_std).astype(np.float32)
            states = np.clip(states, low, high)
            path.append(states)
            current = self._act(states, predicted, rng)
        weights = self.gamma ** np.arange(self.horizon)
        together = np.stack(path, axis=1).reshape(n, self.n_rollouts * self.horizon, -1)
        return together, np.tile(weights / weights.sum(), self.n_rollouts) / self.n_rollouts

    @property
    def _range(self) -> tuple[np.ndarray, np.ndarray]:
        """A model that diverges is clipped ten standard deviations from the data, before it overflows."""
        shift, scale = self._shift[: self._states.size], self._scale[: self._states.size]
        return shift - 10 * scale, shift + 10 * scale

    def _future_goals(self, observations: Values, actions: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, bool]:
        """:return: Predicted goals ``(n, steps, goal_size)``, their weights ``(steps,)``, and whether the state is single"""
        single = self._states.is_single(observations)
        states, weights = self.unroll(observations, actions)
        flat = achieved_goals(self._states.decode(states.reshape(-1, states.shape[-1])), self.crop)
        return self._goals.encode(flat).reshape(*states.shape[:2], -1), weights, single

    # -- answering -----------------------------------------------------------------------------------------------------

    def _log_ratios(self, observations: Values, actions: np.ndarray | None, goals: np.ndarray) -> np.ndarray:
        if callable(self.crop):
            raise ValueError("A density needs a crop by indices or a slice: the residuals of a function are unknown.")
        shape = self._states.space.shape or ()
        std = achieved_goals(self._residual_std.reshape(1, *shape), self.crop).reshape(-1)
        chosen = None if actions is None else self._actions.decode(actions)
        centers, weights, _ = self._future_goals(observations, chosen)
        log_norm = -np.log(std).sum() - 0.5 * len(std) * np.log(2 * np.pi)
        result = np.empty((len(centers), len(goals)))
        for i, path in enumerate(centers):
            distance = th.cdist(th.as_tensor(goals / std, dtype=th.float64), th.as_tensor(path / std, dtype=th.float64))
            result[i] = th.logsumexp(-0.5 * distance.square() + th.as_tensor(np.log(weights)), dim=1).numpy() + log_norm
        return result - self.marginal()(self._goals.decode(goals))[None]

    def expected_future_state(
        self, observations: Values, actions: np.ndarray | None = None, candidates: np.ndarray | None = None
    ) -> np.ndarray:
        """:return: The weighted average of the unrolled states, ``(n, …)``. ``candidates`` are not used"""
        goals, weights, single = self._future_goals(observations, actions)
        mean = self._goals.mean(np.einsum("ntg,t->ng", goals, weights))
        return mean[0] if single else mean

    def _average_of(self, observations: Values, actions: np.ndarray | None, function: Any) -> Estimate:
        goals, weights, single = self._future_goals(observations, actions)
        n, steps, _ = goals.shape
        values = np.asarray(function(self._goals.decode(goals.reshape(n * steps, -1))), dtype=np.float64).reshape(n, steps)
        per_rollout = (values * weights).reshape(n, self.n_rollouts, -1).sum(axis=2) * self.n_rollouts
        mean = per_rollout.mean(axis=1)
        error = per_rollout.std(axis=1, ddof=1) / np.sqrt(self.n_rollouts) if self.n_rollouts > 1 else np.full(n, np.nan)
        return Estimate(mean[0], error[0]) if single else Estimate(mean, error)

    def probability(self, observations: Values, actions: Any, event: Any, candidates: Any = None) -> Any:
        """
        The weighted share of unrolled states in a set.

        :param event: A function from goals ``(m, …)`` to whether they are in the set
        :return: The probability, and its standard error over rollouts (NaN for one rollout)
        """
        return self._average_of(observations, actions, self._function(event))

    def expected_reward(self, observations: Values, actions: Any, reward_fn: Any, candidates: Any = None) -> Any:
        """
        The weighted average reward of the unrolled states.

        :param reward_fn: A function from goals ``(m, …)`` to rewards
        :return: The expected reward, and its standard error over rollouts (NaN for one rollout)
        """
        return self._average_of(observations, actions, self._function(reward_fn))

    @staticmethod
    def _function(function: Any) -> Any:
        if not callable(function):
            raise ValueError("A one-step model makes its own states: pass a function of goals, not values for candidates.")
        return function
