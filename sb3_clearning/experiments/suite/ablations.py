"""Variants of CLearning for the ablation and the trials only."""

import math
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from sb3_clearning.clearning.clearning import CLearning
from sb3_clearning.clearning.fast_updater import FastClassifierUpdater
from sb3_clearning.clearning.updater import ClassifierUpdater
from sb3_clearning.common.policies import ClassifierCritic, CLearningPolicy
from sb3_clearning.files.json_values import register_class
from sb3_clearning.layers import BatchedLinear
from sb3_clearning.losses import importance_weight
from sb3_clearning.replay.batch import GoalBatch
from sb3_clearning.replay.goal_buffer import GoalReplayBuffer


class AppendixShares(CLearning):
    """
    CLearning with the shares of the appendix's table: lambda/2 of a batch are next, (1 - lambda)/2 future goals. Runs from
    before it had as many of one as of the other are of this class.
    """

    def relabelling(self) -> dict[str, float]:
        """:return: For each kind of goal its share of a batch"""
        return {**super().relabelling(), "next": self.lambda_ / 2, "future": (1 - self.lambda_) / 2}


class _FirstActorUpdater(ClassifierUpdater):
    def update_actor(self, batch: GoalBatch) -> None:
        logits, regularization = self.actor_outputs(batch)
        self.descend_actor(self.actor_loss(logits[0]) + regularization)


class _MeanActorUpdater(ClassifierUpdater):
    def update_actor(self, batch: GoalBatch) -> None:
        logits, regularization = self.actor_outputs(batch)
        self.descend_actor(self.actor_loss(logits.mean(dim=0)) + regularization)


class _FirstUpdater(_FirstActorUpdater):
    def importance_weights(self, batch: GoalBatch, part: slice) -> th.Tensor:
        return importance_weight(self.next_outputs(batch, part)[0], self.model.importance_weight_limit)


class _ActorGoalsUpdater(ClassifierUpdater):
    model: "CommandedGoalsActor"

    def update_actor(self, batch: GoalBatch) -> None:
        model = self.model
        own = model.replay_buffer.sample_goals(len(batch), model.actor_goals, model.gamma, env=model.get_vec_normalize_env())
        super().update_actor(own[0])


class _FastActorGoalsUpdater(_ActorGoalsUpdater, FastClassifierUpdater):
    definition = _ActorGoalsUpdater


class _EntropyUpdater(ClassifierUpdater):
    model: "EntropyActor"

    def actor_step(self, batch: GoalBatch) -> th.Tensor:
        model = self.model
        actions, log_prob = model.actor.action_log_prob(batch.observations)  # type: ignore[operator]
        with th.no_grad():
            features = model.critic.extract_features(batch.observations, model.critic.features_extractor)
        logits = model.critic.logits(th.cat([features, actions], dim=1)).amin(dim=0)
        self.descend_actor(self.actor_loss(logits) + model.ent_coef * log_prob.mean())
        # The gradient of SAC's loss for the logarithm of the coefficient: the entropy is held at -action_dim / 2.
        excess = -float(log_prob.detach().mean()) + actions.shape[1] / 2
        model.ent_coef *= math.exp(-model.lr_schedule(1.0) * excess)
        return logits.detach()


class FirstClassifierActor(CLearning):
    """CLearning whose actor ascends the first classifier alone, as TD3's does, and not the smallest of both."""

    updater_class = _FirstActorUpdater


class MeanClassifierActor(AppendixShares):
    """CLearning whose actor ascends the mean of the classifiers' logits, and not the smallest of them."""

    updater_class = _MeanActorUpdater


class FirstClassifier(FirstClassifierActor):
    """CLearning whose importance weights, too, come from the first target classifier alone."""

    updater_class = _FirstUpdater


class CommandedGoalsActor(AppendixShares):
    """CLearning whose actor, and not its classifiers, is trained for commanded goals too, on separate batches."""

    updater_class, fast_updater_class = _ActorGoalsUpdater, _FastActorGoalsUpdater
    actor_goals: ClassVar[dict[str, float]] = {"random": 0.5, "commanded": 0.5}


