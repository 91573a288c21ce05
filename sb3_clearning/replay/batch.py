"""GoalBatch: transitions with their goals, the input of an update."""

from functools import cached_property

import torch as th


class GoalBatch:
    """
    Transitions with their goals, without rewards. Dicts of observations are made on first use, as views.

    :param rows: The float keys of the observations in the space's order, then the actions: ``(batch, features + action_dim)``
    :param next_rows: The float keys of the next observations, or with n-step sampling of those m steps ahead:
        ``(batch, features)``
    :param non_float: The other keys of the observations
    :param next_non_float: The other keys of the next observations
    :param dones: ``(batch,)``, 1 where the environment truly terminated in the next observation (not where it was truncated)
    :param discounts: ``(batch,)``, gamma^m of the next observations m steps ahead; None: gamma, they are one step ahead
    :param returns: ``(batch,)``, see :attr:`returns`; None: computed on first use, from the rows of one step
    :param kinds: For each kind of goal its slice of the batch
    :param layout: For each key of the space, in its order, its columns and its shape; no columns for those of ``non_float``
    """

    def __init__(
        self,
        rows: th.Tensor,
        next_rows: th.Tensor,
        non_float: dict[str, th.Tensor],
        next_non_float: dict[str, th.Tensor],
        dones: th.Tensor,
        discounts: th.Tensor | None,
        returns: th.Tensor | None,
        kinds: dict[str, slice],
        layout: dict[str, tuple[slice | None, tuple[int, ...]]],
    ):
        self._rows, self._next_rows, self._layout = rows, next_rows, layout
        self._non_float, self._next_non_float = non_float, next_non_float
        self.dones, self.discounts, self._returns, self.kinds = dones, discounts, returns, kinds

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def inputs(self) -> th.Tensor | None:
        """:return: Observations and actions as one matrix ``(batch, features + action_dim)``; None with non-float keys"""
        return None if self._non_float else self._rows

    @property
    def next_inputs(self) -> th.Tensor | None:
        """:return: Next observations as one matrix ``(batch, features)``; None with non-float keys"""
        return None if self._non_float else self._next_rows

    @cached_property
    def observations(self) -> dict[str, th.Tensor]:
        """:return: The states; ``desired_goal`` is the sampled goal"""
        return self._as_dict(self._rows, self._non_float)

    @cached_property
    def next_observations(self) -> dict[str, th.Tensor]:
        """:return: The next states, with the same goals"""
        return self._as_dict(self._next_rows, self._next_non_float)

    @cached_property
    def returns(self) -> th.Tensor:
        """
        :return: Q-learning's return without a reward function, ``(batch,)``: gamma^(k-1) where the goal is first achieved k
            steps ahead, with k at most m, and 0 where it is not achieved
        """
        if self._returns is not None:
            return self._returns
        if self.discounts is not None:
            raise ValueError("The batch was sampled without returns: pass `returns=True` to `sample_goals`.")
        same = self.next_observations["desired_goal"] == self.next_observations["achieved_goal"]
        return same.flatten(1).all(dim=1).to(self.dones.dtype)

    @property
    def actions(self) -> th.Tensor:
        """:return: ``(batch, action_dim)``, within [-1, 1]"""
        return self._rows[:, self._next_rows.shape[1] :]

    def _as_dict(self, rows: th.Tensor, non_float: dict[str, th.Tensor]) -> dict[str, th.Tensor]:
        return {
            key: non_float[key] if columns is None else rows[:, columns].reshape(-1, *shape)
            for key, (columns, shape) in self._layout.items()
        }
