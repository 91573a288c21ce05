"""Variants of CLearning that exist for the ablation and the trials only."""

from typing import ClassVar

import torch as th

from sb3_clearning.clearning.clearning import CLearning
from sb3_clearning.clearning.fast_update import PlainClassifierUpdate
from sb3_clearning.common.goal_algorithm import split_observations
from sb3_clearning.losses import importance_weight
from sb3_clearning.replay.batch import GoalBatch


class AppendixShares(CLearning):
    """
    CLearning with the shares of the appendix's table: lambda/2 of a batch are next, (1 - lambda)/2 future goals. Runs from
    before it had as many of one as of the other are of this class.
    """

    def relabelling(self) -> dict[str, float]:
        """:return: For each kind of goal its share of a batch"""
        return {**super().relabelling(), "next": self.lambda_ / 2, "future": (1 - self.lambda_) / 2}


class FirstClassifierActor(CLearning):
    """CLearning whose actor ascends the first classifier alone, as TD3's does, and not the smallest of both."""

    def _update_actor(self, batch: GoalBatch) -> None:
        logits, pre_tanh = self._actors_outputs(batch)
        self._descend_actor(self._actor_objective(logits[0]), pre_tanh)


class MeanClassifierActor(AppendixShares):
    """CLearning whose actor ascends the mean of the classifiers' logits, and not the smallest of them."""

    def _update_actor(self, batch: GoalBatch) -> None:
        logits, pre_tanh = self._actors_outputs(batch)
        self._descend_actor(self._actor_objective(logits.mean(dim=0)), pre_tanh)


class FirstClassifier(FirstClassifierActor):
    """CLearning whose importance weights, too, come from the first target classifier alone."""

    @th.no_grad()
    def _importance_weights(self, batch: GoalBatch, part: slice) -> th.Tensor:
        next_obs = split_observations(batch.next_observations, part)
        logits = self.critic_target(next_obs, self._next_actions(next_obs))[0]
        return importance_weight(logits, self.importance_weight_limit)


class CommandedGoalsActor(AppendixShares):
    """CLearning whose actor, and not its classifiers, is trained for commanded goals too, on batches of its own."""

    actor_goals: ClassVar[dict[str, float]] = {"random": 0.5, "commanded": 0.5}

    def _update_actor(self, batch: GoalBatch) -> None:
        own = self.replay_buffer.sample_goals(len(batch), self.actor_goals, self.gamma, env=self._vec_normalize_env)
        super()._update_actor(own[0])

    def _make_plain(self) -> PlainClassifierUpdate | None:
        # The fast path serves here too: only the batch is another one.
        return PlainClassifierUpdate.of(self, CommandedGoalsActor)


class RandomGoalsActor(CommandedGoalsActor):
    """CLearning whose actor is trained for random goals alone, and not for next and future states."""

    actor_goals = {"random": 1.0}
