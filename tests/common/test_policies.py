import copy
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor, NatureCNN
from torch import nn

from sb3_clearning import CLearning, GoalBatch, GoalTD3
from sb3_clearning.common.policies import ClassifierCritic
from sb3_clearning.layers import BatchedLinear
from sb3_clearning.losses import mixed_loss
from tests.support.goal_envs import ImageGoalEnv, PointEnv
from tests.support.small_models import changed, same, seed_all, small_model, weights


def _filled(env: Any = None, steps: int = 60, **kwargs: Any) -> CLearning:
    """A model that has collected random steps and was not trained."""
    model = small_model(PointEnv(terminates=True) if env is None else env, learning_starts=1000, **kwargs).learn(steps)
    assert model._n_updates == 0
    return model


def _batch(model: CLearning, batch_size: int = 16) -> GoalBatch:
    return model.replay_buffer.sample_goals(batch_size, model.relabelling(), model.gamma, model._absorbing())[0]


# -- classifiers -------------------------------------------------------------------------------------------------------


def _separate(critic: ClassifierCritic) -> list[nn.Sequential]:
    """:return: Each classifier as a network of nn.Linear, with the same weights"""
    networks = []
    for n in range(critic.n_critics):
        layers: list[nn.Module] = []
        for layer in critic.classifiers:
            if not isinstance(layer, BatchedLinear):
                layers.append(copy.deepcopy(layer))
                continue
            linear = nn.Linear(layer.weight.shape[1], layer.weight.shape[2])
            linear.weight.data = layer.weight.data[n].T.clone()
            linear.bias.data = layer.bias.data[n, 0].clone()
            layers.append(linear)
        networks.append(nn.Sequential(*layers))
    return networks


@pytest.mark.parametrize("n_critics", [1, 2, 3])
@pytest.mark.parametrize("activation_fn", [nn.ReLU, nn.Tanh])
def test_batched_classifiers_are_separate_networks(n_critics: int, activation_fn: type[nn.Module]) -> None:
    arguments = {"n_critics": n_critics, "activation_fn": activation_fn, "net_arch": {"pi": [3], "qf": [9, 5]}}
    model = _filled(steps=20, policy_kwargs=arguments)
    batch = _batch(model, 11)
    logits = model.critic(batch.observations, batch.actions)
    assert logits.shape == (n_critics, 11)
    # CombinedExtractor concatenates the keys in the order of the space
    features = th.cat([batch.observations[key] for key in model.observation_space.spaces], dim=1)  # type: ignore[attr-defined]
    inputs = th.cat([features, batch.actions], dim=1)
    for n, network in enumerate(_separate(model.critic)):
        th.testing.assert_close(logits[n], network(inputs).squeeze(1), rtol=1e-5, atol=1e-6)
    if n_critics > 1:
        assert not th.allclose(logits[0], logits[1])


def test_classifiers_are_initialized_as_linear_layers() -> None:
    th.manual_seed(0)
    ours, theirs = BatchedLinear(2, 100, 5000), nn.Linear(100, 5000)
    for values, reference in ((ours.weight.data, theirs.weight.data), (ours.bias.data, theirs.bias.data)):
        assert float(values.abs().max()) == pytest.approx(float(reference.abs().max()), rel=1e-2)
        assert float(values.std()) == pytest.approx(float(reference.std()), rel=3e-2)
    assert not th.equal(ours.weight[0], ours.weight[1])


# -- one whole update against a plain one ------------------------------------------------------------------------------


