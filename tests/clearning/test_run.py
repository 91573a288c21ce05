from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise, OrnsteinUhlenbeckActionNoise
from torch import nn

from sb3_clearning import CLearning, CLearningPolicy, GoalReplayBuffer, PinkActionNoise
from tests.support.goal_envs import POINT_ID, PointEnv
from tests.support.small_models import changed, same, small_model, weights


def _trains(env: gym.Env | str | None = None, steps: int = 30, **kwargs: Any) -> CLearning:
    """A model that ran with the given arguments, after a check that all its parts were updated and it acts within bounds."""
    model = small_model(PointEnv() if env is None else env, **kwargs)
    before = weights(model)
    model.learn(steps)
    assert model.num_timesteps >= steps
    after = weights(model)
    for part in ("actor.", "actor_target.", "critic.", "critic_target."):
        assert changed(before, after, part)
    assert model.env is not None
    obs = model.env.reset()
    for deterministic in (True, False):
        action, _ = model.predict(obs, deterministic=deterministic)  # type: ignore[arg-type]
        assert all(model.action_space.contains(one) for one in action)
    return model


def test_runs_with_its_defaults() -> None:
    env = PointEnv()
    model = CLearning("MultiInputPolicy", env, device="cpu")
    before = weights(model)
    model.learn(1003)
    assert model._n_updates == 3
    assert changed(before, weights(model))
    # The contract of the design
    assert (model.learning_rate, model.batch_size, model.tau, model.gamma, model.policy_delay) == (1e-3, 256, 0.005, 0.99, 1)
    assert model.policy.net_arch == [256, 256]
    assert isinstance(model.action_noise, PinkActionNoise)
    assert isinstance(model.replay_buffer, GoalReplayBuffer)
    assert (model.n_steps, model.lambda_) == (10, 0.9)


@pytest.mark.parametrize(
    ("gamma", "n_steps", "limit"),
    [
        (0.99, 1, 100.0),
        (0.9, 1, 10.0),
        (0.99, 10, 32.3394),
        (0.3, 10, 1.19523),
        (0.99, float("inf"), 10.0),
        (0.75, 2, 3.02372),
    ],
)
def test_default_limit_of_the_importance_weights(gamma: float, n_steps: float, limit: float) -> None:
    """The geometric mean of the horizon in steps, 1 + gamma + gamma^2 + ..., and in windows, 1 + gamma^n + gamma^2n + ..."""
    model = CLearning("MultiInputPolicy", PointEnv(), gamma=gamma, n_steps=n_steps, buffer_size=10, device="cpu")
    steps = sum(gamma**k for k in range(5000))
    windows = 1.0 if n_steps == float("inf") else sum(gamma ** (n_steps * k) for k in range(5000))
    assert model.importance_weight_limit == pytest.approx((steps * windows) ** 0.5)
    assert model.importance_weight_limit == pytest.approx(limit, rel=1e-5)
    assert CLearning("MultiInputPolicy", PointEnv(), w_clip=7, buffer_size=10, device="cpu").importance_weight_limit == 7


def test_takes_the_id_of_an_environment_and_the_class_of_a_policy() -> None:
    _trains(POINT_ID)
    model = CLearning(CLearningPolicy, POINT_ID, device="cpu", learning_starts=5, batch_size=4, buffer_size=50)
    model.learn(10)
    assert model._n_updates == 5


