"""The layout of checkpoints, which earlier and later versions read: names are never changed, whatever the code calls them."""

import os
import signal
from pathlib import Path

import pytest
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_clearning.files.array_file import read_arrays
from tests.support.checkpointed_runs import StopAt, learn, make_env

CONTENT = (
    "action_space algorithm arguments buffer counters device groups key logs n_envs noise not_held number observation_space "
    "online random regular_at seed versions"
)
PARTS = {
    "buffer": "action_space added buffer_size n_envs observation_space oldest segments",
    "counters": "_call_started_at _episode_num _n_updates _total_timesteps num_timesteps",
    "logs": "distances episodes metrics successes",
    "noise": "action warmup",
    "random": "action_space numpy python",
}
ARRAYS = (
    "buffer/length buffer/newest buffer/open distances/running distances/steps last_obs/achieved_goal last_obs/desired_goal "
    "last_obs/observation last_original_obs/achieved_goal last_original_obs/desired_goal last_original_obs/observation "
    "{noise} normalize/obs/achieved_goal/count normalize/obs/achieved_goal/mean "
    "normalize/obs/achieved_goal/var normalize/obs/desired_goal/count normalize/obs/desired_goal/mean "
    "normalize/obs/desired_goal/var normalize/obs/observation/count normalize/obs/observation/mean "
    "normalize/obs/observation/var normalize/returns normalize/reward/count normalize/reward/mean normalize/reward/var "
    "random.numpy random.python random.torch replay"
)
WARMUP = {1: [{"class": "PinkActionNoise", "_sequence": None, "_step": 0}], 2: [{"class": "BatchedPinkNoise"}]}
NOISE = {
    1: "noise/action/0/_sequence",
    2: "noise/action/0/fresh noise/action/0/state noise/warmup/0/fresh noise/warmup/0/state",
}


@pytest.mark.parametrize("n_envs", [1, 2])
def test_the_names_in_a_checkpoint(tmp_path: Path, n_envs: int) -> None:
    env = VecNormalize(DummyVecEnv([make_env] * n_envs))
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit):
            learn(tmp_path, StopAt(58, lambda: os.kill(os.getpid(), signal.SIGTERM)), env=env)
    finally:
        signal.signal(signal.SIGTERM, before)
    content, arrays = read_arrays(sorted(tmp_path.glob("checkpoint-*"))[-1], "checkpoint")
    assert sorted(content) == CONTENT.split()
    for part, names in PARTS.items():
        assert sorted(content[part]) == names.split(), part
    assert sorted(content["buffer"]["segments"][0]) == ["end", "file", "first", "sha256"]
    assert content["noise"]["warmup"] == WARMUP[n_envs]
    owners = ("policy/", "actor.optimizer/", "critic.optimizer/", "random.cuda.")
    assert sorted(name for name in arrays if not name.startswith(owners)) == ARRAYS.format(noise=NOISE[n_envs]).split()
    content, arrays = read_arrays(sorted(tmp_path.glob("buffer-*"))[-1], "segment")
    assert sorted(content) == ["end", "first"]
    assert sorted(arrays) == ["ends", "final", "rows"]
