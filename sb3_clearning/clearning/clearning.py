"""CLearning: goal-conditioned C-learning as a Stable-Baselines3 algorithm."""

from typing import Any

import torch as th
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import GymEnv, Schedule

from sb3_clearning.checks import check_number
from sb3_clearning.clearning.fast_updater import FastClassifierUpdater
from sb3_clearning.clearning.updater import ClassifierUpdater
from sb3_clearning.common.goal_algorithm import GoalAlgorithm
from sb3_clearning.common.policies import CLearningPolicy
from sb3_clearning.losses import ACTOR_OBJECTIVES, ELEMENTWISE_LOSSES
from sb3_clearning.prediction.policy_future import PolicyFuture
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
    :param learning_starts: How many random steps are made before learning starts; none after ``learn_offline``
    :param batch_size: Size of a batch; half of it has positive goals, half random ones
    :param tau: The soft update coefficient ("Polyak update", between 0 and 1)
    :param gamma: The discount factor: future goals lie about :math:`1/(1-\gamma)` steps ahead. The first thing to tune
    :param train_freq: Update the model every ``train_freq`` steps, or a tuple like ``(5, "step")`` or ``(2, "episode")``
    :param gradient_steps: How many gradient steps to do after each rollout; -1: as many as environment steps
    :param action_noise: Exploration: "auto" (pink, none for a stochastic actor), "gaussian", "pink", None, or an ActionNoise
    :param replay_buffer_class: GoalReplayBuffer or a subclass of it
    :param replay_buffer_kwargs: Arguments of the replay buffer; ``{"buffer_device": "cuda"}`` stores it on the GPU
    :param optimize_memory_usage: Has no effect: the buffer always stores a state once
    :param n_steps: n of the n-step recursion: the next n recorded steps are positives, and the state after them is
        bootstrapped from. 1 is the paper's; ``float("inf")`` looks to the end of the recorded episode. Steps beyond the
        horizon :math:`1/(1-\gamma)` add little; the time of an update hardly depends on n. With a ``lambda_`` of 0
        nothing is bootstrapped and n has no effect
    :param policy_delay: The actor and the targets are updated once every ``policy_delay`` updates of the classifiers
    :param target_policy_noise: Standard deviation of the noise on the next action (with the deterministic actor)
    :param target_noise_clip: Limit of that noise
    :param stats_window_size: Number of episodes over which the rollout logs are averaged
    :param tensorboard_log: The log location for TensorBoard (if None, no logging)
    :param policy_kwargs: Additional arguments to be passed to the policy on creation; ``stochastic_actor=True`` for the
        paper's tanh-Gaussian actor
    :param verbose: Verbosity level: 0 for no output, 1 for info messages, 2 for debug messages
    :param device: Device (cpu, cuda, …) on which the code should be run
    :param lambda_: The weight of TD against Monte Carlo C-learning: 1 is TD, 0 Monte Carlo. Where every goal is reached, the
        odds of an action that goes there at once exceed those of one that goes a window later by the share
        :math:`1-\lambda\gamma^n` only
    :param lambda_on_w: Whether importance weights have the factor lambda of the appendix's table, so that the loss is exactly
        ``lambda_`` TD + (1 - ``lambda_``) MC. With n = 1 bootstrapping then looks :math:`1/(1-\lambda\gamma)` steps ahead,
        and beyond that the collecting policies count; without it (the authors' code) it looks :math:`1/(1-\gamma)` steps
        ahead
    :param w_clip: The largest importance weight. None: :math:`1/\sqrt{(1-\gamma)(1-\gamma^n)}`, which is the paper's
        :math:`1/(1-\gamma)` for n = 1; ``float("inf")``: no limit
    :param classifier_loss: "bce" (cross entropy) or "mse"
    :param actor_loss: "log_ratio" maximizes the logit, :math:`\log p^+(g \mid s, a) - \log p(g)`; "log_prob" (the paper's)
        :math:`\log C`, "prob" :math:`C`
    :param terminal: "ignore" treats episodes as never ending, as the paper does; with "absorbing" the agent is assumed to
        remain in the terminal state
    :param commanded_goal_fraction: The share of random goals drawn from commanded goals instead of visited states
    :param noise_std: The standard deviation of the "gaussian" or "pink" noise, for actions within [-1, 1]
    :param warmup_noise: The random actions before ``learning_starts``: "uniform", or "pink" (uniform, correlated in time)
    :param pre_tanh_penalty: Coefficient of an L2 penalty on pre-tanh actions; keeps gradients alive at the bounds
    :param bc_coef: Coefficient of behavior cloning in the actor's loss of ``learn_offline``: data shows no action that is far
        from its own, and so the critics are wrong there. If ``learn`` follows, the share of updates that were offline is left
        of it; without offline updates it has no effect. 0: no cloning
    :param action_rate_penalty: Coefficient of :math:`|\pi(s, g) - \pi(s', g)|^2` in the actor's loss, for a step from s to s'
        and its commanded goal g: smoother actions, for machines. An update takes 1.8 times as long
    :param _init_setup_model: Whether or not to build the network at the creation of the instance
    """

    updater_class, fast_updater_class = ClassifierUpdater, FastClassifierUpdater
    _updater: ClassifierUpdater

    def __init__(
        self,
        policy: str | type[CLearningPolicy],
        env: GymEnv | str | None,
        learning_rate: float | Schedule = 1e-3,
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
        n_steps: float = 10,
        policy_delay: int = 1,
        target_policy_noise: float = 0.2,
        target_noise_clip: float = 0.5,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        lambda_: float = 0.9,
        lambda_on_w: bool = True,
        w_clip: float | None = None,
        classifier_loss: str = "bce",
        actor_loss: str = "log_ratio",
        terminal: str = "ignore",
        commanded_goal_fraction: float = 0.0,
        noise_std: float = 0.3,
        warmup_noise: str = "pink",
        pre_tanh_penalty: float = 1e-3,
        bc_coef: float = 0.3,
        action_rate_penalty: float = 0.0,
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
            bc_coef=bc_coef,
            _init_setup_model=False,
        )
        self.lambda_ = lambda_
        self.lambda_on_w = lambda_on_w
        self.w_clip = w_clip
        self.classifier_loss = classifier_loss
        self.actor_loss = actor_loss
        self.terminal = terminal
        self.commanded_goal_fraction = commanded_goal_fraction
        self.action_rate_penalty = action_rate_penalty
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        super()._setup_model()
        if self.action_rate_penalty > 0 and self.policy.stochastic_actor:
            raise ValueError("`action_rate_penalty` is for the deterministic actor: a stochastic one's samples always jump.")

    def _check_arguments(self) -> None:
        super()._check_arguments()
        self._check_not_from("GoalTD3", {"relabel", "q_loss"})
        check_number("lambda_", self.lambda_, 0, 1, hint=" (1: TD, 0: Monte Carlo C-learning)")
        check_number("commanded_goal_fraction", self.commanded_goal_fraction, 0, 1)
        check_number("action_rate_penalty", self.action_rate_penalty, 0, hint=" (0: none)")
        if self.w_clip is not None:
            check_number("w_clip", self.w_clip, 0, open_ends="low", hint=" (None: from gamma and n_steps; inf: no limit)")
        if not isinstance(self.lambda_on_w, bool):
            raise ValueError(f"`lambda_on_w` must be True or False, not {self.lambda_on_w!r}.")
        if self.n_steps > 1 and self.lambda_ < 1 and not self.lambda_on_w:
            # Near an episode's end there are fewer steps, so the odds' mass would depend on the state.
            raise ValueError("`n_steps` above 1 needs `lambda_on_w=True` (or `lambda_=1`, where it makes no difference).")
        for name, allowed in (
            ("classifier_loss", tuple(ELEMENTWISE_LOSSES)),
            ("actor_loss", tuple(ACTOR_OBJECTIVES)),
            ("terminal", ("ignore", "absorbing")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"`{name}` must be one of {allowed}, not {getattr(self, name)!r}.")

    def relabelling(self) -> dict[str, float]:
        r"""
        Half of a batch has random goals, a quarter each next and future ones. The appendix's table has :math:`\lambda/2` and
        :math:`(1-\lambda)/2` of these. Here lambda is in their weights alone: the loss is the same, and future goals, which
        carry most of its weight, are not scarce where lambda is near 1.

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
        r"""
        The default is the geometric mean of two horizons: in steps, :math:`1/(1-\gamma)`, the paper's limit, and in windows
        of n steps, :math:`1/(1-\gamma^n)`. In trials with ten steps the first was no better, and the second too low.

        :return: The largest importance weight
        """
        if self.w_clip is not None:
            return self.w_clip
        return ((1 - self.gamma) * (1 - self.gamma**self.n_steps)) ** -0.5

    @property
    def bootstrap_factor(self) -> float:
        """:return: The factor on w beside gamma: lambda with ``lambda_on_w``, else 1"""
        return self.lambda_ if self.lambda_on_w else 1.0

    @property
    def future(self) -> PolicyFuture:
        """:return: Predictions of this policy's future, for each goal as the commanded one"""
        return PolicyFuture(self)

    def _absorbing(self) -> bool:
        return self.terminal == "absorbing"
