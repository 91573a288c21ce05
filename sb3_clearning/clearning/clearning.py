"""CLearning: goal-conditioned C-learning as a Stable-Baselines3 algorithm."""

import math
from typing import Any

import torch as th
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import GymEnv, Schedule

from sb3_clearning.clearning.fast_update import PlainClassifierUpdate
from sb3_clearning.common.goal_algorithm import GoalAlgorithm, split_observations
from sb3_clearning.common.policies import CLearningPolicy
from sb3_clearning.losses import ACTOR_OBJECTIVES, ELEMENTWISE_LOSSES, importance_weight, random_label_and_weight
from sb3_clearning.prediction.policy_future import PolicyFuture
from sb3_clearning.replay.batch import GoalBatch
from sb3_clearning.replay.goal_buffer import GoalReplayBuffer


class CLearning(GoalAlgorithm):
    r"""
    Goal-conditioned C-learning (Algorithm 3 of the paper) on the frame of TD3, for environments with Dict observations of
    ``observation``, ``achieved_goal`` and ``desired_goal``. No reward is read.

    Paper: C-Learning: Learning to Achieve Goals via Recursive Classification, Eysenbach, Salakhutdinov, Levine, ICLR 2021,
    https://arxiv.org/abs/2011.08909

    :param policy: The policy model to use ("MultiInputPolicy")
    :param env: The goal environment to learn from (if registered in Gymnasium, can be str)
    :param learning_rate: Learning rate of both Adam optimizers; can be a function of the remaining progress (from 1 to 0)
    :param buffer_size: Size of the replay buffer
    :param learning_starts: How many random steps are made before learning starts
    :param batch_size: Size of a batch; half of it has positive goals, half random ones
    :param tau: The soft update coefficient ("Polyak update", between 0 and 1)
    :param gamma: The discount factor: future goals lie about :math:`1/(1-\gamma)` steps ahead. The first thing to tune
    :param train_freq: Update the model every ``train_freq`` steps, or a tuple like ``(5, "step")`` or ``(2, "episode")``
    :param gradient_steps: How many gradient steps to do after each rollout; -1: as many as environment steps
    :param action_noise: Exploration: "auto" (pink, none for a stochastic actor), "gaussian", "pink", None, or an
        ActionNoise
    :param replay_buffer_class: GoalReplayBuffer or a subclass of it
    :param replay_buffer_kwargs: Keyword arguments to pass to the replay buffer on creation
    :param optimize_memory_usage: Has no effect: the buffer always stores a state once
    :param n_steps: n of the n-step recursion: the next n recorded steps are positives, and the classifiers are bootstrapped
        from the state behind them. 1 is the paper's; ``float("inf")`` looks to the end of the recorded episode. Beyond the
        horizon :math:`1/(1-\gamma)` more steps change little
    :param policy_delay: The actor and the targets are updated once every ``policy_delay`` updates of the classifiers
    :param target_policy_noise: Standard deviation of the noise on the next action (with the deterministic actor)
    :param target_noise_clip: Limit of that noise
    :param stats_window_size: Number of episodes over which the rollout logs are averaged
    :param tensorboard_log: The log location for TensorBoard (if None, no logging)
    :param policy_kwargs: Additional arguments to be passed to the policy on creation; ``stochastic_actor=True`` for the
        paper's tanh-Gaussian actor
    :param verbose: Verbosity level: 0 for no output, 1 for info messages, 2 for debug messages
    :param seed: Seed for the pseudo random generators
    :param device: Device (cpu, cuda, …) on which the code should be run
    :param lambda_: The weight of TD against Monte Carlo C-learning: 1 is TD, 0 Monte Carlo
    :param lambda_on_w: Whether importance weights have the factor lambda of the appendix's table, so that the loss is exactly
        ``lambda_`` TD + (1 - ``lambda_``) MC. Bootstrapping then looks :math:`1/(1-\lambda\gamma)` steps ahead, and beyond
        these the collecting policies count; without it (the authors' code) it looks :math:`1/(1-\gamma)` steps ahead
    :param w_clip: The largest importance weight. None: :math:`1/(1-\gamma)`; ``float("inf")``: no limit
    :param classifier_loss: "bce" (cross entropy) or "mse"
    :param actor_loss: "log_prob" maximises :math:`\log C`, "prob" :math:`C`, "log_ratio" the logit
        :math:`\log p^+(g \mid s, a) - \log p(g)`
    :param terminal: "ignore" treats episodes as never ending, as the paper does; with "absorbing" a state in which the
        environment terminated is stayed in for ever
    :param commanded_goal_fraction: The share of the random goals that are taken from commanded goals instead of visited states
    :param noise_std: The standard deviation of the "gaussian" or "pink" noise, for actions within [-1, 1]
    :param warmup_noise: The random actions before ``learning_starts``: "uniform", or "pink" (uniform and temporally
        correlated)
    :param pre_tanh_penalty: The actor's loss has this times the mean square of what its tanh is taken of, so that actions at
        their bounds keep a gradient
    :param _init_setup_model: Whether or not to build the network at the creation of the instance
    """

    _plain: PlainClassifierUpdate | None

    def __init__(
        self,
        policy: str | type[CLearningPolicy],
        env: GymEnv | str | None,
        learning_rate: float | Schedule = 3e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 1000,
        batch_size: int = 256,
        tau: float = 0.005,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 1,
        gradient_steps: int = 1,
        action_noise: ActionNoise | str | None = "auto",
        replay_buffer_class: type[GoalReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: float = 1,
        policy_delay: int = 1,
        target_policy_noise: float = 0.2,
        target_noise_clip: float = 0.5,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        lambda_: float = 0.5,
        lambda_on_w: bool = True,
        w_clip: float | None = None,
        classifier_loss: str = "bce",
        actor_loss: str = "log_prob",
        terminal: str = "ignore",
        commanded_goal_fraction: float = 0.0,
        noise_std: float = 0.3,
        warmup_noise: str = "pink",
        pre_tanh_penalty: float = 1e-3,
        _init_setup_model: bool = True,
    ):
        super().__init__(
            policy,
            env,
            learning_rate=learning_rate,
            buffer_size=buffer_size,
            learning_starts=learning_starts,
            batch_size=batch_size,
            tau=tau,
            gamma=gamma,
            train_freq=train_freq,
            gradient_steps=gradient_steps,
            action_noise=action_noise,
            replay_buffer_class=replay_buffer_class,
            replay_buffer_kwargs=replay_buffer_kwargs,
            optimize_memory_usage=optimize_memory_usage,
            n_steps=n_steps,
            policy_delay=policy_delay,
            target_policy_noise=target_policy_noise,
            target_noise_clip=target_noise_clip,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            noise_std=noise_std,
            warmup_noise=warmup_noise,
            pre_tanh_penalty=pre_tanh_penalty,
            _init_setup_model=False,
        )
        self.lambda_ = lambda_
        self.lambda_on_w = lambda_on_w
        self.w_clip = w_clip
        self.classifier_loss = classifier_loss
        self.actor_loss = actor_loss
        self.terminal = terminal
        self.commanded_goal_fraction = commanded_goal_fraction
        if _init_setup_model:
            self._setup_model()

    def _check_arguments(self) -> None:
        super()._check_arguments()
        if not isinstance(self.lambda_, (int, float)) or not 0 <= self.lambda_ <= 1:
            raise ValueError(f"`lambda_` must be within [0, 1] (1: TD, 0: Monte Carlo C-learning), not {self.lambda_!r}.")
        if not isinstance(self.lambda_on_w, bool):
            raise ValueError(f"`lambda_on_w` must be True or False, not {self.lambda_on_w!r}.")
        if self.n_steps > 1 and self.lambda_ < 1 and not self.lambda_on_w:
            # Steps are fewer near the end of an episode, and so the odds' mass would depend on the state.
            raise ValueError("`n_steps` above 1 needs `lambda_on_w=True` (or `lambda_=1`, where it makes no difference).")
        if self.w_clip is not None and not (isinstance(self.w_clip, (int, float)) and self.w_clip > 0):
            raise ValueError(f"`w_clip` must be above 0 (None: 1 / (1 - gamma); inf: no limit), not {self.w_clip!r}.")
        if not isinstance(self.commanded_goal_fraction, (int, float)) or not 0 <= self.commanded_goal_fraction <= 1:
            raise ValueError(f"`commanded_goal_fraction` must be within [0, 1], not {self.commanded_goal_fraction!r}.")
        for name, allowed in (
            ("classifier_loss", tuple(ELEMENTWISE_LOSSES)),
            ("actor_loss", tuple(ACTOR_OBJECTIVES)),
            ("terminal", ("ignore", "absorbing")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"`{name}` must be one of {allowed}, not {getattr(self, name)!r}.")

    def _make_plain(self) -> PlainClassifierUpdate | None:
        return PlainClassifierUpdate.of(self, CLearning)

    def relabelling(self) -> dict[str, float]:
        r"""
        Half of a batch has random goals, the other half next and future ones, as many of each as of the other. The appendix's
        table has :math:`\lambda/2` and :math:`(1-\lambda)/2` of them; here lambda is in their weights alone, so that the
        classifiers' loss is the same and the future goals, which carry most of its weight, are not few where lambda is near 1.

        :return: For each kind of goal its share of a batch
        """
        share_of_next = self.lambda_ if self.lambda_ in (0, 1) else 0.5
        return {
            "next": share_of_next / 2,
            "future": (1 - share_of_next) / 2,
            "random": (1 - self.commanded_goal_fraction) / 2,
            "commanded": self.commanded_goal_fraction / 2,
        }

    @property
    def importance_weight_limit(self) -> float:
        r""":return: The largest importance weight: ``w_clip``, or :math:`1/(1-\gamma)` if that is None"""
        return 1 / (1 - self.gamma) if self.w_clip is None else self.w_clip

    @property
    def bootstrap_factor(self) -> float:
        """:return: The factor on w beside gamma: lambda with ``lambda_on_w``, else 1"""
        return self.lambda_ if self.lambda_on_w else 1.0

    @property
    def log_mass(self) -> float:
        r"""
        With the factor f on w the classifiers' odds w satisfy
        :math:`w = [\lambda (1 - \gamma) p(s' = g \mid s, a) + (1 - \lambda) p_+^{MC}(g \mid s, a)] / p(g) + f \gamma E[w']`,
        so that :math:`w p(g)` integrates to :math:`(1 - \lambda\gamma) / (1 - f\gamma)`: with f = lambda to 1, as a density.

        :return: The log of that, which the logits are above those of a density
        """
        return math.log((1 - self.lambda_ * self.gamma) / (1 - self.bootstrap_factor * self.gamma))

    @property
    def future(self) -> PolicyFuture:
        """
        :return: Answers to questions about the future of this policy, with the goal that is asked about as the commanded
            one
        """
        return PolicyFuture(self)

    def _absorbing(self) -> bool:
        return self.terminal == "absorbing"

    def _random_part(self, batch: GoalBatch) -> slice:
        """:return: The part of the batch whose goals are random: the last kinds of ``GOAL_KINDS``, commanded ones included"""
        starts = [batch.kinds[kind].start for kind in ("random", "commanded") if kind in batch.kinds]
        return slice(min(starts), len(batch))

    @th.no_grad()
    def _importance_weights(self, batch: GoalBatch, part: slice) -> th.Tensor:
        """:return: w(s', a', g) of the random goals g, with a' from the policy that is commanded to reach g"""
        if self._plain is not None:
            return self._plain.importance_weights(batch, part)
        next_obs = split_observations(batch.next_observations, part)
        next_actions = self._next_actions(next_obs)
        logits = self.critic_target(next_obs, next_actions).amin(dim=0)
        return importance_weight(logits, self.importance_weight_limit)

    def _labels_and_weights(self, batch: GoalBatch) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
        """
        The appendix's table on mixing, for the n-step recursion: with m = min(n, steps left in the recorded episode),

            p+(g | s_t, a_t) = sum_{k=1..m} (1 - gamma) gamma^(k-1) p(s_{t+k} = g) + gamma^m E[p+(g | s_{t+m}, a')].

        So the m next states have the weight 1 - gamma^m together, and a random goal has gamma^m w, with w at (s_{t+m}, a').
        Each kind's weights are divided by its count, so that a kind contributes its own mean whatever its share of the batch.

        :return: Labels ``(batch,)``, weights ``(batch,)``, and the importance weights of the random goals
        """
        part = self._random_part(batch)
        n_random = part.stop - part.start
        labels, weights = th.ones_like(batch.dones), th.empty_like(batch.dones)
        for kind in ("next", "future"):
            if kind in batch.kinds:
                positive = batch.kinds[kind]
                share = self.lambda_ * (1 - self._discounts(batch, positive)) if kind == "next" else 1 - self.lambda_
                weights[positive] = share / max(positive.stop - positive.start, 1)
        factor = self.bootstrap_factor
        w = self._importance_weights(batch, part) if factor > 0 else labels.new_zeros(n_random)
        if self._absorbing():
            # What would be bootstrapped is the mass of the final state, which offsets of "next" goals are drawn with.
            w = w * (1 - batch.dones[part])
            positive = batch.kinds["next" if "next" in batch.kinds else "future"]
            rest = factor * self._discounts(batch, positive) * math.exp(self.log_mass)
            weights[positive] += rest / max(positive.stop - positive.start, 1) * batch.dones[positive]
        random_labels, random_weights = random_label_and_weight(w, self._discounts(batch, part), factor)
        labels[part] = random_labels
        weights[part] = random_weights / n_random
        return labels, weights, w

    def _update_critic(self, batch: GoalBatch) -> None:
        """Descend the classifier loss, Eq. "objective4" with the appendix's mixing."""
        labels, weights, w = self._labels_and_weights(batch)
        if self._plain is not None:
            logits = self._plain.update_classifier(batch, labels, weights)
        else:
            logits = self.critic(batch.observations, batch.actions)
            loss = ELEMENTWISE_LOSSES[self.classifier_loss](logits, labels, weights).sum()
            self.critic.optimizer.zero_grad()
            loss.backward()
            self.critic.optimizer.step()
        if self._measures("train/classifier_loss"):
            self._measure_classifier(batch, logits.detach(), labels, weights, w)

    @th.no_grad()
    def _measure_classifier(
        self, batch: GoalBatch, logits: th.Tensor, labels: th.Tensor, weights: th.Tensor, w: th.Tensor
    ) -> None:
        part = self._random_part(batch)
        positive, random = logits[:, : part.start], logits[:, part]
        # A weight at the limit counts as clipped; rounding in exp(log(limit)) must not hide it.
        limit = self.importance_weight_limit
        clipped = (w >= limit * (1 - 1e-5)) if math.isfinite(limit) else th.zeros_like(w)
        self._metrics.add(
            {
                "train/classifier_loss": ELEMENTWISE_LOSSES[self.classifier_loss](logits, labels, weights).sum(),
                "train/accuracy_positive": (positive > 0).float().mean(),
                "train/accuracy_negative": (random < 0).float().mean(),
                "train/logits_positive": positive.mean(),
                "train/logits_random": random.mean(),
                "train/w_mean": w.mean(),
                "train/w_clipped": clipped.float().mean(),
            }
        )

    def _update_actor(self, batch: GoalBatch) -> None:
        """Ascend Eq. "policy-update": the log of the smallest classifier's probability that the goal is reached."""
        if self._plain is not None:
            logits = self._plain.update_actor(batch)
        else:
            all_logits, pre_tanh = self._actors_outputs(batch)
            logits = all_logits.amin(dim=0)
            self._descend_actor(self._actor_objective(logits), pre_tanh)
        if self._measures("train/actor_loss"):
            logits = logits.detach()
            self._metrics.add({"train/actor_loss": self._actor_objective(logits), "train/logits_actor": logits.mean()})

    def _actor_objective(self, logits: th.Tensor) -> th.Tensor:
        """:return: The loss that the actor descends"""
        return -ACTOR_OBJECTIVES[self.actor_loss](logits).mean()