@pytest.mark.parametrize("lambda_", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("classifier_loss", ["bce", "mse"])
@pytest.mark.parametrize("actor_loss", ["log_prob", "prob", "log_ratio"])
def test_losses(lambda_: float, classifier_loss: str, actor_loss: str) -> None:
    _trains(lambda_=lambda_, classifier_loss=classifier_loss, actor_loss=actor_loss)


@pytest.mark.parametrize("terminal", ["ignore", "absorbing"])
@pytest.mark.parametrize("lambda_", [0.0, 0.5, 1.0])
def test_episodes_that_terminate(terminal: str, lambda_: float) -> None:
    env = PointEnv(terminates=True)
    model = _trains(env, steps=120, learning_starts=100, terminal=terminal, lambda_=lambda_)
    assert model.replay_buffer.sample(500).dones.any(), "no episode of the test terminated"


@pytest.mark.parametrize("fraction", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("lambda_", [0.5, 1.0])
def test_commanded_goals(fraction: float, lambda_: float) -> None:
    _trains(commanded_goal_fraction=fraction, lambda_=lambda_)


@pytest.mark.parametrize("w_clip", [None, 1.0, float("inf")])
def test_importance_weight_limits(w_clip: float | None) -> None:
    _trains(w_clip=w_clip)


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("name", ["auto", "gaussian", "pink", None])
@pytest.mark.parametrize("warmup_noise", ["uniform", "pink"])
def test_named_exploration(stochastic: bool, name: str | None, warmup_noise: str) -> None:
    model = _trains(
        action_noise=name, noise_std=0.3, warmup_noise=warmup_noise, policy_kwargs={"stochastic_actor": stochastic}
    )
    expected: dict[str | None, type] = {"gaussian": NormalActionNoise, "pink": PinkActionNoise, None: type(None)}
    expected["auto"] = type(None) if stochastic else PinkActionNoise
    assert type(model.action_noise) is expected[name]
    if model.action_noise is not None:
        np.testing.assert_allclose(model.action_noise._sigma, 0.3)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "noise",
    [
        NormalActionNoise(np.zeros(2), np.ones(2)),
        OrnsteinUhlenbeckActionNoise(np.zeros(2), np.ones(2)),
        PinkActionNoise(np.ones(2), length=5),
    ],
)
def test_noise_objects_are_used_as_they_are(noise: ActionNoise) -> None:
    assert _trains(action_noise=noise).action_noise is noise


class _Counted(NormalActionNoise):
    calls = 0

    def __call__(self) -> np.ndarray:
        self.calls += 1
        return super().__call__()


def test_there_is_no_noise_on_the_random_actions() -> None:
    noise = _Counted(np.zeros(2), np.ones(2))
    _trains(action_noise=noise, learning_starts=12, steps=30)
    assert noise.calls == 18


@pytest.mark.parametrize("warmup_noise", ["uniform", "pink"])
def test_the_buffer_has_scaled_actions(warmup_noise: str) -> None:
    # What the environment did, scaled by hand, is what the buffer holds: in the warm-up and after it.
    env = PointEnv(length=1000)
    model = small_model(env, warmup_noise=warmup_noise, action_noise="gaussian", noise_std=0.5)
    taken: list[np.ndarray] = []
    step = env.step
    env.step = lambda action: taken.append(np.array(action)) or step(action)  # type: ignore[method-assign,func-returns-value]
    model.learn(40)
    low, high = env.action_space.low, env.action_space.high  # type: ignore[attr-defined]
    scaled = 2 * (np.array(taken) - low) / (high - low) - 1
    np.testing.assert_allclose(model.replay_buffer.actions[:40, 0], scaled, atol=1e-5)
    assert np.abs(scaled).max() <= 1 + 1e-6
    assert np.ptp(scaled[:12], axis=0).min() > 0.3


@pytest.mark.parametrize("n_critics", [1, 2, 3])
@pytest.mark.parametrize("policy_delay", [1, 3])
def test_numbers_of_classifiers_and_delays(n_critics: int, policy_delay: int) -> None:
    _trains(policy_delay=policy_delay, policy_kwargs={"n_critics": n_critics})


def test_a_delay_leaves_actor_and_targets_alone() -> None:
    model = small_model(PointEnv(), policy_delay=3, policy_kwargs={"standardize": False})
    model.learn(12)
    assert model._n_updates == 0
    before = weights(model)
    for _ in range(2):
        model.train(gradient_steps=1, batch_size=16)
    now = weights(model)
    assert changed(before, now, "critic.")
    for part in ("actor.", "actor_target.", "critic_target."):
        assert not changed(before, now, part)
    model.train(gradient_steps=1, batch_size=16)
    for part in ("actor.", "actor_target.", "critic_target."):
        assert changed(before, weights(model), part)


@pytest.mark.parametrize(
    ("train_freq", "gradient_steps", "updates"),
    [
        (1, 1, 28),
        (1, 3, 84),
        (4, 1, 7),
        (4, -1, 28),
        ((5, "step"), 2, 12),
        ((1, "episode"), 4, 12),
        ((1, "episode"), -1, 30),
        (1, 0, 0),
    ],
)
def test_frequencies(train_freq: int | tuple[int, str], gradient_steps: int, updates: int) -> None:
    # 40 steps: four episodes of 10. Training starts after step 12.
    model = small_model(PointEnv(), train_freq=train_freq, gradient_steps=gradient_steps)
    model.learn(40)
    assert model._n_updates == updates


def test_many_updates_after_a_rollout_are_as_many_single_ones() -> None:
    # Batches are sampled ahead; the seam between two of those samplings must not lose or repeat one.
    model = small_model(PointEnv(), batch_size=4096, buffer_size=100)
    model.learn(12)
    model.train(gradient_steps=5, batch_size=4096)
    assert model._n_updates == 5


def test_a_learning_rate_schedule_reaches_both_optimizers() -> None:
    model = _trains(learning_rate=lambda progress: 1e-3 * progress, steps=40)
    for optimizer in (model.actor.optimizer, model.critic.optimizer):
        # The last update is at the end of training
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        (th.optim.Adam, None),
        (th.optim.Adam, {"eps": 1e-5, "weight_decay": 0.1}),
        (th.optim.AdamW, None),
        (th.optim.SGD, {"momentum": 0.9}),
        (th.optim.RMSprop, None),
    ],
)
def test_optimizers(optimizer: type[th.optim.Optimizer], options: dict[str, Any] | None) -> None:
    model = _trains(policy_kwargs={"optimizer_class": optimizer, "optimizer_kwargs": options})
    for made in (model.actor.optimizer, model.critic.optimizer):
        assert type(made) is optimizer
        for name, value in (options or {}).items():
            assert made.param_groups[0][name] == value


