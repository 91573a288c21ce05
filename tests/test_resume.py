from pathlib import Path
from goal_envs import PointEnv
from small_models import same, small_model, weights
from sb3_clearning import CLearning, ResumableCheckpoint


class Stop(Exception):
    pass


def stop_at(step):
    def cb(l, g):
        if l["self"].num_timesteps == step:
            raise Stop
        return True

    return cb


def test_it(tmp_path):
    import pytest

    a = small_model(PointEnv(length=7)).learn(100, callback=ResumableCheckpoint(tmp_path / "a", every=20))
    for stop in (5, 33, 61, 99):
        f = tmp_path / str(stop)
        from stable_baselines3.common.callbacks import CallbackList, ConvertCallback

        with pytest.raises(Stop):
            small_model(PointEnv(length=7)).learn(
                100, callback=CallbackList([ResumableCheckpoint(f, every=20), ConvertCallback(stop_at(stop))])
            )
        b = CLearning.resume(f, PointEnv(length=7))
        print(stop, b.num_timesteps)
        b.learn(100, callback=ResumableCheckpoint(f, every=20))
        assert same(weights(a), weights(b))
        assert b.num_timesteps == 100
    plain = small_model(PointEnv(length=7)).learn(100)
    assert not same(weights(a), weights(plain))
