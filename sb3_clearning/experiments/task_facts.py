"""
The measurements behind the tasks' thresholds and the exploration noise: how far episodes start from their goals, what simple
behavior reaches, and how far random actions move the objects of the Sawyer tasks.

``python -m sb3_clearning.experiments task_facts`` writes results/task_facts.csv. Nothing is trained.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from stable_baselines3.common.utils import set_random_seed

import sb3_clearning.envs  # noqa: F401
from sb3_clearning.common.noise import PinkUniformActions
from sb3_clearning.experiments.tables.provenance import commit, versions
from sb3_clearning.experiments.tables.rows import write_rows
from sb3_clearning.experiments.tables.sweep import command_line

FIELDS = ("name", "task", "what", "value", "episodes", "seed", "versions", "commit")
#: Apart from training's and the evaluation's.
SEED = 3_000_000
#: From this distance on, in meters, a puck or handle counts as moved.
MOVED = 0.01

Facts = Iterator[tuple[str, str, str, str]]
Policy = Callable[[gym.Env], np.ndarray]


def distances(env: gym.Env, episodes: int, policy: Policy | None = None) -> np.ndarray:
    """:return: The distance to the goal at the episodes' end, or at their start without a policy, ``(episodes,)``"""
    found = []
    for episode in range(episodes):
        _, info = env.reset(seed=SEED + episode)
        ended = policy is None
        while not ended:
            assert policy is not None
            *_, terminated, truncated, info = env.step(policy(env))
            ended = terminated or truncated
        found.append(info["distance"])
    return np.array(found)


def sawyer(episodes: int) -> Facts:
    """:return: How many episodes of the tasks with a slide begin within a threshold"""
    for task, short, thresholds in (("SawyerWindow-v0", "window", (0.05, 0.03)), ("SawyerDrawer-v0", "drawer", (0.03,))):
        begins = distances(gym.make(task), episodes)
        for threshold in thresholds:
            share = np.mean(begins < threshold)
            name = f"{short}_{100 * threshold:02.0f}"
            yield name, task, f"episodes that begin within {threshold} of their goal", f"{share:.0%}"


def pen(episodes: int) -> Facts:
    """:return: How far the pen begins from its goal"""
    begins = distances(gym.make("AdroitPen-v0"), episodes)
    yield "pen_start", "AdroitPen-v0", "initial distance, median", f"{np.median(begins):.3f}"
    yield "pen_within", "AdroitPen-v0", "episodes that begin within 0.02 of their goal", f"{np.mean(begins < 0.02):.0%}"


def hand(episodes: int) -> Facts:
    """:return: How close simple behavior brings the hand"""
    env = gym.make("AdroitHand-v0")
    env.action_space.seed(SEED)

    def follow(env: gym.Env) -> np.ndarray:
        """The goal's joints as the set points of the position controllers."""
        task: Any = env.unwrapped
        adroit = task._adroit  # noqa: SLF001 (measures the simulator behind the task)
        wanted = task._goal_pose()[task.model.jnt_qposadr[task.model.actuator_trnid[:, 0]]]  # noqa: SLF001
        return np.clip((wanted - adroit.act_mean) / adroit.act_rng, -1.0, 1.0).astype(np.float32)

    policies: dict[str, tuple[str, Policy]] = {
        "hand_random": ("random actions", lambda env: env.action_space.sample()),
        "hand_still": ("no actions", lambda env: np.zeros(env.action_space.shape or (), np.float32)),
        "hand_follow": ("the goal's joints as set points of the position controllers", follow),
    }
    for name, (what, policy) in policies.items():
        low, middle, high = np.quantile(distances(env, episodes, policy), (0.1, 0.5, 0.9))
        value = f"{low:.1f} to {high:.1f}" if name == "hand_follow" else f"{middle:.1f}"
        kind = "1st to 9th decile" if name == "hand_follow" else "median"
        yield name, "AdroitHand-v0", f"final distance of {what}, {kind}", value


def jaco(episodes: int) -> Facts:
    """:return: How far poses are apart, and how far the hand moves within the threshold"""
    import mujoco

    env = gym.make("JacoReach-v0")
    task: Any = env.unwrapped
    arm = task._arm  # noqa: SLF001 (measures the simulator behind the task)
    generator = np.random.default_rng(SEED)
    palm = task.model.body("jaco_arm/jaco_hand/hand").id
    apart, moves = [], []
    for episode in range(episodes):
        _, info = env.reset(seed=SEED + episode)
        apart.append(info["distance"])
        other = mujoco.MjData(task.model)
        other.qpos[:] = task.data.qpos
        mujoco.mj_kinematics(task.model, other)
        before = other.xpos[palm].copy()
        direction = generator.standard_normal(len(arm))
        other.qpos[arm] += task.distance_threshold * direction / np.linalg.norm(direction)
        mujoco.mj_kinematics(task.model, other)
        moves.append(np.linalg.norm(other.xpos[palm] - before))
    yield "jaco_apart", "JacoReach-v0", "distance of two random poses, median", f"{np.median(apart):.1f}"
    what = "how far the hand moves for 0.25 radians over all joints, mean"
    yield "jaco_move", "JacoReach-v0", what, f"{100 * np.mean(moves):.0f} cm"


def contact(episodes: int) -> Facts:
    """:return: How far random actions move the object, independent ones and pink ones"""
    for task in ("SawyerPush", "SawyerWindow", "SawyerDrawer"):
        env = gym.make(f"{task}-v0")
        for noise, beta in (("independent", 0.0), ("pink", 1.0)):
            set_random_seed(SEED)
            actions = PinkUniformActions(1, 4, beta=beta)
            moves = []
            for episode in range(episodes):
                start = env.reset(seed=SEED + episode)[0]["observation"][3:]
                actions.reset()
                ended = False
                while not ended:
                    observation, _, terminated, truncated, _ = env.step(actions()[0])
                    ended = terminated or truncated
                moves.append(np.linalg.norm(observation["observation"][3:] - start))
            name = f"{task.removeprefix('Sawyer').lower()}_{noise}"
            share, mean = np.mean(np.array(moves) > MOVED), 1000 * np.mean(moves)
            what = f"episodes in which {noise} random actions move the object by over 1 cm, and the mean move"
            yield name, f"{task}-v0", what, f"{share:.0%}, {mean:.0f} mm"


#: The measurements, with their number of episodes.
PARTS: dict[Callable[[int], Facts], int] = {sawyer: 2000, pen: 2000, hand: 200, jaco: 200, contact: 200}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = command_line("task_facts", __doc__)
    options.add_argument("--quick", action="store_true", help="few episodes into task_facts_quick.csv, to see that it works")
    options.add_argument("--output", type=Path, default=Path("results"), help="where the table is written")
    chosen = options.parse_args(arguments)
    rows = []
    for part, episodes in PARTS.items():
        count = 3 if chosen.quick else episodes
        for name, task, what, value in part(count):
            print(f"{task}: {what}: {value}", flush=True)
            constants = {"episodes": count, "seed": SEED, "versions": versions(), "commit": commit()}
            rows.append({"name": name, "task": task, "what": what, "value": value, **constants})
    write_rows(chosen.output / ("task_facts_quick.csv" if chosen.quick else "task_facts.csv"), rows, FIELDS)
