"""
Trains any number of classifiers of the future together, each on its own data, as one batched tensor program.

A step of small networks consists of many small operations and is dominated by per-operation overhead. With twenty networks in
one batched product a step takes little longer than with one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch as th
from torch import nn

from sb3_clearning.checks import check_number, check_sizes, is_number
from sb3_clearning.layers import BatchedLinear
from sb3_clearning.losses import Discount, hindsight_q_loss, importance_weight, mc_loss, mean_of_weighted, mixed_loss
from sb3_clearning.prediction.encoding import Encoder
from sb3_clearning.prediction.next_actions import ActionPool
from sb3_clearning.replay.geometric import future_rows

METHODS = ("mc", "td", "mixed", "q")


def falling_rate(remaining: float) -> float:
    """:return: The default learning rate, which falls from 1e-3 to 0: the odds then sum to one more exactly"""
    return 1e-3 * remaining


@dataclass(frozen=True)
class TrainingSettings:
    r"""
    How classifiers are trained.

    :param method: "mc" (Algorithm 1), "td" (Algorithm 2), "mixed" (the appendix), or "q" (Eq. "q-learning-loss")
    :param gamma: The discount factor
    :param steps: Number of batches
    :param hidden: Sizes of the hidden layers
    :param learning_rate: Adam's learning rate, or a function of the remaining progress (from 1 to 0)
    :param batch_size: Transitions in a batch; each is seen with positive and with random goals
    :param lambda_: "mixed": the weight of TD against Monte Carlo. "q": the relabelling ratio, the weight of random goals
    :param w_clip: The largest importance weight. None: :math:`1/(1-\gamma)`; ``float("inf")``: no limit
    :param tau: Polyak coefficient of the target network (1: no target network, w comes from the classifier itself)
    :param average_next_actions: Whether w is averaged over the policy's possible next actions, instead of computed for a
        sampled one. It has the same mean and less variance
    :param n_random: Random goals for each transition
    :param absorbing: Whether the agent is assumed to remain in a terminal state (else: terminations are ignored)
    :param weight_decay: Adam's decoupled weight decay
    :param n_steps: "td" and "mixed": how many steps of the data precede the bootstrap, a whole number or ``float("inf")``;
        fewer where the recorded episode ends. 1 is Algorithm 2
    """

    method: str = "td"
    gamma: float = 0.99
    steps: int = 10_000
    hidden: tuple[int, ...] = (256, 256)
    learning_rate: float | Callable[[float], float] = falling_rate
    batch_size: int = 256
    lambda_: float = 0.5
    w_clip: float | None = None
    tau: float = 1.0
    average_next_actions: bool = False
    n_random: int = 1
    absorbing: bool = False
    weight_decay: float = 0.0
    n_steps: float = 1

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"`method` must be one of {METHODS}, not {self.method!r}.")
        check_number("gamma", self.gamma, 0, 1, open_ends="high")
        for name in ("steps", "batch_size", "n_random"):
            check_number(name, getattr(self, name), 1, whole=True)
        check_sizes("hidden", self.hidden)
        if not callable(self.learning_rate):
            check_number(
                "learning_rate", self.learning_rate, 0, open_ends="low", hint=", or a function of the remaining progress"
            )
        check_number("lambda_", self.lambda_, 0, 1)
        if self.w_clip is not None:
            check_number("w_clip", self.w_clip, 0, open_ends="low", hint=" (inf: no limit)")
        for name in ("absorbing", "average_next_actions"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"`{name}` must be True or False, not {getattr(self, name)!r}.")
        check_number("tau", self.tau, 0, 1, open_ends="low")
        if not (is_number(self.n_steps, whole=self.n_steps != float("inf")) and self.n_steps >= 1):
            raise ValueError(f'`n_steps` must be a whole number of at least 1, or float("inf"), not {self.n_steps!r}.')
        if self.n_steps != 1 and self.method == "mc":
            raise ValueError(
                'method="mc" reads the whole future from the data and bootstraps nothing, so `n_steps` has no effect. For '
                'Monte Carlo that bootstraps at truncations, use method="td" with n_steps=float("inf").'
            )
        if self.n_steps != 1 and self.method == "q":
            raise ValueError("Hindsight Q-learning is defined for one step only: `n_steps` must be 1.")

    @property
    def bootstraps(self) -> bool:
        """:return: Whether the next action is needed"""
        return self.method != "mc"

    @property
    def importance_weight_limit(self) -> float:
        """:return: The largest importance weight"""
        return 1 / (1 - self.gamma) if self.w_clip is None else self.w_clip


@dataclass
class TrainingData:
    """
    Encoded transitions of one dataset.

    :param states: ``(n, state_size)``
    :param actions: ``(n, action_size)``
    :param next_states: ``(n, state_size)``
    :param goals: ``(n, goal_size)``, what the next states achieve
    :param last: ``(n,)``, the index of the last transition of each one's episode
    :param terminations: ``(n,)``
    :param next_actions: The policy's actions in the next states; None for Monte Carlo
    :param shift: ``(inputs,)``, subtracted from the networks' inputs
    :param scale: ``(inputs,)``, the divisor of the networks' inputs
    :param random_goals: ``(m, goal_size)``, the negative samples; None: ``goals``
    """

    states: np.ndarray
    actions: np.ndarray
    next_states: np.ndarray
    goals: np.ndarray
    last: np.ndarray
    terminations: np.ndarray
    next_actions: ActionPool | None
    shift: np.ndarray
    scale: np.ndarray
    random_goals: np.ndarray | None = None


def standardization(rows: np.ndarray, encoders: Sequence[Encoder]) -> tuple[np.ndarray, np.ndarray]:
    """
    :param rows: ``(n, inputs)``
    :param encoders: Of the parts of a row, in their order
    :return: Mean and standard deviation of the columns that are not one-hot; 0 and 1 for the others
    """
    continuous = np.concatenate([encoder.continuous_columns() for encoder in encoders])
    mean, std = rows.mean(axis=0), rows.std(axis=0)
    return np.where(continuous, mean, 0.0).astype(np.float32), np.where(continuous & (std > 1e-6), std, 1.0).astype(np.float32)


class BatchedClassifiers(nn.Module):
    """
    Classifiers C(F=1 | s, a, g) with ReLU layers, as logits, all evaluated at once.

    :param n: Number of classifiers
    :param sizes: Sizes of the input and the hidden layers
    :param shift: ``(n, inputs)``, subtracted from the inputs
    :param scale: ``(n, inputs)``, the divisor of the inputs
    """

    shift: th.Tensor
    scale: th.Tensor

    def __init__(self, n: int, sizes: Sequence[int], shift: np.ndarray, scale: np.ndarray):
        super().__init__()
        layers: list[nn.Module] = []
        for size, next_size in pairwise(sizes):
            layers += [BatchedLinear(n, size, next_size), nn.ReLU()]
        self.layers = nn.Sequential(*layers, BatchedLinear(n, sizes[-1], 1))
        self.register_buffer("shift", th.as_tensor(shift, dtype=th.float32)[:, None])
        self.register_buffer("scale", th.as_tensor(scale, dtype=th.float32)[:, None])

    def forward(self, inputs: th.Tensor) -> th.Tensor:
        """
        :param inputs: ``(n, batch, inputs)`` or ``(1, batch, inputs)`` for all
        :return: Logits, ``(n, batch)``
        """
        return self.layers((inputs - self.shift) / self.scale).squeeze(-1)


def _take(tensor: th.Tensor, rows: np.ndarray) -> th.Tensor:
    """:return: The given rows of a tensor; ``index_select`` is several times as fast as indexing with an array"""
    index = th.from_numpy(rows.reshape(-1)).to(tensor.device)
    return tensor.index_select(0, index).reshape(*rows.shape, *tensor.shape[1:])


class _BatchSampler:
    """
    The concatenated datasets of all classifiers, and batches of them.

    :param datasets: One for each classifier, or one for all
    :param n: Number of classifiers
    """

    def __init__(
        self, datasets: Sequence[TrainingData], n: int, settings: TrainingSettings, rng: np.random.Generator, device: th.device
    ):
        self.settings, self.rng = settings, rng
        starts = np.concatenate([[0], np.cumsum([len(data.states) for data in datasets])[:-1]])
        chosen = np.arange(n) if len(datasets) == n else np.zeros(n, dtype=int)
        self.last = np.concatenate([data.last + start for data, start in zip(datasets, starts, strict=True)])
        self.terminations = np.concatenate([data.terminations for data in datasets])
        self._find_windows(datasets, starts, chosen)

        def stack(columns: Sequence[np.ndarray]) -> th.Tensor:
            return th.as_tensor(np.concatenate(columns), dtype=th.float32, device=device)

        self.pairs = stack([np.concatenate([data.states, data.actions], axis=1) for data in datasets])
        self.goals = stack([data.goals for data in datasets])
        choices = [data.goals if data.random_goals is None else data.random_goals for data in datasets]
        lengths = np.array([len(goals) for goals in choices])
        self.random_counts = lengths[chosen][:, None]
        self.random_starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])[chosen][:, None]
        own = any(data.random_goals is not None for data in datasets)
        self.random_choices = stack(choices) if own else self.goals
        if settings.bootstraps:
            self.next_states = stack([data.next_states for data in datasets])
            pools = [self._pool(data) for data in datasets]
            self.next_probabilities = stack([pool.probabilities for pool in pools])
            self.cumulative = np.concatenate([pool.probabilities for pool in pools]).cumsum(axis=1)
            self.one_pool = len(pools[0].actions) == 1 and len(pools[0].probabilities) > 1
            self.next_actions = stack([pool.actions for pool in pools[: 1 if self.one_pool else None]])

    @staticmethod
    def _pool(data: TrainingData) -> ActionPool:
        assert data.next_actions is not None, "temporal differences need the policy's next actions"
        return data.next_actions

    def _find_windows(self, datasets: Sequence[TrainingData], starts: np.ndarray, chosen: np.ndarray) -> None:
        """
        A transition's window is the transition itself and up to ``n_steps - 1`` that follow it. Temporal differences need the
        action after the window, except at an absorbing termination. Where an episode's last transition has no such action,
        windows end before it.
        """
        usable, window_ends = [], []
        for data, start in zip(datasets, starts, strict=True):
            good = np.ones(len(data.states), dtype=bool)
            if self.settings.bootstraps:
                good = self._pool(data).known | (data.terminations & self.settings.absorbing)
            if not good.any():
                raise ValueError(
                    "The data has no two transitions that follow each other, so its own next action is unknown. "
                    'Pass the policy, collect longer episodes, or use method="mc".'
                )
            usable.append(np.flatnonzero(good) + start)
            rows = np.arange(len(good))
            furthest = rows + int(min(self.settings.n_steps, len(rows))) - 1
            window_ends.append(np.maximum(rows, np.minimum(furthest, data.last - ~good[data.last])) + start)
        counts = np.array([len(index) for index in usable])
        self.usable, self.window_end = np.concatenate(usable), np.concatenate(window_ends)
        self.usable_counts = counts[chosen][:, None]
        self.usable_starts = np.concatenate([[0], np.cumsum(counts)[:-1]])[chosen][:, None]

    def sample_rows(self) -> np.ndarray:
        """:return: Rows of transitions, ``(n, batch)``"""
        uniform = self.rng.random((len(self.usable_counts), self.settings.batch_size))
        return self.usable[self.usable_starts + (uniform * self.usable_counts).astype(np.int64)]

    def random_goals(self) -> th.Tensor:
        """:return: Draws of the marginal, ``(n, n_random * batch, goal_size)``"""
        uniform = self.rng.random((len(self.random_counts), self.settings.n_random * self.settings.batch_size))
        return _take(self.random_choices, self.random_starts + (uniform * self.random_counts).astype(np.int64))

    def next_goals(self, rows: np.ndarray) -> th.Tensor:
        """:return: Goals from the transitions' windows, ``(n, batch, goal_size)``"""
        return _take(self.goals, rows) if self.settings.n_steps == 1 else self._later_goals(rows, self.window_end)

    def future_goals(self, rows: np.ndarray) -> th.Tensor:
        """:return: Goals from the rest of the same episodes, ``(n, batch, goal_size)``"""
        return self._later_goals(rows, self.last)

    def _later_goals(self, rows: np.ndarray, last: np.ndarray) -> th.Tensor:
        settings, uniform = self.settings, self.rng.random(rows.shape)
        return _take(self.goals, future_rows(rows, last, self.terminations, settings.gamma, settings.absorbing, uniform))

    def discount(self, rows: np.ndarray) -> Discount:
        """:return: The discount after the transitions' windows, ``(n, batch)`` if it is not the same for all"""
        if self.settings.n_steps == 1:
            return self.settings.gamma
        powers = self.settings.gamma ** (self.window_end[rows] - rows + 1.0)
        return th.as_tensor(powers, dtype=th.float32, device=self.goals.device)

    def next_values(self, rows: np.ndarray, goals: th.Tensor, of: Callable[[th.Tensor], th.Tensor]) -> th.Tensor:
        """
        The mean of a function of the classifier's inputs over the policy's next action, exact or from one sample.

        :param rows: Transitions, ``(n, batch)``
        :param goals: ``(n, batch, goal_size)``
        :param of: A function from inputs ``(n, batch, inputs)`` to values ``(n, batch)``
        :return: ``(n, batch)``
        """
        states = _take(self.next_states, rows)
        n, batch = rows.shape
        if not self.settings.average_next_actions:
            n_actions = self.cumulative.shape[1]
            drawn = (self.rng.random((n, batch, 1)) >= self.cumulative.take(rows, axis=0)).sum(axis=-1)
            drawn = np.minimum(drawn, n_actions - 1)  # rounding may leave the last sum below 1
            place = drawn if self.one_pool else rows * n_actions + drawn
            actions = _take(self.next_actions.flatten(0, 1), place)
            return of(th.cat([states, actions, goals], dim=-1))
        n_actions = self.next_actions.shape[1]
        pool = self.next_actions[0].expand(n, batch, -1, -1) if self.one_pool else _take(self.next_actions, rows)

        def each(tensor: th.Tensor) -> th.Tensor:
            return tensor[:, :, None].expand(-1, -1, n_actions, -1)

        inputs = th.cat([each(states), pool, each(goals)], dim=-1).reshape(n, batch * n_actions, -1)
        return (of(inputs).reshape(n, batch, n_actions) * _take(self.next_probabilities, rows)).sum(dim=-1)