class RandomGoalsActor(CommandedGoalsActor):
    """CLearning whose actor is trained for random goals alone, and not for next and future states."""

    actor_goals = {"random": 1.0}


class EntropyActor(CLearning):
    """CLearning whose stochastic actor has SAC's entropy bonus, with an automatic coefficient."""

    updater_class = _EntropyUpdater
    ent_coef = 0.1


class SomeUniformActions(CLearning):
    """CLearning that explores with uniformly random actions instead of the actor's in a fifth of the steps."""

    def _sample_action(self, *arguments: Any, **named_arguments: Any) -> tuple[np.ndarray, np.ndarray]:
        scaled = super()._sample_action(*arguments, **named_arguments)[1]
        if self.num_timesteps >= self.learning_starts and self.action_space.np_random.random() < 0.2:
            scaled = self.policy.scale_action(self._uniform_actions(len(scaled)))
        return self.policy.unscale_action(scaled), scaled


class MovingGoalsBuffer(GoalReplayBuffer):
    """
    Half of the transitions are drawn from those after which something moves that rarely does. Random goals are drawn from the
    same distribution: the fixed point is p+(g | s, a) / p(g) for that p(g), whatever p(s, a) is.
    """

    #: How many steps ahead to look, how many transitions to choose one from, and what counts as motion, in the goal's unit.
    AHEAD, CANDIDATES, MOTION = 10, 16, 1e-3

    def _draw(self, shape: tuple[int, ...]) -> np.ndarray:
        drawn = super()._draw((self.CANDIDATES, *shape))
        ahead = self._ahead(drawn, np.minimum(self._steps_left(drawn), self.AHEAD))
        moved = np.abs(self._reached_goals(ahead) - self._reached_goals(drawn)) > self.MOTION
        rare = moved.mean(axis=tuple(range(moved.ndim - 1))) < 0.5
        first = np.argmax(moved[..., rare].any(axis=-1), axis=0)[None] if rare.any() else np.zeros((1, *shape), dtype=np.int64)
        chosen = np.take_along_axis(drawn, first, axis=0)[0]
        return np.where(np.random.random_sample(shape) < 0.5, chosen, drawn[0])


register_class("sb3_clearning.experiments.MovingGoalsBuffer", MovingGoalsBuffer)


class MovingGoals(CLearning):
    """CLearning that draws transitions more often after which something moves that rarely does."""

    def _setup_model(self) -> None:
        self.replay_buffer_class = MovingGoalsBuffer
        super()._setup_model()


class VariedStepsBuffer(GoalReplayBuffer):
    """The number of recorded steps is drawn for each transition, from 1 to n."""

    def _window(self, shape: tuple[int, ...], n_steps: int) -> np.ndarray:
        return np.random.randint(1, n_steps + 1, shape)


register_class("sb3_clearning.experiments.VariedStepsBuffer", VariedStepsBuffer)


class VariedSteps(CLearning):
    """
    CLearning that looks ahead a random number of steps: some targets are the current policy's after one step, others carry
    the news far.
    """

    def _setup_model(self) -> None:
        self.replay_buffer_class = VariedStepsBuffer
        super()._setup_model()


class WithoutAchievedGoal(CLearning):
    """CLearning whose networks do not see the achieved goal, which the observation repeats in these tasks."""

    def _setup_model(self) -> None:
        super()._setup_model()
        space = self.observation_space
        assert isinstance(space, spaces.Dict)
        assert next(iter(space.spaces)) == "achieved_goal"
        n_goal = spaces.flatdim(space["achieved_goal"])
        # Inputs are the second axis of both: (outputs, inputs) of an actor, (classifiers, inputs, outputs) of the classifiers.
        for layers in (self.actor.mu, self.actor_target.mu, self.critic.classifiers, self.critic_target.classifiers):
            _hold_at_zero(next(layers.parameters()), n_goal)


def _hold_at_zero(weight: th.nn.Parameter, n_inputs: int) -> None:
    with th.no_grad():
        weight[:, :n_inputs] = 0.0

    def without_inputs(gradient: th.Tensor) -> th.Tensor:
        gradient = gradient.clone()
        gradient[:, :n_inputs] = 0.0
        return gradient

    if weight.requires_grad:
        weight.register_hook(without_inputs)


