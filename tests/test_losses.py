"""The losses against the paper's objectives, written out term by term from probabilities."""

import math
from collections.abc import Callable

import pytest
import torch as th

from sb3_clearning import losses
from tests.support.labelled_losses import mc_labelled, mixed_labelled, td_labelled

GAMMA = 0.9
SHAPES = [(7,), (3, 7)]
FORMS = ["bce", "mse"]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    th.manual_seed(0)


def _logits(shape: tuple[int, ...]) -> th.Tensor:
    return (4 * th.randn(shape, dtype=th.float64)).requires_grad_()


def _weights(batch: int = 7) -> th.Tensor:
    return 5 * th.rand(batch, dtype=th.float64)


def _probability(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def _rows(logits: th.Tensor) -> list[list[float]]:
    return logits.detach().reshape(-1, logits.shape[-1]).tolist()


Term = Callable[[float], float]


def _log_one(p: float) -> float:
    return math.log(p)


def _log_zero(p: float) -> float:
    return math.log(1 - p)


def _mean(logits: list[float], term: Term) -> float:
    return sum(term(_probability(x)) for x in logits) / len(logits)


def _td_objective(next_logits: list[float], random_logits: list[float], w: list[float], gamma: float) -> float:
    """Eq. "objective-3", a plain loop over one classifier's batch."""
    total = 0.0
    for x in next_logits:
        total += (1 - gamma) * _log_one(_probability(x)) / len(next_logits)
    for x, weight in zip(random_logits, w, strict=True):
        total += (gamma * weight * _log_one(_probability(x)) + _log_zero(_probability(x))) / len(random_logits)
    return total


def _mc_objective(future_logits: list[float], random_logits: list[float]) -> float:
    """Eq. "objective"."""
    return _mean(future_logits, _log_one) + _mean(random_logits, _log_zero)


def _gradients(loss: th.Tensor, *inputs: th.Tensor) -> list[th.Tensor]:
    return list(th.autograd.grad(loss, inputs))


def _assert_gradients(actual: list[th.Tensor], expected: list[th.Tensor]) -> None:
    for one, other in zip(actual, expected, strict=True):
        th.testing.assert_close(one, other, atol=1e-6, rtol=0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", [losses.mc_loss, mc_labelled])
def test_monte_carlo_loss_is_the_negative_sum_of_log_terms(loss: Callable[..., th.Tensor], shape: tuple[int, ...]) -> None:
    future, random = _logits(shape), _logits(shape)
    value = loss(future, random)
    expected = -sum(_mc_objective(f, r) for f, r in zip(_rows(future), _rows(random), strict=True))
    assert value.shape == ()
    assert value.item() == pytest.approx(expected, abs=1e-6)
    # d log C / d logit = 1 - C and d log(1 - C) / d logit = -C, by hand
    by_hand = [-(1 - future.detach().sigmoid()) / 7, random.detach().sigmoid() / 7]
    _assert_gradients(_gradients(value, future, random), by_hand)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", [losses.td_loss, td_labelled])
def test_td_loss_is_the_negative_sum_of_log_terms(loss: Callable[..., th.Tensor], shape: tuple[int, ...]) -> None:
    next_, random, w = _logits(shape), _logits(shape), _weights()
    value = loss(next_, random, w, GAMMA)
    expected = -sum(_td_objective(n, r, w.tolist(), GAMMA) for n, r in zip(_rows(next_), _rows(random), strict=True))
    assert value.shape == ()
    assert value.item() == pytest.approx(expected, abs=1e-6)
    p_next, p_random = next_.detach().sigmoid(), random.detach().sigmoid()
    by_hand = [-(1 - GAMMA) * (1 - p_next) / 7, (-GAMMA * w * (1 - p_random) + p_random) / 7]
    _assert_gradients(_gradients(value, next_, random), by_hand)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lambda_", [0.0, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("loss", [losses.mixed_loss, mixed_labelled])
def test_mixed_loss_is_the_weighted_sum_of_both_objectives(
    loss: Callable[..., th.Tensor], lambda_: float, shape: tuple[int, ...]
) -> None:
    next_, future, random, w = _logits(shape), _logits(shape), _logits(shape), _weights()
    value = loss(next_, future, random, w, GAMMA, lambda_)
    expected = -sum(
        lambda_ * _td_objective(n, r, w.tolist(), GAMMA) + (1 - lambda_) * _mc_objective(f, r)
        for n, f, r in zip(_rows(next_), _rows(future), _rows(random), strict=True)
    )
    assert value.item() == pytest.approx(expected, abs=1e-6)
    p_next, p_future, p_random = (x.detach().sigmoid() for x in (next_, future, random))
    by_hand = [
        -lambda_ * (1 - GAMMA) * (1 - p_next) / 7,
        -(1 - lambda_) * (1 - p_future) / 7,
        (-lambda_ * GAMMA * w * (1 - p_random) + p_random) / 7,
    ]
    actual = th.autograd.grad(value, [next_, future, random], allow_unused=True, materialize_grads=True)
    _assert_gradients(list(actual), by_hand)


@pytest.mark.parametrize("shape", SHAPES)
def test_mixed_with_lambda_one_is_td_and_needs_no_future_goals(shape: tuple[int, ...]) -> None:
    next_, random, w = _logits(shape), _logits(shape), _weights()
    none = th.zeros((*shape[:-1], 0), dtype=th.float64)
    mixed = losses.mixed_loss(next_, none, random, w, GAMMA, 1.0)
    td = losses.td_loss(next_, random, w, GAMMA)
    assert mixed.item() == pytest.approx(td.item(), abs=1e-12)
    _assert_gradients(_gradients(mixed, next_, random), _gradients(td, next_, random))


@pytest.mark.parametrize("shape", SHAPES)
def test_mixed_with_lambda_zero_is_monte_carlo_and_needs_no_next_goals(shape: tuple[int, ...]) -> None:
    future, random, w = _logits(shape), _logits(shape), _weights()
    none = th.zeros((*shape[:-1], 0), dtype=th.float64)
    mixed = losses.mixed_loss(none, future, random, w, GAMMA, 0.0)
    mc = losses.mc_loss(future, random)
    assert mixed.item() == pytest.approx(mc.item(), abs=1e-12)
    _assert_gradients(_gradients(mixed, future, random), _gradients(mc, future, random))


def test_kinds_of_goals_may_have_different_counts() -> None:
    next_, future, random, w = _logits((2,)), _logits((3,)), _logits((5,)), _weights(5)
    expected = -0.6 * _td_objective(next_.tolist(), random.tolist(), w.tolist(), GAMMA) - 0.4 * _mc_objective(
        future.tolist(), random.tolist()
    )
    for loss in (losses.mixed_loss, mixed_labelled):
        assert loss(next_, future, random, w, GAMMA, 0.6).item() == pytest.approx(expected, abs=1e-6)


def _squared(p: float, label: float) -> float:
    return -((p - label) ** 2)


@pytest.mark.parametrize("n_critics", [1, 3])
@pytest.mark.parametrize("lambda_", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("form", FORMS)
def test_every_transition_may_have_its_own_discount(form: str, lambda_: float, n_critics: int) -> None:
    """n-step targets: a plain loop, in which the parts have different sizes and each classifier has its own transitions."""
    next_, future, random = _logits((n_critics, 2)), _logits((n_critics, 3)), _logits((n_critics, 5))
    w, gamma, next_gamma = (th.rand(n_critics, size, dtype=th.float64) for size in (5, 5, 2))
    w = 5 * w
    one, zero = (_log_one, _log_zero) if form == "bce" else (lambda p: _squared(p, 1), lambda p: _squared(p, 0))
    expected = 0.0
    for i in range(n_critics):
        for x, discount in zip(next_[i].tolist(), next_gamma[i].tolist(), strict=True):
            expected -= lambda_ * (1 - discount) * one(_probability(x)) / 2
        for x in future[i].tolist():
            expected -= (1 - lambda_) * one(_probability(x)) / 3
        for x, weight, discount in zip(random[i].tolist(), w[i].tolist(), gamma[i].tolist(), strict=True):
            bootstrapped = lambda_ * discount * weight
            expected -= (bootstrapped * one(_probability(x)) + zero(_probability(x))) / 5
            if form == "mse":  # what completing the square leaves
                expected -= (bootstrapped - bootstrapped**2 / (1 + bootstrapped)) / 5
    values = [mixed_labelled(next_, future, random, w, gamma, lambda_, form, next_gamma)]
    if lambda_ == 1:
        values.append(td_labelled(next_, random, w, gamma, form, next_gamma))
    if form == "bce":
        values.append(losses.mixed_loss(next_, future, random, w, gamma, lambda_, next_gamma))
        if lambda_ == 1:
            values.append(losses.td_loss(next_, random, w, gamma, next_gamma))
    for value in values:
        assert value.shape == ()
        assert value.item() == pytest.approx(expected, abs=1e-9)


def test_equal_discounts_are_the_discount_factor_and_other_sizes_are_an_error() -> None:
    next_, random, w = _logits((7,)), _logits((7,)), _weights()
    equal = th.full((7,), GAMMA, dtype=th.float64)
    expected = losses.td_loss(next_, random, w, GAMMA).item()
    assert losses.td_loss(next_, random, w, equal).item() == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ValueError, match=r"different sizes: .*'next_gamma': .7,.*'next_logits': .2,"):
        losses.td_loss(next_[:2], random, w, equal)
    with pytest.raises(ValueError, match=r"different sizes: .*'gamma': .3,"):
        losses.td_loss(next_, random, w, equal[:3])
    label, weight = losses.random_label_and_weight(w, equal**3, 0.5)
    discounted = 0.5 * GAMMA**3 * w
    th.testing.assert_close(weight, 1 + discounted)
    th.testing.assert_close(label, discounted / (1 + discounted))


@pytest.mark.parametrize("lambda_", [0.5, 1.0])
def test_mse_form_is_the_papers_three_squares_up_to_a_constant_of_the_classifier(lambda_: float) -> None:
    """(1 - gamma)(C - 1)^2 + gamma w (C - 1)^2 + (C - 0)^2, before the square is completed."""
    w = _weights()

    def squares(next_logits: th.Tensor, random_logits: th.Tensor, future_logits: th.Tensor) -> float:
        total = 0.0
        for x, y, z, weight in zip(
            next_logits.tolist(), random_logits.tolist(), future_logits.tolist(), w.tolist(), strict=True
        ):
            p_next, p_random, p_future = _probability(x), _probability(y), _probability(z)
            td = (1 - GAMMA) * (p_next - 1) ** 2 + GAMMA * weight * (p_random - 1) ** 2 + p_random**2
            mc = (p_future - 1) ** 2 + p_random**2
            total += (lambda_ * td + (1 - lambda_) * mc) / 7
        return total

    constants = []
    for _ in range(3):
        next_, future, random = _logits((7,)), _logits((7,)), _logits((7,))
        value = mixed_labelled(next_, future, random, w, GAMMA, lambda_, "mse")
        constants.append(squares(next_, random, future) - value.item())
    assert constants == pytest.approx([constants[0]] * 3, abs=1e-9)
    # v - v^2 / (1 + v) with v = lambda gamma w, what completing the square leaves
    left = [v - v**2 / (1 + v) for v in (lambda_ * GAMMA * w).tolist()]
    assert constants[0] == pytest.approx(sum(left) / 7, abs=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("p_next", [0.0, 0.2, 1.0])
def test_both_forms_have_the_bellman_ratio_as_their_stationary_point(form: str, p_next: float) -> None:
    """
    One cell (s, a, g) with p(s' = g | s, a) = p_next, p(g) = 1/5 and a mean w: the ratio C / (1 - C) that stops the gradient
    is (1 - gamma) p_next / p(g) + gamma E[w], Eq. "c-bellman".
    """
    w = th.tensor([0.5, 4.0], dtype=th.float64)
    ratio = (1 - GAMMA) * p_next / 0.2 + GAMMA * 2.25
    logit = th.tensor(math.log(ratio), dtype=th.float64, requires_grad=True)
    elsewhere = th.zeros((), dtype=th.float64)
    # Ten next states, of which the share p_next is g; ten random goals, of which two are g, one with each w
    hits = round(10 * p_next)
    next_ = th.stack([logit] * hits + [elsewhere] * (10 - hits))
    random = th.stack([logit] * 2 + [elsewhere] * 8)
    value = td_labelled(next_, random, th.cat([w, th.ones(8, dtype=th.float64)]), GAMMA, form)
    (gradient,) = _gradients(value, logit)
    assert gradient.item() == pytest.approx(0, abs=1e-12)


def test_importance_weight_is_the_ratio_of_probabilities() -> None:
    logits = th.linspace(-5, 5, 11, dtype=th.float64)
    expected = [_probability(x) / (1 - _probability(x)) for x in logits.tolist()]
    assert losses.importance_weight(logits).tolist() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shape", [(4,), (2, 4), (2, 3, 4)])
def test_importance_weight_keeps_the_shape_and_the_type(shape: tuple[int, ...]) -> None:
    w = losses.importance_weight(th.randn(shape), clip=20.0)
    assert w.shape == shape
    assert w.dtype == th.float32


@pytest.mark.parametrize("clip", [1e-3, 1.0, 20.0, 100.0])
def test_importance_weight_is_clipped_and_unchanged_below_the_clip(clip: float) -> None:
    logits = th.tensor([-1e30, -1e4, math.log(clip) - 1, math.log(clip) + 1, 100.0, 1e4, 1e30, float("inf")])
    w = losses.importance_weight(logits, clip)
    assert w.tolist() == pytest.approx([0, 0, clip / math.e, clip, clip, clip, clip, clip], rel=1e-5)


def test_importance_weight_without_a_clip_stays_finite_and_so_does_what_follows() -> None:
    w = losses.importance_weight(th.tensor([-1e30, 0.0, 20.0, 89.0, 1e4, 1e30]))
    assert w[:3].tolist() == pytest.approx([0, 1, math.exp(20)], rel=1e-5)
    assert th.isfinite(w).all()
    assert (w[3:] > 1e15).all()
    random = th.tensor([-50.0, -1.0, 0.0, 1.0, 5.0, 50.0], requires_grad=True)
    for form in FORMS:
        value = td_labelled(th.zeros(6), random, w, GAMMA, form)
        assert th.isfinite(value)
        assert th.isfinite(_gradients(value, random)[0]).all()


def test_no_gradient_flows_through_the_importance_weight() -> None:
    logits = th.randn(5, requires_grad=True)
    assert not losses.importance_weight(logits, 20.0).requires_grad
    # Weights that a caller forgot to detach are constants too
    w, next_, random = logits.exp(), _logits((5,)), _logits((5,))
    for value in (
        losses.td_loss(next_, random, w, GAMMA),
        td_labelled(next_, random, w, GAMMA),
        td_labelled(next_, random, w, GAMMA, "mse"),
        losses.mixed_loss(next_, next_, random, w, GAMMA, 0.5),
        mixed_labelled(next_, next_, random, w, GAMMA, 0.5),
    ):
        assert th.autograd.grad(value, logits, allow_unused=True)[0] is None


@pytest.mark.parametrize("magnitude", [100.0, 1e4, 1e30])
def test_losses_and_gradients_are_finite_on_huge_logits(magnitude: float) -> None:
    for sign in (-1.0, 1.0):
        logits = th.full((4,), sign * magnitude, requires_grad=True)
        w = losses.importance_weight(logits, 100.0)
        for form in FORMS:
            value = mixed_labelled(logits, logits, logits, w, 0.99, 0.5, form)
            assert th.isfinite(value)
            assert th.isfinite(_gradients(value, logits)[0]).all()
        assert th.isfinite(losses.mixed_loss(logits, logits, logits, w, 0.99, 0.5))


@pytest.mark.parametrize("lambda_", [0.25, 1.0])
def test_random_goals_have_the_labels_and_weights_of_the_appendix(lambda_: float) -> None:
    w = th.tensor([0.0, 1.0, 10.0], dtype=th.float64)
    labels, weights = losses.random_label_and_weight(w, GAMMA, lambda_)
    assert weights.tolist() == pytest.approx([1 + lambda_ * GAMMA * x for x in (0, 1, 10)])
    assert labels.tolist() == pytest.approx([lambda_ * GAMMA * x / (1 + lambda_ * GAMMA * x) for x in (0, 1, 10)])


@pytest.mark.parametrize("form", FORMS)
def test_losses_of_several_classifiers_are_summed(form: str) -> None:
    next_, future, random, w = _logits((3, 7)), _logits((3, 7)), _logits((3, 7)), _weights()
    together = mixed_labelled(next_, future, random, w, GAMMA, 0.6, form)
    apart = [mixed_labelled(next_[i], future[i], random[i], w, GAMMA, 0.6, form).item() for i in range(3)]
    assert together.item() == pytest.approx(sum(apart))


def test_elementwise_losses_keep_the_shape_of_the_logits() -> None:
    labels, weights = th.rand(7, dtype=th.float64), _weights()
    for shape in SHAPES:
        logits = _logits(shape)
        for loss in losses.ELEMENTWISE_LOSSES.values():
            assert loss(logits, labels, weights).shape == shape
