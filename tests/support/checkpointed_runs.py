"""Runs with checkpoints for the tests: what they are, and how they are stopped."""

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.callbacks import BaseCallback

from sb3_clearning import CLearning, ResumableCheckpoint
from tests.support.goal_envs import PointEnv
from tests.support.small_models import small_model, weights

STEPS, EVERY = 90, 20


class Stopped(Exception):
    """The run was stopped by the test."""


class StopAt(BaseCallback):
    """
    :param step: When to stop
    :param how: Called then
    """

    def __init__(self, step: int, how: Callable[[], None] | None = None):
        super().__init__()
        self.step, self.how = step, how

    def _on_step(self) -> bool:
        if self.num_timesteps == self.step:
            if self.how is None:
                raise Stopped
            self.how()
        return True


def make_env() -> PointEnv:
    """:return: An environment whose episodes end at steps that no checkpoint falls on"""
    return PointEnv(length=7, terminates=True)


def start_or_resume(folder: Path, env: Any = None, **arguments: Any) -> CLearning:
    """:return: The run's model, from its newest checkpoint if there is one"""
    env = make_env() if env is None else env
    if ResumableCheckpoint(folder).exists():
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a checkpoint that is not whole would be warned of
            return CLearning.resume(folder, env, **{k: v for k, v in arguments.items() if callable(v)})
    return small_model(env, **arguments)


def learn(folder: Path, *others: BaseCallback, env: Any = None, steps: int = STEPS, **arguments: Any) -> CLearning:
    """:return: The model at the end of the run"""
    model = start_or_resume(folder, env, **arguments)
    return model.learn(steps, callback=[ResumableCheckpoint(folder, every=EVERY), *others])


def all_of(model: CLearning) -> dict[str, Any]:
    """:return: Everything that two equal runs have in common: weights, optimizers, counters, the buffer, generators"""
    found: dict[str, Any] = {f"weights {name}": tensor.numpy() for name, tensor in weights(model).items()}
    for name, optimizer in (("actor", model.actor.optimizer), ("critic", model.critic.optimizer)):
        for i, state in optimizer.state_dict()["state"].items():
            found.update({f"{name} {i} {slot}": value.numpy() for slot, value in state.items()})
    buffer = model.replay_buffer
    found.update(
        rows=buffer.rows,
        last=buffer.episode_end,
        added=buffer.total_added,
        open=buffer.in_progress,
        length=buffer.episode_steps,
    )
    found["finals"] = buffer.slot_rows[buffer.next_slot[buffer.next_slot >= buffer.n_envs]]
    found.update(n_updates=model._n_updates, steps=model.num_timesteps, episodes=model._episode_num)
    found.update(torch=th.get_rng_state().numpy(), numpy=np.random.get_state()[1])  # type: ignore[index]
    found["distances"] = np.array(model._distances.episodes)
    return found


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """:return: The names of what is not equal, bit for bit"""
    return [
        name for name in {**one, **other} if name not in one or name not in other or not np.array_equal(one[name], other[name])
    ]


def in_a_process(target: Callable[..., None], *args: Any) -> Any:
    """:return: A process that runs a function and can be killed; forked, because importing torch takes seconds"""
    process = multiprocessing.get_context("fork").Process(target=target, args=args)
    process.start()
    return process


def die() -> None:
    """End this process as a loss of power would."""
    os.kill(os.getpid(), signal.SIGKILL)