class AllPairsCritic(ClassifierCritic):
    """
    Contrastive RL's critic: an encoder of (s, a) and one of g, whose distance is the negative logit, with layer normalization.
    """

    #: The size of the representations.
    SIZE = 64

    def __init__(self, observation_space: spaces.Dict, action_space: spaces.Box, net_arch: list[int], **kwargs: Any):
        super().__init__(observation_space, action_space, net_arch, **kwargs)
        del self.classifiers
        self._n_goal = spaces.flatdim(observation_space["desired_goal"])
        n_state = kwargs["features_dim"] - self._n_goal + spaces.flatdim(action_space)
        self.state_action = self._encoder([n_state, *net_arch])
        self.goal = self._encoder([self._n_goal, *net_arch])

    def _encoder(self, sizes: list[int]) -> nn.Sequential:
        layers: list[nn.Module] = []
        for size, next_size in pairwise(sizes):
            layers += [BatchedLinear(self.n_critics, size, next_size), nn.LayerNorm(next_size), nn.ReLU()]
        return nn.Sequential(*layers, BatchedLinear(self.n_critics, sizes[-1], self.SIZE))

    def _encode(self, inputs: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        """:return: The representations of (s, a) and of g, ``(n_critics, batch, SIZE)`` each"""
        # The keys are in alphabetical order: achieved goal, desired goal (which is as long), the others.
        before, goals, after = inputs.split([self._n_goal, self._n_goal, inputs.shape[1] - 2 * self._n_goal], dim=1)
        states = th.cat([before, after], dim=1)
        return self.state_action(states.expand(self.n_critics, -1, -1)), self.goal(goals.expand(self.n_critics, -1, -1))

    def logits(self, inputs: th.Tensor) -> th.Tensor:
        """:return: The logits of features and actions, ``(n_critics, batch)``"""
        states, goals = self._encode(inputs)
        return -_root((states - goals).square().sum(dim=-1))

    def pairs(self, obs: Any, actions: th.Tensor) -> th.Tensor:
        """:return: The logits of each (s, a) with each goal of the batch, ``(n_critics, batch, batch)``"""
        features = self.extract_features(obs, self.features_extractor)
        states, goals = self._encode(th.cat([features, actions], dim=1))
        squares = states.square().sum(dim=-1)[:, :, None] + goals.square().sum(dim=-1)[:, None] - 2 * states @ goals.mT
        return -_root(squares)


def _root(squares: th.Tensor) -> th.Tensor:
    """:return: Square roots with finite gradients also at 0, which rounding may make negative"""
    return squares.clamp(min=1e-6).sqrt()


class AllPairsPolicy(CLearningPolicy):
    """A policy with :class:`AllPairsCritic`."""

    def make_critic(self, features_extractor: BaseFeaturesExtractor | None = None) -> AllPairsCritic:  # type: ignore[override]
        """:return: New encoders"""
        return AllPairsCritic(**self._update_features_extractor(self.critic_kwargs, features_extractor)).to(self.device)


class _AllPairsUpdater(ClassifierUpdater):
    def update_critic(self, batch: GoalBatch) -> None:
        """Descend the symmetric InfoNCE loss of the future goals, with JaxGCRL's penalty on the normalizing constants."""
        future = batch.kinds["future"]
        obs = {key: values[future] for key, values in batch.observations.items()}
        pairs = self.model.critic.pairs(obs, batch.actions[future])  # type: ignore[operator]
        of_pair = pairs.diagonal(dim1=1, dim2=2)
        of_state, of_goal = pairs.logsumexp(dim=2), pairs.logsumexp(dim=1)
        loss = (of_state + of_goal - 2 * of_pair).mean(dim=1) + 0.1 * of_state.square().mean(dim=1)
        self.descend_critic(loss.sum())


class AllPairs(CLearning):
    """Contrastive RL: Monte Carlo futures, of which each is compared with all others of the batch. Use ``lambda_=0``."""

    updater_class = _AllPairsUpdater
    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {"MultiInputPolicy": AllPairsPolicy}


register_class("sb3_clearning.experiments.AllPairsPolicy", AllPairsPolicy)
