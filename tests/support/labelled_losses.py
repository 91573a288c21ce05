"""
C-learning's losses as labelled ones, the table of the appendix on mixing: a second formulation of those in ``losses.py``, put
together from the labels, weights and elementwise losses that CLearning's updater uses.
"""

import torch as th

from sb3_clearning.losses import ELEMENTWISE_LOSSES, Discount, random_label_and_weight


def mixed_labelled(
    next_logits: th.Tensor,
    future_logits: th.Tensor,
    random_logits: th.Tensor,
    w: th.Tensor,
    gamma: Discount,
    lambda_: float,
    form: str = "bce",
    next_gamma: Discount | None = None,
) -> th.Tensor:
    r"""
    In the appendix the shares of the batch, :math:`\lambda/2, (1-\lambda)/2, 1/2`, carry the factors :math:`\lambda` and
    :math:`1 - \lambda`. Here each kind of goal has its own mean, so that the factors are explicit, and rounding of the shares
    does not change the loss.
    """
    loss, one = ELEMENTWISE_LOSSES[form], random_logits.new_ones(())
    label, weight = random_label_and_weight(w, gamma, lambda_)
    total = loss(random_logits, label, weight).mean(dim=-1).sum()
    if lambda_ > 0:
        next_gamma = gamma if next_gamma is None else next_gamma
        total = total + loss(next_logits, one, lambda_ * (1 - next_gamma) * one).mean(dim=-1).sum()
    if lambda_ < 1:
        total = total + loss(future_logits, one, (1 - lambda_) * one).mean(dim=-1).sum()
    return total


def td_labelled(
    next_logits: th.Tensor,
    random_logits: th.Tensor,
    w: th.Tensor,
    gamma: Discount,
    form: str = "bce",
    next_gamma: Discount | None = None,
) -> th.Tensor:
    """Eq. "classifier-loss"."""
    return mixed_labelled(next_logits, next_logits[..., :0], random_logits, w, gamma, 1.0, form, next_gamma)


def mc_labelled(future_logits: th.Tensor, random_logits: th.Tensor, form: str = "bce") -> th.Tensor:
    """Futures have the label 1, random goals 0."""
    no_w = th.zeros_like(random_logits)
    return mixed_labelled(future_logits[..., :0], future_logits, random_logits, no_w, 0.0, 0.0, form)
