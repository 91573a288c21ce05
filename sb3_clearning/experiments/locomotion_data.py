"""
Data for the locomotion experiments: trains a PPO agent on each task (on a CPU it learns a gait sooner than SAC) and collects
its experience.

``python -m sb3_clearning.experiments locomotion_data`` writes data/locomotion/TASK.npz: states with the global position
(which the agent does not see), actions and the episodes' ends; and statistics of the data to results/locomotion_data.csv.
Existing data is kept, and an interrupted training resumes from its last checkpoint. Data of other settings is an error. With
``--quick`` all names end in ``_quick``.
"""

from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_clearning.experiments.tables.provenance import commit, versions
from sb3_clearning.experiments.tables.rows import replace_row
from sb3_clearning.experiments.tables.sweep import RESULTS, command_line

DATA = Path("data/locomotion")
N_ENVS = 8
FIELDS = ("task", "seed", "agent_steps", "transitions", "episodes", "mean_length", "mean_return", "versions", "commit")


class Locomotion(NamedTuple):
    """
    A locomotion task.

    :param n_position: How many of the state's first numbers are the global position, which the agent does not see
    :param steps: Training steps after which the agent really moves
    :param log_std: The logarithm of the first standard deviation of the agent's actions. With 1, Ant's actions cost more
        (2 a step) than being healthy earns (1), and it does not walk after 400 000 steps; with less it does
    """

    env_id: str
    n_position: int
    env_kwargs: dict[str, Any]
    steps: int
    log_std: float = 0.0


TASKS = {
    "hopper": Locomotion("Hopper-v5", 1, {}, 500_000),
    "walker2d": Locomotion("Walker2d-v5", 1, {}, 300_000),
    "ant": Locomotion("Ant-v5", 2, {"include_cfrc_ext_in_observation": False}, 500_000, -1.5),
    "halfcheetah": Locomotion("HalfCheetah-v5", 1, {}, 200_000),
}


def make_env(task: Locomotion, **kwargs: Any) -> gym.Env:
    """:return: The environment, whose states begin with the global position"""
    return gym.make(task.env_id, exclude_current_positions_from_observation=False, **task.env_kwargs, **kwargs)


class Agent(NamedTuple):
    """A trained agent. The model acts on observations without the global position, standardized by the scaling."""

    model: PPO
    scaling: VecNormalize

    def act(self, observations: np.ndarray) -> np.ndarray:
        """:return: Actions ``(n, action_dim)`` of the policy for observations ``(n, dim)`` without the global position"""
        seen = self.scaling.normalize_obs(observations)
        assert isinstance(seen, np.ndarray)
        return self.model.predict(seen.astype(np.float32), deterministic=False)[0]


class Checkpoints(BaseCallback):
    """
    Saves the agent between two rollouts, in a folder that appears whole.

    :param every: Steps between two checkpoints
    """

    def __init__(self, directory: Path, every: int = 50_000):
        super().__init__()
        self.directory, self.every, self._saved = directory, every, 0

    def _init_callback(self) -> None:
        self._saved = self.model.num_timesteps

    def _on_rollout_start(self) -> None:
        if self.num_timesteps - self._saved >= self.every:
            self._save()

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self._save()

    def _save(self) -> None:
        self._saved = self.num_timesteps
        scaling = self.model.get_vec_normalize_env()
        assert scaling is not None
        half = self.directory / "half"
        half.mkdir(parents=True, exist_ok=True)
        self.model.save(half / "model.zip")
        scaling.save(str(half / "scaling.pkl"))
        half.rename(self.directory / str(self.num_timesteps))


def _checkpoints(directory: Path) -> list[Path]:
    """:return: The folders of the saved agents, the last one last"""
    return sorted((path for path in directory.glob("*") if path.name.isdigit()), key=lambda path: int(path.name))


def train_agent(task: Locomotion, steps: int, seed: int, directory: Path) -> Agent:
    """
    PPO with eight environments in step; observations and rewards are standardized, the learning rate falls to zero.

    :param directory: Where checkpoints are; training resumes from the last one
    :return: A trained agent that does not see the global position
    """
    envs = make_vec_env(task.env_id, n_envs=N_ENVS, seed=seed, env_kwargs=task.env_kwargs)
    found = _checkpoints(directory)
    if found:
        scaling = VecNormalize.load(str(found[-1] / "scaling.pkl"), envs)
        model = PPO.load(found[-1] / "model.zip", env=scaling, device="cpu")
        print(f"resuming from {found[-1]}", flush=True)
    else:
        scaling = VecNormalize(envs, gamma=0.99)
        model = PPO("MlpPolicy", scaling, n_steps=256, batch_size=128, n_epochs=10, learning_rate=_falling_rate, seed=seed,
                    policy_kwargs={"log_std_init": task.log_std}, device="cpu")  # fmt: skip
    if model.num_timesteps < steps:
        model.learn(steps - model.num_timesteps, callback=Checkpoints(directory), reset_num_timesteps=False)
    envs.close()
    scaling.training = False
    return Agent(model, scaling)


def _falling_rate(remaining: float) -> float:
    return 3e-4 * remaining


