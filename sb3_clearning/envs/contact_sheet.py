"""
One image of all tasks with their goals marked: `python -m sb3_clearning.envs.contact_sheet docs/tasks.png`.

Each task has two frames side by side: the first of an episode, and one after some random steps.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import gymnasium as gym
import numpy as np

from sb3_clearning.envs import TASK_IDS
from sb3_clearning.envs.base import missing_simulator

_COLUMNS = 4
_FRAME = 240
_CAPTION = 22


def frames_of(task_id: str, seed: int, steps: int) -> list[np.ndarray]:
    """:return: Two RGB images of an episode, at its start and after some random steps"""
    env = gym.make(task_id, render_mode="rgb_array")
    env.action_space.seed(seed)
    env.reset(seed=seed)
    pictures = [env.render()]
    for _ in range(steps):
        env.step(env.action_space.sample())
    pictures.append(env.render())
    env.close()
    return [np.asarray(picture) for picture in pictures]


def contact_sheet(path: Path, seed: int = 0, steps: int = 20) -> None:
    """Draw all tasks into one PNG."""
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise missing_simulator("The contact sheet", error) from error

    tasks_in_row = _COLUMNS // 2
    rows = -(-len(TASK_IDS) // tasks_in_row)
    sheet = Image.new("RGB", (_COLUMNS * _FRAME, rows * (_FRAME + _CAPTION)), "white")
    draw = ImageDraw.Draw(sheet)
    for index, task_id in enumerate(TASK_IDS):
        left, top = index % tasks_in_row * 2 * _FRAME, index // tasks_in_row * (_FRAME + _CAPTION)
        draw.text((left + 6, top + 5), f"{task_id}: first observation, and {steps} random steps later", fill="black")
        for column, frame in enumerate(frames_of(task_id, seed, steps)):
            picture = Image.fromarray(frame).resize((_FRAME, _FRAME), Image.Resampling.LANCZOS)
            sheet.paste(picture, (left + column * _FRAME, top + _CAPTION))
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with the given arguments (None: those of the command line)."""
    parser = argparse.ArgumentParser(description="Draw all tasks, with their goals marked, into one PNG.")
    parser.add_argument("path", type=Path, help="the PNG to write")
    parser.add_argument("--seed", type=int, default=0, help="of the resets and of the actions")
    parser.add_argument("--steps", type=int, default=20, help="random steps between the two pictures of a task")
    chosen = parser.parse_args(arguments)
    # Without a screen MuJoCo needs this before it is imported, which happens in gym.make.
    if "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")
    contact_sheet(chosen.path, chosen.seed, chosen.steps)


if __name__ == "__main__":
    main()
