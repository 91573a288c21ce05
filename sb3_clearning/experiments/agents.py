"""
The best finished run of each task of the suite as an agent in rl-zoo3's layout, with a short film.

``python -m sb3_clearning.experiments agents --suite results/suite`` writes ``trained_agents/clearning/TASK_1`` (so that
``python -m rl_zoo3.enjoy --algo clearning --env TASK -f trained_agents`` finds it), ``docs/films/TASK.gif`` and a row of
``results/agents.csv``. An agent that rl-zoo3 has trained is filmed with ``--agents logs`` and without ``--suite``.
Rendering without a screen needs ``MUJOCO_GL=egl``.
"""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import yaml

from sb3_clearning import CLearning
from sb3_clearning.checks import UsageError
from sb3_clearning.common.evaluation import EVALUATION_SEED
from sb3_clearning.experiments.suite.config import make_env
from sb3_clearning.experiments.suite.run_folder import CHECKPOINTS, finished_runs, read_description, rows_of
from sb3_clearning.experiments.tables.rows import replace_row
from sb3_clearning.experiments.tables.sweep import command_line

ALGORITHM = "clearning"
#: A film is this wide and high, and has at most this many pictures of each episode.
SIZE, PICTURES = 200, 40
#: The columns of the table of agents, all from the last row of the agent's run.
FIELDS = ("task", "seed", "step", "success", "success_any_time", "initial", "final", "minimum", "versions", "commit")


def best_runs(suite: Path, tasks: Sequence[str] | None = None) -> dict[str, Path]:
    """:return: For each task that is an environment's id, the folder of its best finished run by success, then by distance"""
    found: dict[str, tuple[tuple[float, float], Path]] = {}
    for folder, run, rows in finished_runs(suite, f"*/{ALGORITHM}/seed_*"):
        if tasks and run.task not in tasks:
            continue
        if run.env != run.task:  # rl-zoo3 and the film look for the environment by the folder's name
            print(f"{folder} is skipped: the task {run.task} is a variant of {run.env}, not the id of an environment")
            continue
        score = (float(rows[-1]["success"]), -float(rows[-1]["final"]))
        if run.task not in found or score > found[run.task][0]:
            found[run.task] = (score, folder)
    return {task: folder for task, (_, folder) in found.items()}


def save_agent(run_folder: Path, agents: Path) -> Path:
    """:return: The agent's folder, in rl-zoo3's layout. It is written atomically"""
    run = read_description(run_folder)
    assert run is not None
    row = rows_of(run_folder)[-1]
    model = CLearning.resume(run_folder / CHECKPOINTS, make_env(run), device="cpu")
    # Not needed for acting, and most of the file. Further training starts with new moments and with targets equal to their
    # networks; they share memory here, so that they are written once.
    for optimizer in (model.actor.optimizer, model.critic.optimizer):
        optimizer.state.clear()
    for network, follower in ((model.actor, model.actor_target), (model.critic, model.critic_target)):
        for parameter, followed in zip(network.parameters(), follower.parameters(), strict=True):
            followed.data = parameter.data
    target = agents / ALGORITHM / f"{run.task}_1"
    half = target.with_name(f".{target.name}")
    shutil.rmtree(half, ignore_errors=True)
    (half / run.task).mkdir(parents=True)
    model.save(half / f"{run.task}.zip")
    config = {"policy": "MultiInputPolicy", "n_timesteps": run.steps, "env_kwargs": run.env_kwargs, **run.arguments}
    about = [
        f"# The best of the finished runs by success rate: seed {run.seed}, success {float(row['success']):.2f}, "
        f"final distance {float(row['final']):.4f} over {run.episodes} evaluation episodes.",
        f"# python -m sb3_clearning.experiments suite --tasks {run.task} --methods {run.method} --seeds {run.seed} "
        f"--steps {run.steps}",
        f"# commit {row['commit']}; {row['versions']}",
    ]
    (half / run.task / "config.yml").write_text("\n".join([*about, yaml.safe_dump(config, sort_keys=True)]))
    shutil.rmtree(target, ignore_errors=True)
    half.rename(target)
    return target