@pytest.mark.parametrize("net_arch", [[], [8], [8, 4], {"pi": [8], "qf": [4, 4]}, {"pi": [], "qf": [5]}])
def test_architectures(net_arch: list[int] | dict[str, list[int]]) -> None:
    _trains(policy_kwargs={"net_arch": net_arch})


@pytest.mark.parametrize("activation_fn", [nn.ReLU, nn.Tanh, nn.ELU])
def test_activation_functions(activation_fn: type[nn.Module]) -> None:
    model = _trains(policy_kwargs={"activation_fn": activation_fn})
    for network in (model.actor.mu, model.critic.classifiers):
        assert isinstance(network, nn.Sequential)
        assert any(isinstance(layer, activation_fn) for layer in network)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("action_shape", [(2,), (1, 2), (2, 1)])
@pytest.mark.parametrize("noise", ["gaussian", "pink"])
def test_types_and_shapes(dtype: type, action_shape: tuple[int, ...], noise: str) -> None:
    _trains(PointEnv(dtype=dtype, action_shape=action_shape), action_noise=noise, warmup_noise="pink")


def test_further_keys_of_other_spaces() -> None:
    _trains(PointEnv(extra=True))


def test_an_optimized_memory_usage_changes_nothing() -> None:
    plain, optimized = (_trains(optimize_memory_usage=option) for option in (False, True))
    assert same(weights(plain), weights(optimized))


def test_a_buffer_smaller_than_the_run_goes_round() -> None:
    model = _trains(buffer_size=25, steps=90)
    assert model.replay_buffer.full
    assert model.replay_buffer.size() == 25


def test_a_subclass_of_the_buffer_and_its_arguments() -> None:
    class Named(GoalReplayBuffer):
        def __init__(self, *args: Any, name: str = "", **kwargs: Any):
            super().__init__(*args, **kwargs)
            self.name = name

    model = _trains(replay_buffer_class=Named, replay_buffer_kwargs={"name": "mine"})
    assert isinstance(model.replay_buffer, Named)
    assert model.replay_buffer.name == "mine"


@pytest.mark.parametrize("reward", [float("nan"), 1e30])
def test_rewards_are_never_read(reward: float) -> None:
    # compute_reward raises in these environments, too
    plain, other = (_trains(PointEnv(reward=value, terminates=True), steps=60, lambda_=0.5) for value in (0.0, reward))
    assert same(weights(plain), weights(other))


def test_a_single_observation_is_predicted_as_in_a_batch() -> None:
    model = _trains()
    env = PointEnv(dtype=np.float64)
    observations = [env.reset(seed=seed)[0] for seed in range(5)]
    batch = {key: np.stack([obs[key] for obs in observations]) for key in observations[0]}
    together, _ = model.predict(batch, deterministic=True)
    for i, obs in enumerate(observations):
        alone, _ = model.predict(obs, deterministic=True)
        assert alone.shape == (2,)
        np.testing.assert_allclose(alone, together[i], atol=1e-6)


def test_learning_again_counts_anew_or_goes_on() -> None:
    model = small_model(PointEnv())
    model.learn(20)
    model.learn(20)
    assert model.num_timesteps == 20
    model.learn(20, reset_num_timesteps=False)
    assert model.num_timesteps == 40
    assert model.replay_buffer.size() == 60


def test_collecting_uses_eval_mode_and_training_train_mode() -> None:
    # Not of ReLUs: plain networks act the same in both modes, and the fast path does not switch them.
    model = small_model(PointEnv(), policy_kwargs={"net_arch": [8], "activation_fn": nn.Tanh})
    modes: list[bool] = []

    def note(_locals: dict[str, Any], _globals: dict[str, Any]) -> bool:
        modes.append(model.actor.training or model.critic.training)
        return True

    model.learn(20, callback=note)
    assert len(modes) == 20
    assert not any(modes)
    model.train(gradient_steps=1, batch_size=16)
    assert model.actor.training
    assert model.critic.training
    assert not model.actor_target.training
    assert not model.critic_target.training
