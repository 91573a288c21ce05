"""What holds in a ring at any moment."""

import numpy as np

from sb3_clearning.replay.goal_buffer import GoalReplayBuffer


def check_invariants(buffer: GoalReplayBuffer) -> None:
    """What holds in a ring at any moment, computed by plain loops."""
    n, size, newest = buffer.n_envs, buffer.size(), (buffer.pos - 1) % buffer.buffer_size
    assert buffer.pos == buffer.total_added % buffer.buffer_size
    assert size == min(buffer.total_added, buffer.buffer_size)
    assert buffer.full == (buffer.total_added >= buffer.buffer_size)
    slots = list(range(n))
    for env in range(n):
        last = -1
        for step in range(buffer.total_added - 1, buffer.oldest_step - 1, -1):
            position = step % buffer.buffer_size
            slot = int(buffer.next_slot[position * n + env])
            if slot >= n:
                last = position
                slots.append(slot)
            elif slot >= 0:
                assert slot == env
                assert position == newest
            else:
                assert position != newest
            assert buffer.episode_end[position * n + env] == last, (step, env)
        assert buffer.in_progress[env] == (size > 0 and int(buffer.next_slot[newest * n + env]) == env)
    assert sorted(slots + buffer.free_slots) == list(range(len(buffer.slot_rows)))
    assert np.isfinite(buffer.rows[: size * n]).all()