def env_kwargs_of(folder: Path, task: str) -> dict[str, Any]:
    """:return: The arguments of the agent's environment"""
    kwargs: dict[str, Any] = {}
    # rl-zoo3's own folders have Python objects in these files, which are not read here.
    for name in ("config.yml", "args.yml"):
        path = folder / task / name
        try:
            content = yaml.safe_load(path.read_text()) if path.exists() else None
        except yaml.YAMLError:
            continue
        if isinstance(content, dict) and content.get("env_kwargs"):
            kwargs.update(content["env_kwargs"])
    return kwargs


def pictures_of(model: CLearning, env: gym.Env, seeds: Iterable[int]) -> list[np.ndarray]:
    """:return: Pictures of the episodes, ``(height, width, 3)`` each; the last of an episode is shown for a while"""
    limit = env.spec.max_episode_steps if env.spec else None
    # Drawing is the dear part: of a long episode only what is shown is drawn.
    shown = None if limit is None else set(np.linspace(0, limit, min(PICTURES, limit + 1)).astype(int))
    pictures: list[np.ndarray] = []
    for seed in seeds:
        observation, _ = env.reset(seed=seed)
        episode, over, step = [env.render()], False, 0
        while not over:
            action, _ = model.predict(observation, deterministic=True)
            observation, _, terminated, truncated, _ = env.step(action)
            over, step = terminated or truncated, step + 1
            if over or shown is None or step in shown:
                episode.append(env.render())
        pictures += [np.asarray(picture) for picture in [*episode, *[episode[-1]] * 5]]
    return pictures


def write_film(pictures: list[np.ndarray], path: Path) -> None:
    """:param pictures: ``(height, width, 3)`` each"""
    from PIL import Image

    # An octree keeps rare colors, as the goal's magenta; the median cut does not, and its files are larger.
    octree = Image.Quantize.FASTOCTREE
    frames = [Image.fromarray(picture).resize((SIZE, SIZE)).quantize(128, method=octree) for picture in pictures]
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}")
    frames[0].save(half, format="GIF", save_all=True, append_images=frames[1:], duration=70, loop=0, optimize=True)
    half.replace(path)


def film(folder: Path, films: Path, episodes: int) -> Path:
    """:return: The film of an agent in a folder ``TASK_1``, in rl-zoo3's layout"""
    import sb3_clearning.envs  # noqa: F401 (registers the paper's tasks)

    task = folder.name.rpartition("_")[0]
    model = CLearning.load(folder / f"{task}.zip", device="cpu")
    env = gym.make(task, render_mode="rgb_array", **env_kwargs_of(folder, task))
    write_film(pictures_of(model, env, range(EVALUATION_SEED, EVALUATION_SEED + episodes)), films / f"{task}.gif")
    env.close()
    return films / f"{task}.gif"


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = command_line("agents", __doc__)
    parser.add_argument("--suite", type=Path, help="the suite's output folder; None: only films, of the agents that are there")
    parser.add_argument(
        "--agents", type=Path, default=Path("trained_agents"), help="the folder of agents, in rl-zoo3's layout"
    )
    parser.add_argument("--films", type=Path, default=Path("docs/films"), help="the folder of films")
    parser.add_argument("--table", type=Path, default=Path("results/agents.csv"), help="the table of agents")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="only these tasks")
    parser.add_argument("--episodes", type=int, default=2, help="episodes of a film; 0: no films")
    options = parser.parse_args(argv)
    if options.suite is not None:
        runs = best_runs(options.suite, options.tasks)
        if not runs:
            raise UsageError(
                f"{options.suite} has no finished run of {ALGORITHM}: `python -m sb3_clearning.experiments suite` makes them."
            )
        for run_folder in runs.values():
            saved = save_agent(run_folder, options.agents)
            print(f"{saved} from {run_folder}")
            row = rows_of(run_folder)[-1]
            replace_row(options.table, {name: row.get(name, "") for name in FIELDS}, FIELDS)
    folders = [path for path in sorted((options.agents / ALGORITHM).glob("*_*")) if path.is_dir()]
    wanted = [path for path in folders if not options.tasks or path.name.rpartition("_")[0] in options.tasks]
    if not wanted:
        raise UsageError(
            f"There are no agents in {options.agents / ALGORITHM}: give --suite, or --agents with those of rl-zoo3."
        )
    if options.episodes:
        for folder in wanted:
            path = film(folder, options.films, options.episodes)
            print(f"{path}, {path.stat().st_size / 1e6:.2f} MB")
