"""The penalty on the action's rate: its value, its effect, and that the fast update gives way."""

from typing import Any

import pytest
import torch as th

from sb3_clearning import CLearning, CLearningPolicy
from tests.support.goal_envs import PointEnv
from tests.support.small_models import is_fast


def trained(penalty: float, steps: int = 30) -> CLearning:
    return CLearning("MultiInputPolicy", PointEnv(), learning_starts=10, seed=0, action_rate_penalty=penalty).learn(steps)


def test_the_penalty_is_that_of_consecutive_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained(0.5)
    updater = model.updater_class(model, model._updater.metrics)
    batch = model.replay_buffer.sample_goals(16, model.relabelling(), model.gamma, n_steps=10)[0]
    steps = model.replay_buffer.sample(16)
    monkeypatch.setattr(model.replay_buffer, "sample", lambda *_, **__: steps)
    expected = 0.0
    for row in range(16):
        pair = [
            {key: value[row : row + 1] for key, value in obs.items()} for obs in (steps.observations, steps.next_observations)
        ]
        with th.no_grad():
            first, second = model.actor(pair[0]), model.actor(pair[1])
        expected += float(((first - second) ** 2).sum()) / second.numel() / 16
    assert expected > 1e-9
    with th.no_grad():
        total = updater.actor_outputs(batch)[1]
        model.action_rate_penalty = 0.0
        penalty = total - updater.actor_outputs(batch)[1]
    assert float(penalty) == pytest.approx(0.5 * expected, rel=1e-3)


def test_actions_become_smoother() -> None:
    changes = []
    for penalty in (0.0, 10.0):
        model = trained(penalty, 600)
        steps = model.replay_buffer.sample(256)
        with th.no_grad():
            changes.append(float((model.actor(steps.observations) - model.actor(steps.next_observations)).abs().mean()))
    assert changes[1] < changes[0] / 2


def test_the_fast_update_gives_way_to_the_penalty() -> None:
    model = trained(0.0)
    assert is_fast(model)
    model.action_rate_penalty = 0.1
    assert model._updater.select() is not model._updater


class StochasticPolicy(CLearningPolicy):
    """Stochastic without being asked."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{**kwargs, "stochastic_actor": True})


@pytest.mark.parametrize(
    ("policy", "policy_kwargs"), [("MultiInputPolicy", {"stochastic_actor": True}), (StochasticPolicy, {})]
)
def test_a_stochastic_actor_is_refused(policy: str | type[CLearningPolicy], policy_kwargs: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="`action_rate_penalty` is for the deterministic actor"):
        CLearning(policy, PointEnv(), action_rate_penalty=0.1, policy_kwargs=policy_kwargs)
