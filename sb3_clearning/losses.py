r"""
The paper's equations as pure functions on logits. CLearning's own loss, their labelled form, is assembled in
``clearning/updater.py`` (``labels_and_weights``).

A classifier :math:`C(F=1 \mid s, a, g)` says whether ``g`` is a future state of ``(s, a)`` or a random one. All functions take
its logits, so that :math:`\log C(F=1) = \mathrm{logsigmoid}(\mathrm{logit})`,
:math:`\log C(F=0) = \mathrm{logsigmoid}(-\mathrm{logit})` and :math:`C(F=1) / C(F=0) = e^{\mathrm{logit}}` are computed
without ``0/0`` or ``log 0``.

Logits have the shape ``(batch,)``, or ``(n_critics, batch)`` for several classifiers, whose losses are summed. Importance
weights have the shape ``(batch,)`` and are constants: no gradient flows through them (the paper's stop-gradient).

With n-step targets the first m steps of a transition's future are the data's own, and w is that of the state and action after
them. Then ``gamma`` is a tensor with the discount :math:`\gamma^m` of each transition, and "next" goals are the m next states
at offsets k with the probabilities :math:`(1-\gamma) \gamma^{k-1} / (1-\gamma^m)`.
"""

import math
from collections.abc import Callable

import torch as th
from torch.nn import functional as F

from sb3_clearning.checks import check_logits, check_number, check_same_batch

#: The discount factor, or the discount of each transition, ``(batch,)`` or ``(n_critics, batch)``, within [0, 1].
Discount = float | th.Tensor


def importance_weight(logits: th.Tensor, clip: float = float("inf")) -> th.Tensor:
    r"""
    Eq. "iw": :math:`w(s', a', g) = C(F=1 \mid s', a', g) / C(F=0 \mid s', a', g) = e^{\mathrm{logit}}`, within [0, clip].

    :param logits: The classifier's logits at the next state and action, of any shape
    :param clip: The largest weight, above 0. The paper suggests :math:`1 / (1 - \gamma)`
    :return: The weights, detached, of the same shape
    """
    # The exponential of the clipped logit, not the clip of the exponential: a logit of 100 gives `clip`, not inf. Without a
    # clip the square root of the type's largest number is the limit (1.8e19 in float32), as a label of inf/inf would be NaN.
    check_number("clip", clip, 0, open_ends="low", hint=" (inf: no limit)")
    limit = min(math.log(clip), math.log(th.finfo(logits.dtype).max) / 2)
    return logits.detach().clamp(max=limit).exp()


def _positive_nll(logits: th.Tensor) -> th.Tensor:
    """:return: -log C(F=1), elementwise"""
    return F.softplus(-logits)


def _negative_nll(logits: th.Tensor) -> th.Tensor:
    """:return: -log C(F=0), elementwise"""
    return F.softplus(logits)


def _batch_mean(values: th.Tensor) -> th.Tensor:
    """:return: the mean over the batch, summed over classifiers"""
    return values.mean(dim=-1).sum()


def mean_of_weighted(weight: Discount, values: th.Tensor) -> th.Tensor:
    """:return: The mean of weight times value over the batch, summed over classifiers; one weight, or one for each value"""
    return _batch_mean(weight * values) if isinstance(weight, th.Tensor) else weight * _batch_mean(values)


def _check_discount(name: str, discount: Discount, **logits: th.Tensor) -> None:
    if isinstance(discount, th.Tensor):
        check_same_batch(**{name: discount}, **logits)
    else:
        check_number(name, discount, 0, 1)


def mc_loss(future_logits: th.Tensor, random_logits: th.Tensor) -> th.Tensor:
    r"""
    Monte Carlo C-learning, Eq. "objective", negated:
    :math:`-E[\log C(F=1 \mid s, a, s_{t+}^{(1)}) + \log C(F=0 \mid s, a, s_{t+}^{(0)})]`.

    :param future_logits: Logits for goals from the future of the same trajectory
    :param random_logits: Logits for goals from the marginal
    :return: The loss, a scalar
    """
    check_logits(future_logits=future_logits, random_logits=random_logits)
    return _batch_mean(_positive_nll(future_logits)) + _batch_mean(_negative_nll(random_logits))


