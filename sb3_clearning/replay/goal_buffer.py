"""GoalReplayBuffer: samples transitions with goals from stored episodes."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecNormalize

from sb3_clearning.checks import check_number
from sb3_clearning.files.json_values import register_class
from sb3_clearning.goal_spaces import StateCrop
from sb3_clearning.progress import progress
from sb3_clearning.replay.batch import GoalBatch
from sb3_clearning.replay.datasets import dataset_chunks, load_minari, minari_episodes, read_arrays
from sb3_clearning.replay.device_array import DeviceArray
from sb3_clearning.replay.experience import Experience, Transitions, Values
from sb3_clearning.replay.geometric import future_offsets
from sb3_clearning.replay.goal_transitions import goal_transitions, with_achieved_goals
from sb3_clearning.replay.ring import EpisodeRing
from sb3_clearning.replay.ring_file import load_ring, save_ring

#: Where a transition's goal comes from, in the order in which the kinds stand in a batch: its own commanded goal, its next
#: state (one of the next n, with n-step sampling), the last state of its episode, a later state of its episode, the next state
#: of another transition (a draw from the marginal p(s_{t+})), or the commanded goal of another transition.
GOAL_KINDS = ("original", "next", "final", "future", "random", "commanded")


def goal_slices(relabel: Mapping[str, float], batch_size: int) -> dict[str, slice]:
    """
    Divide a batch by the given shares (largest remainders first, so that the counts add up to the batch).

    :param relabel: For each kind of goal its share; the shares add up to 1
    :return: For each kind with a share its slice, in the order of ``GOAL_KINDS``
    """
    return dict(_goal_slices(tuple(relabel.items()), batch_size))


@lru_cache(maxsize=64)
def _goal_slices(items: tuple[tuple[str, float], ...], batch_size: int) -> dict[str, slice]:
    relabel = dict(items)
    unknown = set(relabel) - set(GOAL_KINDS)
    if unknown:
        raise ValueError(f"Unknown kinds of goals {sorted(unknown)}: use some of {GOAL_KINDS}.")
    check_number("batch_size", batch_size, 1, whole=True)
    shares = np.array([relabel.get(kind, 0.0) for kind in GOAL_KINDS])
    if (shares < 0).any() or not np.isclose(shares.sum(), 1):
        raise ValueError(f"The shares of the goals must be at least 0 and add up to 1, not {dict(relabel)}.")
    exact = shares / shares.sum() * batch_size  # rounded shares may be off by more than one transition of a large batch
    counts = np.floor(exact + 1e-9).astype(int)
    short = batch_size - counts.sum()
    counts[np.argsort(counts - exact, kind="stable")[:short]] += 1
    ends = np.cumsum(counts)
    return {
        kind: slice(int(end - count), int(end))
        for kind, count, end in zip(GOAL_KINDS, counts, ends, strict=True)
        if relabel.get(kind, 0.0) > 0
    }


@lru_cache(maxsize=64)
def _partners(start: int, stop: int, batch_size: int) -> np.ndarray:
    """:return: For each place of the slice the one half a batch further, modulo the batch; another one if there are two"""
    partners = (np.arange(start, stop) + (batch_size + 1) // 2) % batch_size
    partners.setflags(write=False)
    return partners


def check_samples_on_device(normalized: bool, searched: bool) -> None:
    """
    Raise an error for what a buffer with a ``buffer_device`` cannot do without copying states to the host.

    :param normalized: Whether a VecNormalize normalizes the batches
    :param searched: Whether episodes are searched for the first state that achieves the goal, for n-step returns
    """
    if normalized:
        raise ValueError(
            "A VecNormalize computes on the host, and `buffer_device` keeps states off it: leave one of them out. By default, "
            "the networks standardize their inputs."
        )
    if searched:
        raise ValueError(
            "Q-learning's n-step returns are searched for on the host, and `buffer_device` keeps states off it: leave it out, "
            "or use `n_steps=1`."
        )


class GoalReplayBuffer(EpisodeRing):
    """
    Replay buffer for goal-conditioned learning without rewards. Every stored transition can be sampled at once, no finished
    episode is needed, and a batch reads as many rows from a large buffer as from a small one.

    :param buffer_size: Number of transitions, over all environments
    :param observation_space: A Dict with ``observation``, ``achieved_goal``, ``desired_goal`` and any other keys
    :param action_space: A Box
    :param device: The device of the networks, which batches are for
    :param optimize_memory_usage: Has no effect: states are always stored once
    :param buffer_device: Where states and actions are stored. None: in the host's memory, as NumPy's arrays. Else it is the
        networks' device: a batch is then gathered there, and only its indices are sent. The batches are the same
    """

    def save(self, path: str | Path) -> None:
        """Write everything to a file of arrays and JSON, atomically. Unlike a pickle, it runs no code when it is loaded."""
        save_ring(self, Path(path))

    def load(self, path: str | Path) -> None:
        """
        Replace everything by what :meth:`save` wrote. A smaller buffer keeps the newest transitions; one with another number
        of environments gets the episodes one after the other. If the file is damaged or does not fit, nothing is changed.
        """
        load_ring(self, Path(path))

    def load_dataset(self, dataset: Any, crop: StateCrop = None, progress_bar: bool = False) -> int:
        """
        Add the transitions of an offline dataset of any kind. All of it is checked first: after an error or Ctrl-C the
        buffer is unchanged. If it has more transitions than the buffer holds, the newest stay. Rows that are overwritten are
        held twice until the end.

        :param dataset: The path of an .npz file, as OGBench's are (it may be larger than memory; an episode must not be), or
            of what :meth:`Experience.save` wrote; a mapping of arrays, a Minari dataset or its name, an SB3 replay buffer, a
            GoalReplayBuffer or an :class:`Experience`. With neither ``next_observations`` nor ``timeouts``, ``terminals``
            marks the last row of each episode, a truncation; its next state is unknown, and the transition left out
        :param crop: See :meth:`load_arrays`
        :param progress_bar: Whether to show a progress bar (needs tqdm)
        :return: The number of transitions that were added
        """
        assert isinstance(self.action_space, spaces.Box)
        with dataset_chunks(dataset, self.observation_space, self.action_space) as chunks:
            return self._load(chunks, crop, progress_bar)

    def load_arrays(
        self,
        observations: Values,
        actions: np.ndarray,
        terminations: np.ndarray,
        truncations: np.ndarray,
        next_observations: Values | None = None,
        crop: StateCrop = None,
    ) -> int:
        """
        Add the transitions of an offline dataset. Where the data has no ``desired_goal``, an episode's is the last goal that
        it reached.

        :param observations: A dict of arrays ``(n, …)`` as the environment gives them (``achieved_goal`` and ``desired_goal``
            may be missing), or one array for the key ``observation``
        :param actions: ``(n, action_dim)``, in the range of the action space
        :param terminations: ``(n,)``, whether the environment terminated after the transition
        :param truncations: ``(n,)``, whether the episode was truncated after the transition
        :param next_observations: Like ``observations``. If None, the next state is the following row, and the last transition
            of every episode, whose next state is unknown, is left out
        :param crop: The achieved goal as a function of the observation if the data has none: indices, a slice, a function of
            what the observations are (a batch of arrays, or a dict of them), or None for the whole observation; of several
            keys ``{key: crop}``
        :return: The number of transitions that were added
        """
        if isinstance(actions, Mapping):
            raise ValueError(
                "`actions` is a dict. The order is observations, actions, terminations, truncations; pass "
                "`next_observations` by name."
            )
        states = with_achieved_goals(observations, crop)
        next_states = None if next_observations is None else with_achieved_goals(next_observations, crop)
        data = read_arrays(states, actions, terminations, truncations, next_states, self.observation_space, self.action_space)
        return self._load(lambda: [data], None)

    def load_minari(self, dataset: Any, crop: StateCrop = None) -> int:
        """Add a Minari dataset, given itself or as the name of a local one, and return the number of transitions."""
        found = load_minari(dataset)
        return self._load(lambda: minari_episodes(found), crop)

    def _load(self, chunks: Callable[[], Iterable[Experience]], crop: StateCrop, progress_bar: bool = False) -> int:
        def pieces(bar: Any) -> Iterator[Transitions]:
            assert isinstance(self.action_space, spaces.Box)
            done = 0
            for chunk in chunks():
                yield goal_transitions(chunk, self.observation_space, self.action_space, crop, done)
                done += len(chunk)
                if bar is not None:
                    bar.update(len(chunk))

        with progress(progress_bar, "Checking the dataset") as bar:
            total = sum(len(piece.actions) for piece in pieces(bar))
        capacity = self.buffer_size * self.n_envs
        if total > capacity:
            warnings.warn(
                f"The dataset has {total} transitions, but the replay buffer holds {capacity}: only the last {capacity} are "
                "kept. Raise `buffer_size`.",
                stacklevel=3,
            )
        with progress(progress_bar, "Loading the dataset", total) as bar:
            return self.add_pieces(pieces(bar), total)

    # -- sampling ------------------------------------------------------------------------------------------------------

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> GoalBatch:  # type: ignore[override]
        """:return: Transitions with their own commanded goals, normalized by the VecNormalize if there is one"""
        return self.sample_goals(batch_size, {"original": 1.0}, env=env)[0]

    def sample_goals(
        self,
        batch_size: int,
        relabel: Mapping[str, float],
        gamma: float = 0.99,
        absorbing: bool = False,
        env: VecNormalize | None = None,
        n_batches: int = 1,
        n_steps: float = 1,
        returns: bool = False,
    ) -> list[GoalBatch]:
        r"""
        Sample transitions uniformly, and a goal for each.

        Random and commanded goals are those of another transition of the same batch. The batch's transitions are
        independent draws, so such a goal is independent of the transition that it is paired with.

        With ``n_steps`` above 1, a transition looks :math:`m = \min(n, H)` recorded steps ahead, where H is the number of
        steps left in its episode. Its next state is :math:`s_{t+m}`, its discount :math:`\gamma^m`, and "next" goals are
        :math:`s_{t+k}` with :math:`P(k) \propto \gamma^{k-1}` for k from 1 to m.

        :param relabel: For each kind of goal (``GOAL_KINDS``) its share of the batch; the shares add up to 1
        :param gamma: The discount factor of the offsets, within [0, 1]
        :param absorbing: Whether the agent is assumed to remain in a terminal state (else: offsets end with the episode)
        :param env: A VecNormalize to normalize the observations with
        :param n_batches: Number of batches, drawn at once
        :param n_steps: How many recorded steps a transition looks ahead, from 1 to ``float("inf")``
        :param returns: Whether Q-learning's n-step returns are needed: with more than one step they cost a search
        :return: The batches
        """
        if not 0 <= gamma <= 1:
            raise ValueError(f"`gamma` must be within [0, 1], not {gamma}.")
        if not n_steps >= 1:
            raise ValueError(f"`n_steps` must be at least 1, not {n_steps}.")
        if self.size() == 0:
            raise ValueError("The replay buffer is empty: collect or load at least one transition before sampling.")
        if self.buffer_device is not None:
            check_samples_on_device(env is not None, returns and n_steps > 1)
        kinds = goal_slices(relabel, batch_size)
        index = self._draw((n_batches, batch_size))
        end, window = index, None
        if n_steps > 1:
            window = np.minimum(self._steps_left(index), self._window(index.shape, int(min(n_steps, self.buffer_size))))
            end = self._ahead(index, window)
        # The goals' places follow the batch's own next states, so that all are one gather.
        sources = self._goal_sources(index, window, kinds, gamma, absorbing)
        places = np.concatenate([end, *sources.values()], axis=1)
        slot = self.next_slot.take(places)
        rows, next_rows = self.rows.take(index, axis=0), self._next_rows(places, slot)
        non_float = {key: array.take(index, axis=0) for key, array in self.non_float.items()}
        next_non_float = {
            key: (
                self._next_non_float(key, places, slot)
                if key == "achieved_goal"
                else self._next_non_float(key, end, slot[:, :batch_size])
            )
            for key in self.non_float
        }
        commanded = self._value("desired_goal", rows, non_float)
        goals = self._goals(commanded, self._value("achieved_goal", next_rows, next_non_float), kinds, sources)
        slot, next_rows = slot[:, :batch_size], next_rows[:, :batch_size]
        next_non_float = {key: array[:, :batch_size] for key, array in next_non_float.items()}
        dones = np.zeros(index.shape, dtype=np.float32)
        ended = slot >= self.n_envs
        dones[ended] = self.slot_terminated[slot[ended]]

        hits = discounts = None
        if window is not None:
            discounts = np.power(gamma, window, dtype=np.float64).astype(np.float32)
            if returns:
                hits = self._returns(index, window, goals, gamma)
        elif env is not None:  # normalized, goals and achieved goals cannot be compared any more
            achieved = self._value("achieved_goal", next_rows, next_non_float)
            hits = self._same_goal(goals, achieved, index.shape).astype(np.float32)
        if "desired_goal" in self.columns:
            columns = self.columns["desired_goal"]
            rows[..., columns] = goals
            next_rows[..., columns] = goals
        else:
            non_float["desired_goal"] = next_non_float["desired_goal"] = goals
        tensor, batches = partial(self.to_torch, copy=False), []
        for i in range(n_batches):
            others, next_others = ({key: array[i] for key, array in arrays.items()} for arrays in (non_float, next_non_float))
            if env is not None:
                self._normalize(rows[i], others, env)
                self._normalize(next_rows[i], next_others, env)
            batch = GoalBatch(
                tensor(rows[i]),
                tensor(next_rows[i]),
                {key: tensor(array) for key, array in others.items()},
                {key: tensor(array) for key, array in next_others.items()},
                tensor(dones[i]),
                None if discounts is None else tensor(discounts[i]),
                None if hits is None else tensor(hits[i]),
                kinds,
                self._layout,
            )
            batches.append(batch)
        return batches

    def _goal_sources(
        self, index: np.ndarray, window: np.ndarray | None, kinds: dict[str, slice], gamma: float, absorbing: bool
    ) -> dict[str, np.ndarray]:
        """
        :param window: How many steps each of the batch's transitions looks ahead; None: one
        :return: For each kind whose goals are not among the batch's own next states or commanded goals, the transitions whose
            next states are the goals
        """
        sources = {}
        for kind, part in kinds.items():
            own = index[:, part]
            if kind == "final":
                sources[kind] = self._ahead(own, self._steps_left(own))
            elif kind == "future":
                sources[kind] = self._later(own, self._steps_left(own), gamma, absorbing)
            elif kind == "next" and window is not None:
                sources[kind] = self._later(own, window[:, part], gamma, absorbing)
            elif kind == "random" and index.shape[1] == 1:
                sources[kind] = self._draw(own.shape)
            elif kind == "random" and window is not None:
                # Not the states that are bootstrapped from: the first ones of an episode would be missing among them.
                sources[kind] = index.take(_partners(part.start, part.stop, index.shape[1]), axis=1)
        return sources

    def _returns(self, index: np.ndarray, window: np.ndarray, goals: np.ndarray, gamma: float) -> np.ndarray:
        """:return: gamma^(k-1) for the first k within the window whose state achieves the goal, else 0"""
        returns = np.zeros(index.shape, dtype=np.float32)
        searching = np.ones(index.shape, dtype=bool)
        for k in range(1, int(window.max()) + 1):
            searching &= window >= k
            places = searching.nonzero()
            if not len(places[0]):
                break
            achieved = self._reached_goals(self._ahead(index[places], np.full(len(places[0]), k)))
            hit = self._same_goal(goals[places], achieved, places[0].shape)
            first = tuple(axis[hit] for axis in places)
            returns[first], searching[first] = gamma ** (k - 1), False
        return returns

    @staticmethod
    def _same_goal(goals: np.ndarray, achieved: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """:return: Whether the goals are equal in all coordinates, of the given shape"""
        return (goals == achieved).reshape(*shape, -1).all(axis=-1)

    def _draw(self, shape: tuple[int, ...]) -> np.ndarray:
        """:return: Stored transitions, each as likely; four times as fast as ``randint``"""
        return (np.random.random_sample(shape) * (self.size() * self.n_envs)).astype(np.int64)

    def _goals(
        self, commanded: np.ndarray, achieved: np.ndarray, kinds: dict[str, slice], sources: dict[str, np.ndarray]
    ) -> np.ndarray:
        """:return: The goals of all transitions. After what the next states achieved, ``achieved`` has that of the sources"""
        goals: Any = commanded.empty_like() if isinstance(commanded, DeviceArray) else np.empty_like(commanded)
        batch_size = start = commanded.shape[1]
        for kind, part in kinds.items():
            if kind in sources:
                end = start + part.stop - part.start
                goals[:, part] = achieved[:, start:end]
                start = end
            elif kind == "original":
                goals[:, part] = commanded[:, part]
            elif kind == "next":
                goals[:, part] = achieved[:, part]
            elif batch_size == 1:
                goals[:, part] = self._commanded_goals(self._draw(goals.shape[:2]))
            else:
                partners = _partners(part.start, part.stop, batch_size)
                goals[:, part] = (achieved if kind == "random" else commanded).take(partners, axis=1)
        return goals

    def _steps_left(self, index: np.ndarray) -> np.ndarray:
        """:return: For each transition the recorded steps to the end of its episode, its own included"""
        position = index if self.n_envs == 1 else index // self.n_envs
        last = self.episode_end.take(index)
        last[last < 0] = (self.pos - 1) % self.buffer_size
        steps = last - position + 1
        steps[steps <= 0] += self.buffer_size  # over the ring's seam
        return steps

    def _window(self, shape: tuple[int, ...], n_steps: int) -> int | np.ndarray:
        """:return: How many steps to look ahead where the episode has as many"""
        return n_steps

    def _ahead(self, index: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """:return: The transitions of the same environments whose next states are the given numbers of steps ahead"""
        ahead = index + (steps - 1) * self.n_envs
        size = self.buffer_size * self.n_envs
        return np.where(ahead >= size, ahead - size, ahead)

    def _later(self, index: np.ndarray, horizon: np.ndarray, gamma: float, absorbing: bool) -> np.ndarray:
        """:return: For each transition one whose next state is at most ``horizon`` steps ahead, by the geometric law"""
        uniform = np.random.random_sample(index.shape)
        terminated = None
        if absorbing:
            slot = self.next_slot[self._ahead(index, horizon)]
            terminated = (slot >= self.n_envs) & self.slot_terminated[slot]
        return self._ahead(index, future_offsets(horizon, gamma, uniform, terminated))

    def to_torch(self, array: np.ndarray | DeviceArray, copy: bool = True) -> th.Tensor:
        """:return: The tensor on the networks' device; without a copy three times as fast as the overridden one"""
        if isinstance(array, DeviceArray):
            return array.tensor
        if copy or self.device.type != "cpu":
            return super().to_torch(array, copy)
        return th.from_numpy(array)

    def _normalize(self, rows: np.ndarray, non_float: dict[str, np.ndarray], env: VecNormalize) -> None:
        """Normalize in place. A goal has the statistics of ``desired_goal``, as where the policy acts."""
        normalized = env.normalize_obs({**self._split(rows), **non_float})
        assert isinstance(normalized, dict)
        for key, columns in self.columns.items():
            rows[:, columns] = normalized[key].reshape(len(rows), -1)
        non_float.update({key: normalized[key] for key in non_float})


register_class("sb3_clearning.GoalReplayBuffer", GoalReplayBuffer)