def collect(task: Locomotion, agent: Agent, n_transitions: int, seed: int, n_envs: int = N_ENVS) -> dict[str, np.ndarray]:
    """
    The agent's experience with actions drawn from its policy, whole episodes and those that were in progress at the end.

    :param n_transitions: Number of transitions, a multiple of ``n_envs``
    :return: ``observations``, ``actions``, ``next_observations``, ``terminations``, ``truncations``, ``rewards``
    """
    agent.model.set_random_seed(seed)
    envs = DummyVecEnv([lambda: make_env(task) for _ in range(n_envs)])
    envs.seed(seed)
    states = envs.reset()
    assert isinstance(states, np.ndarray)
    columns: dict[str, list[np.ndarray]] = {}
    for _ in range(n_transitions // n_envs):
        actions = agent.act(states[:, task.n_position :])
        next_states, rewards, dones, infos = envs.step(actions)
        assert isinstance(next_states, np.ndarray)
        final = next_states.copy()
        for env in np.flatnonzero(dones):
            final[env] = infos[env]["terminal_observation"]
        truncated = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        step = (states, actions, final, dones & ~truncated, truncated, rewards)
        names = ("observations", "actions", "next_observations", "terminations", "truncations", "rewards")
        for name, values in zip(names, step, strict=True):
            columns.setdefault(name, []).append(np.asarray(values))
        states = next_states
    envs.close()
    # (steps, envs, …) to one environment after the other; the last step of each is cut off.
    result = {name: np.swapaxes(np.stack(values), 0, 1) for name, values in columns.items()}
    result["truncations"][:, -1] |= ~result["terminations"][:, -1]
    flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in result.items()}
    return {name: values.astype(np.float32) if values.dtype == np.float64 else values for name, values in flat.items()}


def describe(name: str, path: Path) -> dict[str, Any]:
    """:return: A row of the table: the agent's training, the data's size, and its episodes' mean length and return"""
    data = np.load(path)
    episodes = max(int((data["terminations"] | data["truncations"]).sum()), 1)
    agent = PPO.load(_checkpoints(_agent_folder(path))[-1] / "model.zip", device="cpu")
    return {
        "task": name,
        "seed": agent.seed,
        "agent_steps": agent.num_timesteps,
        "transitions": len(data["actions"]),
        "episodes": episodes,
        "mean_length": round(len(data["actions"]) / episodes, 1),
        "mean_return": round(float(data["rewards"].sum()) / episodes, 1),
        "versions": versions(),
        "commit": commit(),
    }


def _agent_folder(path: Path) -> Path:
    return path.with_name(f"{path.stem}_agent")


def other_settings(path: Path, seed: int, steps: int, transitions: int) -> list[str]:
    """:return: The settings in which existing data, or its agent, differs"""
    found: dict[str, tuple[int | None, int]] = {}
    agents = _checkpoints(_agent_folder(path))
    if agents:
        agent = PPO.load(agents[-1] / "model.zip", device="cpu")
        # The planned steps, at which the learning rate reaches zero.
        planned = agent._total_timesteps  # noqa: SLF001 (SB3 has no public name)
        found = {"--seed": (agent.seed, seed), "--steps": (planned, steps)}
    if path.exists():
        found["--transitions"] = len(np.load(path)["actions"]), transitions - transitions % N_ENVS
    return [f"{option} {there}, not {wanted}" for option, (there, wanted) in found.items() if there != wanted]


def data_file(name: str, folder: Path, quick: bool = False) -> Path:
    """:return: The task's data file; that of ``--quick`` has another name"""
    return folder / f"{name}{'_quick' if quick else ''}.npz"


def data_to_read(name: str, folder: Path, quick: bool = False) -> Path:
    """:return: The task's data file; with ``quick``, that of ``--quick`` if there is no other"""
    path = data_file(name, folder)
    return data_file(name, folder, quick=True) if quick and not path.exists() else path


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = command_line("locomotion_data", __doc__)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--steps", type=int, help="the agent's training steps, instead of the task's own number")
    parser.add_argument("--transitions", type=int, default=100_000, help="transitions to collect")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=DATA, help="where the data and the agents are written")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the table of what the data is like is written")
    parser.add_argument("--quick", action="store_true", help="a barely trained agent and few transitions")
    options = parser.parse_args(argv)
    if options.quick:
        options.steps, options.transitions = 4096, 8000
    th.set_num_threads(1)
    options.output.mkdir(parents=True, exist_ok=True)
    paths = {name: data_file(name, options.output, options.quick) for name in options.tasks}
    for name, path in paths.items():  # before anything is trained
        others = other_settings(path, options.seed, options.steps or TASKS[name].steps, options.transitions)
        if others:
            parser.error(f"{path} or its agent was made with {'; '.join(others)}: use the same, or another --output")
    for name, path in paths.items():
        if path.exists():
            print(f"{path} already exists")
        else:
            task = TASKS[name]
            agent = train_agent(task, options.steps or task.steps, options.seed, _agent_folder(path))
            data = collect(task, agent, options.transitions, options.seed + 1000)
            unfinished = path.with_suffix(".part.npz")
            np.savez_compressed(unfinished, **data)  # type: ignore[arg-type]
            unfinished.rename(path)  # never a half-written dataset
        row = describe(name, path)
        print(", ".join(f"{key} {row[key]}" for key in FIELDS[:-2]), flush=True)
        table = options.results / ("locomotion_data_quick.csv" if options.quick else "locomotion_data.csv")
        replace_row(table, row, FIELDS)