def train_classifiers(
    datasets: Sequence[TrainingData],
    settings: TrainingSettings,
    n: int | None = None,
    seed: int | None = None,
    device: th.device | str = "cpu",
    progress: Callable[[int, th.Tensor], None] | None = None,
) -> BatchedClassifiers:
    """
    Train classifiers together.

    :param datasets: One for each classifier, or a single one for all
    :param settings: How they are trained
    :param n: Number of classifiers, if they share a dataset
    :param seed: The seed of initial weights and batches
    :param device: PyTorch device
    :param progress: Called after each step with its number and the loss (a sum over classifiers)
    :return: The classifiers
    """
    n = len(datasets) if n is None else n
    device = th.device(device)
    rng = np.random.default_rng(seed)
    sampler = _BatchSampler(datasets, n, settings, rng, device)
    shifts, scales = (np.stack([getattr(data, name) for data in datasets]) for name in ("shift", "scale"))
    with th.random.fork_rng(devices=[]):
        th.manual_seed(int(rng.integers(2**31)))
        make = lambda: BatchedClassifiers(n, (shifts.shape[1], *settings.hidden), shifts, scales).to(device)  # noqa: E731
        classifiers = make()
        target = classifiers if settings.tau == 1 else make()
    target.load_state_dict(classifiers.state_dict())
    parameters: list[th.Tensor] = list(classifiers.parameters())
    target_parameters: list[th.Tensor] = list(target.parameters())
    rate = settings.learning_rate
    optimizer = th.optim.AdamW(parameters, rate(1.0) if callable(rate) else float(rate), weight_decay=settings.weight_decay,
                               fused=True)  # fmt: skip
    for step in range(settings.steps):
        if callable(rate):
            optimizer.param_groups[0]["lr"] = rate(1 - step / settings.steps)
        loss = _loss(sampler, settings, classifiers, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if settings.tau < 1:
            with th.no_grad():
                th._foreach_lerp_(target_parameters, parameters, settings.tau)
        if progress is not None:
            progress(step, loss.detach())
    return classifiers


def _loss(
    sampler: _BatchSampler, settings: TrainingSettings, classifiers: BatchedClassifiers, target: BatchedClassifiers
) -> th.Tensor:
    """:return: The loss of a new batch, summed over classifiers"""
    rows = sampler.sample_rows()
    random_rows = np.tile(rows, (1, settings.n_random))
    pairs, goals = _take(sampler.pairs, rows), {"random": sampler.random_goals()}
    if settings.bootstraps:
        goals["next"] = sampler.next_goals(rows)
    if settings.method in ("mc", "mixed"):
        goals["future"] = sampler.future_goals(rows)
    random_pairs = pairs if settings.n_random == 1 else pairs.repeat(1, settings.n_random, 1)
    inputs = [th.cat([random_pairs if kind == "random" else pairs, goal], dim=-1) for kind, goal in goals.items()]
    parts = classifiers(th.cat(inputs, dim=1)).split([part.shape[1] for part in inputs], dim=1)
    logits = dict(zip(goals, parts, strict=True))
    if settings.method == "mc":
        return mc_loss(logits["future"], logits["random"])
    q_learning, limit = settings.method == "q", settings.importance_weight_limit
    window_end = sampler.window_end[random_rows]
    with th.no_grad():
        following = sampler.next_values(
            window_end,
            goals["random"],
            (lambda x: target(x).sigmoid()) if q_learning else (lambda x: importance_weight(target(x), limit)),
        )
    if settings.absorbing:
        following = following.masked_fill(th.as_tensor(sampler.terminations[window_end], device=following.device), 0.0)
    if q_learning:
        return hindsight_q_loss(logits["next"], logits["random"], following, settings.gamma, settings.lambda_)
    return _c_learning_loss(sampler, settings, rows, random_rows, logits, following)


def _c_learning_loss(
    sampler: _BatchSampler,
    settings: TrainingSettings,
    rows: np.ndarray,
    random_rows: np.ndarray,
    logits: dict[str, th.Tensor],
    w: th.Tensor,
) -> th.Tensor:
    """:return: The TD or the mixed loss, summed over classifiers"""
    lambda_ = 1.0 if settings.method == "td" else settings.lambda_
    gamma, next_gamma = sampler.discount(random_rows), sampler.discount(rows)
    future_logits = logits.get("future", logits["next"][:, :0])  # TD has no future goals
    loss = mixed_loss(logits["next"], future_logits, logits["random"], w, gamma, lambda_, next_gamma)
    if settings.absorbing:
        # Where the window ends in a termination its goals have the weight (1 - gamma^m) + gamma^m, and w is 0.
        ended = th.as_tensor(sampler.terminations[sampler.window_end[rows]], dtype=th.float32, device=w.device)
        loss = loss + mean_of_weighted(lambda_ * next_gamma, nn.functional.softplus(-logits["next"]) * ended)
    return loss