def td_loss(
    next_logits: th.Tensor, random_logits: th.Tensor, w: th.Tensor, gamma: Discount, next_gamma: Discount | None = None
) -> th.Tensor:
    r"""
    Temporal-difference C-learning, Eq. "objective-3" (and "objective4" where the next action depends on the goal), negated:
    :math:`-E[(1-\gamma) \log C(F=1 \mid s, a, s') + \gamma \lfloor w \rfloor \log C(F=1 \mid s, a, g)
    + \log C(F=0 \mid s, a, g)]`.

    :param next_logits: Logits for goals that are the next state
    :param random_logits: Logits for goals from the marginal
    :param w: Importance weights of the same random goals at the next state and action
    :param gamma: The discount factor, or the discount of each random goal's transition
    :param next_gamma: The discount of each next goal's transition; None: ``gamma``
    :return: The loss, a scalar
    """
    next_gamma = gamma if next_gamma is None else next_gamma
    check_same_batch(random_logits=random_logits, w=w)
    check_logits(next_logits=next_logits)
    _check_discount("gamma", gamma, random_logits=random_logits)
    _check_discount("next_gamma", next_gamma, next_logits=next_logits)
    next_term = mean_of_weighted(1 - next_gamma, _positive_nll(next_logits))
    return next_term + _batch_mean(gamma * w.detach() * _positive_nll(random_logits) + _negative_nll(random_logits))


def mixed_loss(
    next_logits: th.Tensor,
    future_logits: th.Tensor,
    random_logits: th.Tensor,
    w: th.Tensor,
    gamma: Discount,
    lambda_: float,
    next_gamma: Discount | None = None,
) -> th.Tensor:
    r"""
    The appendix's mixture of TD and Monte Carlo C-learning: :math:`\lambda\,\mathrm{td} + (1 - \lambda)\,\mathrm{mc}`.

    :param next_logits: Logits for goals that are the next state (may be empty if ``lambda_`` is 0)
    :param future_logits: Logits for goals from the future of the same trajectory (may be empty if ``lambda_`` is 1)
    :param random_logits: Logits for goals from the marginal
    :param w: Importance weights of the same random goals at the next state and action
    :param gamma: The discount factor, or the discount of each random goal's transition
    :param lambda_: The weight of TD against Monte Carlo
    :param next_gamma: The discount of each next goal's transition; None: ``gamma``
    :return: The loss, a scalar
    """
    check_number("lambda_", lambda_, 0, 1)
    if lambda_ == 0:  # the mean of no logits is NaN, and so is its product with 0
        return mc_loss(future_logits, random_logits)
    td = td_loss(next_logits, random_logits, w, gamma, next_gamma)
    return td if lambda_ == 1 else lambda_ * td + (1 - lambda_) * mc_loss(future_logits, random_logits)


def random_label_and_weight(w: th.Tensor, gamma: Discount, lambda_: float = 1.0) -> tuple[th.Tensor, th.Tensor]:
    r"""
    The appendix's table, row "Random states": the two terms of a random goal as one cross entropy with the label
    :math:`y = \lambda \gamma w / (1 + \lambda \gamma w)` and the weight :math:`1 + \lambda \gamma w`.

    :param w: Importance weights
    :param gamma: The discount factor, or the discount of each transition
    :return: Labels and weights, each of the shape of ``w``
    """
    discounted = lambda_ * gamma * w.detach()
    weight = 1 + discounted
    return discounted / weight, weight


