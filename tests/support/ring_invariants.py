"""What holds in a ring at any moment."""

import numpy as np

from sb3_clearning.replay.goal_buffer import GoalReplayBuffer


def check_invariants(buffer: GoalReplayBuffer) -> None:
    """What holds in a ring at any moment, computed by plain loops."""
    n, size, newest = buffer.n_envs, buffer.size(), (buffer.pos - 1) % buffer.buffer_size
    assert buffer.pos == buffer.added % buffer.buffer_size
    assert size == min(buffer.added, buffer.buffer_size)
    assert buffer.full == (buffer.added >= buffer.buffer_size)
    places = list(range(n))
    for env in range(n):
        last = -1
        for step in range(buffer.added - 1, buffer.oldest_step - 1, -1):
            position = step % buffer.buffer_size
            kept = int(buffer._kept[position * n + env])
            if kept >= n:
                last = position
                places.append(kept)
            elif kept >= 0:
                assert kept == env
                assert position == newest
            else:
                assert position != newest
            assert buffer._last[position * n + env] == last, (step, env)
        assert buffer._open[env] == (size > 0 and int(buffer._kept[newest * n + env]) == env)
    assert sorted(places + buffer._free) == list(range(len(buffer._kept_rows)))
    assert np.isfinite(buffer._rows[: size * n]).all()
