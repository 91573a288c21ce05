"""C-learning's update, from the importance weights to the actor's objective."""

import math
from typing import TYPE_CHECKING

import torch as th

from sb3_clearning.common.updater import Updater
from sb3_clearning.losses import ACTOR_OBJECTIVES, ELEMENTWISE_LOSSES, importance_weight, log_mass, random_label_and_weight
from sb3_clearning.replay.batch import GoalBatch

if TYPE_CHECKING:
    from sb3_clearning.clearning.clearning import CLearning


class ClassifierUpdater(Updater):
    """Algorithm 3 of the paper, for the n-step recursion."""

    model: "CLearning"

    def update_critic(self, batch: GoalBatch) -> None:
        """Descend the classifier loss, Eq. "objective4" with the appendix's mixing."""
        labels, weights, w = self.labels_and_weights(batch)
        logits = self.classifier_step(batch, labels, weights)
        if self.measures("train/classifier_loss"):
            self._measure_classifier(batch, logits, labels, weights, w)

    def labels_and_weights(self, batch: GoalBatch) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
        """
        The appendix's table on mixing, for the n-step recursion: with m = min(n, steps left in the recorded episode),

            p+(g | s_t, a_t) = sum_{k=1..m} (1 - gamma) gamma^(k-1) p(s_{t+k} = g) + gamma^m E[p+(g | s_{t+m}, a')].

        So the m next states have the weight 1 - gamma^m together, and a random goal has gamma^m w, with w at (s_{t+m}, a').
        Each kind's weights are divided by its count, so that a kind contributes its own mean whatever its share of the batch.

        :return: Labels ``(batch,)``, weights ``(batch,)``, and the importance weights of the random goals
        """
        model, part = self.model, self.random_part(batch)
        n_random = part.stop - part.start
        labels, weights = th.ones_like(batch.dones), th.empty_like(batch.dones)
        for kind in ("next", "future"):
            if kind in batch.kinds:
                positive = batch.kinds[kind]
                share = model.lambda_ * (1 - self.discounts(batch, positive)) if kind == "next" else 1 - model.lambda_
                weights[positive] = share / max(positive.stop - positive.start, 1)
        factor = model.bootstrap_factor
        w = self.importance_weights(batch, part) if factor > 0 else labels.new_zeros(n_random)
        if model.terminal == "absorbing":
            # At a terminal state nothing is bootstrapped: the mass gamma^m goes to the terminal state itself, that is, to the
            # positive goals.
            w = w * (1 - batch.dones[part])
            positive = batch.kinds["next" if "next" in batch.kinds else "future"]
            rest = factor * self.discounts(batch, positive) * math.exp(log_mass(model.gamma, model.lambda_, factor))
            weights[positive] += rest / max(positive.stop - positive.start, 1) * batch.dones[positive]
        random_labels, random_weights = random_label_and_weight(w, self.discounts(batch, part), factor)
        labels[part] = random_labels
        weights[part] = random_weights / n_random
        return labels, weights, w

    def importance_weights(self, batch: GoalBatch, part: slice) -> th.Tensor:
        """:return: w(s', a', g) of the random goals g, with a' from the policy that is commanded to reach g"""
        return importance_weight(self.next_outputs(batch, part).amin(dim=0), self.model.importance_weight_limit)

    @staticmethod
    def random_part(batch: GoalBatch) -> slice:
        """:return: The slice of negatives: random and commanded goals, which come last in a batch"""
        starts = [batch.kinds[kind].start for kind in ("random", "commanded") if kind in batch.kinds]
        return slice(min(starts), len(batch))

    def classifier_step(self, batch: GoalBatch, labels: th.Tensor, weights: th.Tensor) -> th.Tensor:
        """:return: The logits before the step, ``(n_critics, batch)``"""
        logits = self.model.critic(batch.observations, batch.actions)
        self.descend_critic(ELEMENTWISE_LOSSES[self.model.classifier_loss](logits, labels, weights).sum())
        return logits.detach()

    @th.no_grad()
    def _measure_classifier(
        self, batch: GoalBatch, logits: th.Tensor, labels: th.Tensor, weights: th.Tensor, w: th.Tensor
    ) -> None:
        part = self.random_part(batch)
        positive, random = logits[:, : part.start], logits[:, part]
        # A weight at the limit counts as clipped; rounding in exp(log(limit)) must not hide it.
        limit = self.model.importance_weight_limit
        clipped = (w >= limit * (1 - 1e-5)) if math.isfinite(limit) else th.zeros_like(w)
        self.metrics.add(
            {
                "train/classifier_loss": ELEMENTWISE_LOSSES[self.model.classifier_loss](logits, labels, weights).sum(),
                "train/accuracy_positive": (positive > 0).float().mean(),
                "train/accuracy_negative": (random < 0).float().mean(),
                "train/logits_positive": positive.mean(),
                "train/logits_random": random.mean(),
                "train/w_mean": w.mean(),
                "train/w_clipped": clipped.float().mean(),
            }
        )

    def update_actor(self, batch: GoalBatch) -> None:
        """Ascend Eq. "policy-update" for the smallest classifier: its logit or, as in the paper, its log probability."""
        logits = self.actor_step(batch)
        if self.measures("train/actor_loss"):
            self.metrics.add({"train/actor_loss": self.actor_loss(logits), "train/logits_actor": logits.mean()})

    def actor_step(self, batch: GoalBatch) -> th.Tensor:
        """:return: The smallest logits of the actor's actions before the step, ``(batch,)``"""
        all_logits, regularization = self.actor_outputs(batch)
        logits = all_logits.amin(dim=0)
        self.descend_actor(self.actor_loss(logits) + regularization)
        return logits.detach()

    def actor_outputs(self, batch: GoalBatch) -> tuple[th.Tensor, th.Tensor]:
        """:return: The classifiers' logits for the actor's actions, and the actor's regularization with the action's rate"""
        outputs, regularization = super().actor_outputs(batch)
        model = self.model
        if model.action_rate_penalty > 0:
            # The batch has relabelled goals, and its next states are n steps ahead.
            steps = model.replay_buffer.sample(len(batch), env=model.get_vec_normalize_env())
            change = model.actor(steps.observations) - model.actor(steps.next_observations)
            regularization = regularization + model.action_rate_penalty * change.square().mean()
        return outputs, regularization

    def actor_loss(self, logits: th.Tensor) -> th.Tensor:
        """:return: The loss that the actor descends, a scalar, for logits ``(batch,)``"""
        return -ACTOR_OBJECTIVES[self.model.actor_loss](logits).mean()
