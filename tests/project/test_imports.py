"""The core needs torch, numpy, gymnasium and Stable-Baselines3 only."""

import subprocess
import sys

import pytest

EXTRAS = ("mujoco", "metaworld", "dm_control", "gymnasium_robotics", "shimmy", "rl_zoo3", "optuna", "minari", "matplotlib")


@pytest.mark.parametrize("module", ["sb3_clearning", "sb3_clearning.envs", "sb3_clearning.goal_td3.goal_td3"])
def test_importing_it_works_without_the_extras(module: str) -> None:
    # SB3 itself imports matplotlib where it is installed, so that an extra that is missing is what counts.
    code = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import {module}
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
