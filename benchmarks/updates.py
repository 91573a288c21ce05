"""Updates and environment steps a second, against the peers and against the matrix products' limit."""

from itertools import pairwise

import torch as th

from benchmarks.peers import fill, make_models
from benchmarks.timing import Row, compare, repeat, seconds, summary
from sb3_clearning.common.fast_mlp import multiply


def update_flops(batch: int, features: int, actions: int, hidden: tuple[int, ...], n_critics: int = 2) -> float:
    """
    The arithmetic of one update of C-learning: the classifiers forward and backward; targets on the random half; the actor
    forward, the classifiers forward and backward to their inputs, the actor backward.

    :param batch: The batch size
    :param features: Size of the observation with its goal
    :param actions: Size of an action
    :param hidden: The networks' hidden layers
    :param n_critics: Number of classifiers
    :return: Floating-point operations in matrix products
    """

    def products(sizes: list[int]) -> list[float]:
        return [2.0 * a * b for a, b in pairwise(sizes)]

    critic = products([features + actions, *hidden, 1])
    actor = products([features, *hidden, actions])
    critic_step = n_critics * (2 * sum(critic) + sum(critic[1:]))  # forward, gradients of weights, gradients of hidden layers
    targets = 0.5 * (n_critics * sum(critic) + sum(actor))
    actor_step = (
        sum(actor) + n_critics * (sum(critic) + sum(critic[1:]) + 2.0 * hidden[0] * actions) + sum(actor) + sum(actor[1:])
    )
    return batch * (critic_step + targets + actor_step)


def updates(env_id: str, rounds: int, threads: int, batch_size: int = 256, hidden: tuple[int, ...] = (256, 256)) -> list[Row]:
    """
    :param env_id: The environment's id
    :param rounds: Number of rounds
    :param threads: Number of threads, for the setting's name
    :param batch_size: The batch size
    :param hidden: The networks' hidden layers
    :return: The rows
    """
    models = make_models(env_id, batch_size, hidden)
    fill(models)
    n = max(int(20 * 256 / batch_size * (256 / max(hidden)) ** 2), 2)
    subjects = {name: repeat(n, model.train, gradient_steps=1, batch_size=batch_size) for name, model in models.items()}
    a, b, out = th.randn(1, 256, 256), th.randn(1, 256, 256), th.empty(1, 256, 256)
    products = 8 * n
    subjects["matrix products"] = repeat(products, multiply, a, b, out)
    times = seconds(subjects, rounds, warm_up=2)

    gflops = [products * 2 * 256**3 / t / 1e9 for t in times["matrix products"]]
    buffer = models["CLearning"].replay_buffer
    flops = update_flops(batch_size, buffer.n_features, buffer.action_dim, hidden)
    # As if the update was these products alone, round by round.
    times["matrix-product limit"] = [n * flops / (g * 1e9) for g in gflops]
    del times["matrix products"]
    setting = f"{env_id}, batch {batch_size}, {list(hidden)}, {threads} thread{'s' * (threads > 1)}"
    return [
        *compare("updates", setting, times, n, "updates"),
        summary("updates", setting, "matrix product 256³", gflops, "GFLOPS"),
    ]


def loop(env_id: str, rounds: int, threads: int, steps: int = 150, n_envs: int = 1) -> list[Row]:
    """
    The whole loop: acting, the environments, storing, one update for each step of all environments.

    :param env_id: The environment's id
    :param rounds: Number of rounds
    :param threads: Number of threads, for the setting's name
    :param steps: Number of steps of all environments in a round
    :param n_envs: Number of environments
    :return: The rows
    """
    models = make_models(env_id, n_envs=n_envs)
    fill(models, max(1500, 60 * n_envs))  # HerReplayBuffer needs whole episodes
    total = steps * n_envs
    subjects = {
        name: repeat(1, model.learn, total, reset_num_timesteps=False, log_interval=10_000) for name, model in models.items()
    }
    times = seconds(subjects, rounds)
    several = f"{n_envs} environments, " if n_envs > 1 else ""
    return compare("whole loop", f"{env_id}, {several}{threads} thread{'s' * (threads > 1)}", times, total, "steps")