class PlainCLearning:
    """
    C-learning written down plainly: separate networks, autograd, Adam with its default kernel, the losses of the equations, an
    explicit smallest target. Deterministic actor, Box observations.
    """

    def __init__(self, model: CLearning):
        self.model = model
        self.keys = list(model.observation_space.spaces)  # type: ignore[attr-defined]
        self.actor, self.actor_target = (copy.deepcopy(actor.mu) for actor in (model.actor, model.actor_target))
        self.critics, self.critic_targets = (_separate(critic) for critic in (model.critic, model.critic_target))
        self.actor_optimizer = th.optim.Adam(self.actor.parameters(), lr=1e-3)
        critic_parameters = [parameter for critic in self.critics for parameter in critic.parameters()]
        self.critic_optimizer = th.optim.Adam(critic_parameters, lr=1e-3)

    def _features(self, obs: dict[str, th.Tensor]) -> th.Tensor:
        return th.cat([obs[key] for key in self.keys], dim=1)

    def _logits(self, networks: list[nn.Sequential], features: th.Tensor, actions: th.Tensor) -> th.Tensor:
        return th.stack([network(th.cat([features, actions], dim=1))[:, 0] for network in networks])

    def _discounts(self, batch: GoalBatch) -> th.Tensor:
        return th.full((len(batch),), self.model.gamma) if batch.discounts is None else batch.discounts

    def _squared(self, batch: GoalBatch, logits: th.Tensor, w: th.Tensor, n_next: int, n_future: int) -> th.Tensor:
        """The MSE form, term by term: lambda td + (1 - lambda) mc, whose random terms are completed squares."""
        model = self.model
        probability = logits.sigmoid()
        total = th.zeros(())
        discounts = self._discounts(batch)
        bootstrapped = (model.lambda_ if model.lambda_on_w else 1) * discounts[n_next + n_future :] * w
        for of_one in probability:
            random = of_one[n_next + n_future :]
            total = total + ((1 + bootstrapped) * (random - bootstrapped / (1 + bootstrapped)) ** 2).mean()
            if n_next:
                total = total + model.lambda_ * ((1 - discounts[:n_next]) * (1 - of_one[:n_next]) ** 2).mean()
            if n_future:
                total = total + (1 - model.lambda_) * ((1 - of_one[n_next : n_next + n_future]) ** 2).mean()
        return total

    def _n_step_loss(
        self, discounts: th.Tensor, of_next: th.Tensor, of_future: th.Tensor, of_random: th.Tensor, w: th.Tensor
    ) -> th.Tensor:
        """- lambda [(1 - gamma^m) log C(s_{t+k}) + gamma^m w log C(g)] - (1 - lambda) log C(future) - log(1 - C(g))"""
        lambda_, total = self.model.lambda_, th.zeros(())
        for next_, future, random in zip(of_next.sigmoid(), of_future.sigmoid(), of_random.sigmoid(), strict=True):
            of_goals = lambda_ * discounts[-len(w) :] * w * th.log(random) + th.log(1 - random)
            total = total - of_goals.mean() - (1 - lambda_) * th.log(future).mean()
            if lambda_ > 0:
                total = total - lambda_ * ((1 - discounts[: len(next_)]) * th.log(next_)).mean()
        return total

    def update(self, batch: GoalBatch) -> None:
        model, size = self.model, len(batch.actions)
        n_next = size // 4 if 0 < model.lambda_ < 1 else int(model.lambda_) * size // 2
        n_future = size // 2 - n_next
        obs, next_obs = self._features(batch.observations), self._features(batch.next_observations)
        with th.no_grad():
            # Only the random half has a bootstrap
            next_random = next_obs[size // 2 :]
            next_actions = self.actor_target(next_random)
            if model.lambda_ > 0 or not model.lambda_on_w:
                noise = th.randn(next_actions.shape) * model.target_policy_noise
                noise = th.clamp(noise, -model.target_noise_clip, model.target_noise_clip)
                next_actions = th.clamp(next_actions + noise, -1, 1)
            first, second = self._logits(self.critic_targets, next_random, next_actions)
            smallest = th.where(first < second, first, second)
            w = th.clamp(smallest.sigmoid() / (1 - smallest.sigmoid()), max=1 / (1 - model.gamma))
        logits = self._logits(self.critics, obs, batch.actions)
        if model.classifier_loss == "bce":
            # An empty mean is NaN: the kind that has no share is not part of the mixture
            of_next = logits[:, :n_next] if n_next else th.zeros(2, 1)
            of_future = logits[:, n_next : size // 2] if n_future else th.zeros(2, 1)
            of_random = logits[:, size // 2 :]
            if batch.discounts is None:
                loss = mixed_loss(of_next, of_future, of_random, w, model.gamma, model.lambda_)
            else:
                loss = self._n_step_loss(batch.discounts, of_next, of_future, of_random, w)
            if not model.lambda_on_w:  # the rest of - gamma w log C
                rest = (1 - model.lambda_) * model.gamma * w
                loss = loss - (rest * th.log(of_random.sigmoid())).mean(dim=1).sum()
        else:
            loss = self._squared(batch, logits, w, n_next, n_future)
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()

        actor_logits = self._logits(self.critics, obs, self.actor(obs))
        probability = th.minimum(actor_logits[0], actor_logits[1]).sigmoid()
        objectives = {
            "log_prob": th.log(probability),
            "prob": probability,
            "log_ratio": th.log(probability) - th.log(1 - probability),
        }
        actor_loss = -objectives[model.actor_loss].mean()
        actor_loss = actor_loss + model.pre_tanh_penalty * (self.actor[:-1](obs) ** 2).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()

        pairs = [(self.actor, self.actor_target), *zip(self.critics, self.critic_targets, strict=True)]
        for source, target in pairs:
            for parameter, averaged in zip(source.parameters(), target.parameters(), strict=True):
                averaged.data = (1 - model.tau) * averaged.data + model.tau * parameter.data


@pytest.mark.parametrize("lambda_", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("classifier_loss", ["bce", "mse"])
@pytest.mark.parametrize("target_policy_noise", [0.0, 0.4])
@pytest.mark.parametrize("actor_loss", ["log_prob", "prob", "log_ratio"])
@pytest.mark.parametrize(("n_steps", "lambda_on_w"), [(1, True), (1, False), (4, True), (np.inf, True)])
def test_an_update_is_the_plain_one(
    lambda_: float, classifier_loss: str, target_policy_noise: float, actor_loss: str, n_steps: float, lambda_on_w: bool
) -> None:
    model = _filled(
        n_steps=n_steps,
        lambda_=lambda_,
        lambda_on_w=lambda_on_w,
        classifier_loss=classifier_loss,
        actor_loss=actor_loss,
        target_policy_noise=target_policy_noise,
        gamma=0.9,
        tau=0.1,
        batch_size=20,
        policy_kwargs={"standardize": False},
    )
    # Targets of their own, with weights large enough that some w are clipped and some are not
    with th.no_grad():
        for parameter in (*model.critic_target.parameters(), *model.actor_target.parameters()):
            parameter.mul_(2.5)
    plain = PlainCLearning(model)
    updates = 20
    # The same generator state for both. Batches are sampled with NumPy, the noise with PyTorch.
    seed_all(1)
    model.train(gradient_steps=updates, batch_size=20)
    seed_all(1)
    batches = model.replay_buffer.sample_goals(20, model.relabelling(), model.gamma, n_batches=updates, n_steps=n_steps)
    for batch in batches:
        plain.update(batch)
    for ours, theirs in ((model.actor.mu, plain.actor), (model.actor_target.mu, plain.actor_target)):
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            th.testing.assert_close(one, other, rtol=0, atol=1e-5)
    for critic, networks in ((model.critic, plain.critics), (model.critic_target, plain.critic_targets)):
        for network, expected in zip(_separate(critic), networks, strict=True):
            for one, other in zip(network.parameters(), expected.parameters(), strict=True):
                th.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_a_stochastic_actor_ascends_its_own_samples() -> None:
    # The bootstrap's next actions and the update's actions are samples of the actor itself; there is no noise on top.
    model = _filled(policy_kwargs={"stochastic_actor": True}, target_policy_noise=100.0, gamma=0.9, pre_tanh_penalty=0.0)
    batch = _batch(model)
    actor = copy.deepcopy(model.actor)
    next_obs = {key: value[8:] for key, value in batch.next_observations.items()}
    seed_all(3)
    w = model._updater.importance_weights(batch, slice(8, 16))
    seed_all(3)
    with th.no_grad():
        logits = model.critic_target(next_obs, actor(next_obs)).min(dim=0).values
    th.testing.assert_close(w, logits.exp().clamp(max=10))

    gradient_free = copy.deepcopy(actor)
    seed_all(4)
    loss = -model.critic(batch.observations, gradient_free(batch.observations)).min(dim=0).values.mean()
    expected = th.autograd.grad(loss, list(gradient_free.parameters()))
    seed_all(4)
    model._updater.update_actor(batch)
    for parameter, gradient in zip(model.actor.parameters(), expected, strict=True):
        th.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-7)


# -- what an update may touch ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("stochastic", [False, True])
def test_the_actors_update_leaves_the_classifiers_alone(share: bool, stochastic: bool) -> None:
    model = _filled(policy_kwargs={"share_features_extractor": share, "stochastic_actor": stochastic})
    batch = _batch(model)
    model._updater.update_critic(batch)
    gradients = [parameter.grad.clone() for parameter in model.critic.classifiers.parameters() if parameter.grad is not None]
    before = weights(model)
    model._updater.update_actor(batch)
    after = weights(model)
    assert changed(before, after, "actor.")
    assert not changed(before, after, "critic.classifiers")
    assert not changed(before, after, "critic_target.")
    assert len(gradients) == len(list(model.critic.classifiers.parameters()))
    for parameter, gradient in zip(model.critic.classifiers.parameters(), gradients, strict=True):
        assert parameter.grad is not None
        assert th.equal(parameter.grad, gradient)


class Learned(BaseFeaturesExtractor):
    """A features extractor with its own weights, batch norm and dropout if asked for, and a frozen part."""

    def __init__(
        self,
        observation_space: spaces.Dict,
        dim: int = 6,
        batch_norm: bool = False,
        dropout: float = 0.0,
        frozen: bool = False,
    ):
        super().__init__(observation_space, dim)
        inputs = sum(spaces.flatdim(space) for space in observation_space.spaces.values())
        layers: list[nn.Module] = [nn.Linear(inputs, dim)]
        if batch_norm:
            layers.append(nn.BatchNorm1d(dim))
        if dropout:
            layers.append(nn.Dropout(dropout))
        self.layers = nn.Sequential(*layers, nn.Tanh())
        if frozen:
            self.layers[0].requires_grad_(False)

    def forward(self, observations: dict[str, th.Tensor]) -> th.Tensor:
        return self.layers(th.cat([value.flatten(1) for value in observations.values()], dim=1))


def _learned(share: bool = False, **options: Any) -> dict[str, Any]:
    return {
        "features_extractor_class": Learned,
        "features_extractor_kwargs": options,
        "share_features_extractor": share,
    }


def test_separate_extractors_learn_from_their_own_losses() -> None:
    model = _filled(policy_kwargs=_learned(share=False))
    assert model.actor.features_extractor is not model.critic.features_extractor
    batch, before = _batch(model), weights(model)
    model._updater.update_critic(batch)
    middle = weights(model)
    assert changed(before, middle, "critic.features_extractor")
    assert not changed(before, middle, "actor.features_extractor")
    model._updater.update_actor(batch)
    after = weights(model)
    assert changed(middle, after, "actor.features_extractor")
    assert not changed(middle, after, "critic.features_extractor")


def test_a_shared_extractor_learns_from_the_actors_loss_only() -> None:
    model = _filled(policy_kwargs=_learned(share=True))
    assert model.actor.features_extractor is model.critic.features_extractor
    assert model.actor_target.features_extractor is model.critic_target.features_extractor
    batch, before = _batch(model), weights(model)
    model._updater.update_critic(batch)
    middle = weights(model)
    assert changed(before, middle, "critic.classifiers")
    assert not changed(before, middle, "actor.features_extractor")
    assert all(parameter.grad is None for parameter in model.actor.features_extractor.parameters())
    model._updater.update_actor(batch)
    after = weights(model)
    assert changed(middle, after, "actor.features_extractor")
    # The next update of the classifiers does not use the gradients that the actor's left
    model._updater.update_critic(batch)
    assert not changed(after, weights(model), "actor.features_extractor")


@pytest.mark.parametrize("share", [False, True])
def test_a_frozen_part_of_an_extractor_stays_as_it_is(share: bool) -> None:
    model = small_model(PointEnv(), policy_kwargs=_learned(share, frozen=True))
    before = weights(model)
    model.learn(30)
    after = weights(model)
    assert not changed(before, after, "actor.features_extractor.layers.0")
    assert not changed(before, after, "critic.features_extractor.layers.0")
    assert changed(before, after, "actor.mu")


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("tau", [0.0, 0.3, 1.0])
def test_targets_follow_by_polyak_averaging(share: bool, tau: float) -> None:
    model = _filled(tau=tau, policy_kwargs=_learned(share))
    with th.no_grad():
        for parameter in (*model.critic.parameters(), *model.actor.parameters()):
            parameter.add_(th.randn_like(parameter))
    before = weights(model)
    model._updater.update_targets()
    after = weights(model)
    for part in ("actor", "critic"):
        for name, value in before.items():
            if name.startswith(f"{part}_target."):
                source = before[name.replace("_target", "", 1)]
                th.testing.assert_close(after[name], (1 - tau) * value + tau * source)
            elif name.startswith(f"{part}."):
                assert th.equal(after[name], value)


# -- train and eval mode -----------------------------------------------------------------------------------------------


def _running(weights_: dict[str, th.Tensor], part: str) -> dict[str, th.Tensor]:
    return {name: value for name, value in weights_.items() if name.startswith(part) and "running_" in name}


@pytest.mark.parametrize("share", [False, True])
def test_batch_norm(share: bool) -> None:
    # As SB3's test_td3_train_with_batch_norm
    model = _filled(policy_kwargs=_learned(share, batch_norm=True), tau=0.0)
    model.policy.set_training_mode(False)
    before = weights(model)
    obs: Any = model._last_obs
    for deterministic in (True, False):
        model.predict(obs, deterministic=deterministic)
    assert same(before, weights(model)), "predictions changed the statistics"

    model.train(gradient_steps=1, batch_size=16)
    after = weights(model)
    for part in ("actor", "critic"):
        moved, targets = _running(after, f"{part}."), _running(after, f"{part}_target.")
        assert moved
        assert all(not th.equal(before[name], value) for name, value in moved.items())
        # Copied, whatever tau is
        for name, value in targets.items():
            assert th.equal(value, after[name.replace("_target", "", 1)])
        # tau = 0: the targets' weights do not move
        for name, value in after.items():
            if name.startswith(f"{part}_target.") and "running_" not in name and "num_batches" not in name:
                assert th.equal(value, before[name])


def test_batch_norm_in_a_whole_run() -> None:
    model = small_model(PointEnv(), policy_kwargs=_learned(batch_norm=True)).learn(40)
    obs: Any = model._last_obs
    first, _ = model.predict(obs, deterministic=True)
    before = weights(model)
    second, _ = model.predict(obs, deterministic=True)
    np.testing.assert_array_equal(first, second)
    assert same(before, weights(model))


@pytest.mark.parametrize("stochastic", [False, True])
def test_dropout(stochastic: bool) -> None:
    model = small_model(PointEnv(), policy_kwargs={**_learned(dropout=0.5), "stochastic_actor": stochastic}).learn(30)
    obs: Any = {key: np.repeat(value, 20, axis=0) for key, value in model._last_obs.items()}  # type: ignore[union-attr]
    # predict() is in eval mode, also right after training
    model.policy.set_training_mode(True)
    first, _ = model.predict(obs, deterministic=True)
    second, _ = model.predict(obs, deterministic=True)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, np.repeat(first[:1], 20, axis=0), rtol=1e-5)
    # while training drops out
    model.policy.set_training_mode(True)
    tensors = {key: th.as_tensor(value) for key, value in obs.items()}
    logits = model.critic(tensors, th.zeros(20, 2))
    assert float(logits.std(dim=1).min()) > 0
    # but never in the targets
    logits = model.critic_target(tensors, th.zeros(20, 2))
    assert float(logits.std(dim=1).max()) < 1e-6


# -- images ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [False, True])
def test_images(share: bool) -> None:
    arguments = {"share_features_extractor": share, "features_extractor_kwargs": {"cnn_output_dim": 8}}
    model = small_model(ImageGoalEnv(), batch_size=8, policy_kwargs=arguments, lambda_=0.5)
    extractor = model.critic.features_extractor
    assert isinstance(extractor, CombinedExtractor)
    assert isinstance(extractor.extractors["observation"], NatureCNN)
    assert isinstance(extractor.extractors["desired_goal"], NatureCNN)
    before = weights(model)
    model.learn(20)
    after = weights(model)
    assert changed(before, after, "actor.features_extractor.extractors.desired_goal")
    assert changed(before, after, "critic.features_extractor.extractors.desired_goal")
    assert model.replay_buffer.observations["observation"].dtype == np.uint8
    batch = _batch(model, 9)
    assert batch.observations["desired_goal"].shape == (9, 1, 36, 36)
    assert model.critic(batch.observations, batch.actions).shape == (2, 9)


def test_images_are_divided_by_255_unless_told_not_to() -> None:
    logits = []
    for normalize, scale in ((True, 1.0), (False, 1 / 255)):
        model = _filled(ImageGoalEnv(), steps=12, policy_kwargs={"normalize_images": normalize})
        seed_all(0)
        batch = _batch(model, 5)
        obs = batch.observations
        if not normalize:
            obs = {key: value.float() * scale if value.ndim == 4 else value for key, value in obs.items()}
        logits.append(model.critic(obs, batch.actions))
    th.testing.assert_close(logits[0], logits[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stochastic", [False, True])
def test_pre_tanh_is_what_the_tanh_is_taken_of(stochastic: bool) -> None:
    model = small_model(PointEnv(), policy_kwargs={"net_arch": [8], "stochastic_actor": stochastic})
    obs = model.policy.obs_to_tensor({key: np.stack([value] * 5) for key, value in PointEnv().reset(seed=0)[0].items()})[0]
    th.manual_seed(0)
    actions, pre_tanh = model.policy.actions_and_pre_tanh(obs)
    th.manual_seed(0)
    assert th.equal(actions, model.actor(obs))
    assert th.allclose(pre_tanh.tanh(), model.policy._predict(obs, deterministic=True))


@pytest.mark.parametrize("algorithm", [CLearning, GoalTD3])
def test_the_penalty_alone_moves_the_actor_as_its_gradient_says(algorithm: type) -> None:
    """With classifiers that say the same of every action, what is left of the actor's loss is c mean(x^2)."""
    model = algorithm(
        "MultiInputPolicy",
        PointEnv(),
        seed=0,
        learning_starts=20,
        batch_size=16,
        pre_tanh_penalty=0.7,
        policy_kwargs={"net_arch": [8], "optimizer_class": th.optim.SGD, "activation_fn": nn.Tanh},
    )
    model.learn(20)
    for parameter in model.critic.parameters():
        parameter.data.zero_()
    batch = model.replay_buffer.sample_goals(16, model.relabelling())[0]
    x = model.actor.mu[:-1](model.actor.extract_features(batch.observations, model.actor.features_extractor))
    (0.7 * (x**2).sum() / x.numel()).backward()
    expected = [parameter.grad.clone() for parameter in model.actor.parameters()]
    model._updater.update_actor(batch)
    for parameter, gradient in zip(model.actor.parameters(), expected, strict=True):
        assert th.allclose(parameter.grad, gradient, atol=1e-7)
    assert max(gradient.abs().max() for gradient in expected) > 1e-4