def log_mass(gamma: float, lambda_: float, bootstrap_factor: float) -> float:
    r"""
    With the factor f on w the classifiers' odds w satisfy
    :math:`w = [\lambda (1 - \gamma) p(s' = g \mid s, a) + (1 - \lambda) p_+^{MC}(g \mid s, a)] / p(g) + f \gamma E[w']`,
    so that :math:`w p(g)` integrates to :math:`(1 - \lambda\gamma) / (1 - f\gamma)`, which is 1, as for a density,
    if f = lambda.

    :param gamma: The discount factor, below 1
    :param lambda_: The weight of TD against Monte Carlo
    :param bootstrap_factor: f
    :return: The log of that mass; subtract it from the logits to obtain a log density ratio
    """
    return math.log((1 - lambda_ * gamma) / (1 - bootstrap_factor * gamma))


def cross_entropy(logits: th.Tensor, labels: th.Tensor, weights: th.Tensor | float = 1.0) -> th.Tensor:
    r"""
    Weighted cross entropy :math:`-\mathrm{weight}\,[y \log C(F=1) + (1 - y) \log C(F=0)]`, elementwise.

    :param labels: ``(batch,)``, as the weights
    :return: The losses, of the shape of ``logits``
    """
    # softplus(x) - y x = y softplus(-x) + (1 - y) softplus(x)
    return weights * (F.softplus(logits) - labels * logits)


def squared_error(logits: th.Tensor, labels: th.Tensor, weights: th.Tensor) -> th.Tensor:
    r"""
    The appendix on the MSE loss: :math:`\mathrm{weight}\,(C(F=1) - y)^2`, elementwise. The square is completed with the weight
    :math:`1 + \gamma w` (the paper has :math:`\gamma w`, which does not follow), so that labels and weights are the same
    as for the cross entropy and so is the fixed point.

    :return: The losses, of the shape of ``logits``
    """
    return weights * (logits.sigmoid() - labels).square()


#: How a classifier's prediction is compared with its label.
ELEMENTWISE_LOSSES = {"bce": cross_entropy, "mse": squared_error}


def log_ratio(logits: th.Tensor) -> th.Tensor:
    r"""
    The logit as the actor's objective, :math:`\log C / (1 - C) = \log p^+(g \mid s, a) - \log p(g)`, where the paper has
    :math:`\log C`. The best action is the same. But the gradient of
    :math:`\log C` with respect to the logit is :math:`1 - C`, so that goals which are almost surely reached hardly count;
    that of the logit is 1 everywhere.
    """
    return logits


#: What an actor ascends, as a function of the smallest logit over classifiers.
ACTOR_OBJECTIVES: dict[str, Callable[[th.Tensor], th.Tensor]] = {
    "log_prob": F.logsigmoid,
    "prob": th.sigmoid,
    "log_ratio": log_ratio,
}


def hindsight_q_loss(
    next_logits: th.Tensor, random_logits: th.Tensor, next_q: th.Tensor, gamma: float, lambda_: float
) -> th.Tensor:
    r"""
    Q-learning with hindsight relabelling, Eq. "q-learning-loss", with Q the logistic function of the logits:
    :math:`(1-\lambda)\,\mathrm{CE}(Q(s, a, s'), 1) + \lambda\,\mathrm{CE}(Q(s, a, g), \gamma Q(s', a', g))`.

    :param next_logits: Logits for goals that are the next state
    :param random_logits: Logits for goals from the marginal
    :param next_q: Q of the same random goals at the next state and action
    :param gamma: The discount factor
    :param lambda_: The relabelling ratio: the weight of random goals
    :return: The loss, a scalar
    """
    check_same_batch(random_logits=random_logits, next_q=next_q)
    check_logits(next_logits=next_logits)
    check_number("gamma", gamma, 0, 1)
    check_number("lambda_", lambda_, 0, 1)
    target = gamma * next_q.detach()
    random_term = _batch_mean(cross_entropy(random_logits, target))
    return (1 - lambda_) * _batch_mean(_positive_nll(next_logits)) + lambda_ * random_term
