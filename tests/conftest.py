"""For all tests."""

import os

# Read when MuJoCo is first imported, so set before any test imports a simulator.
os.environ.setdefault("MUJOCO_GL", "egl")
