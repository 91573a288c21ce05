"""
Two minutes on FetchReach-v4: ``make demo``, or ``python -m sb3_clearning.experiments demo``.

Trains CLearning, prints success rate and distances before and after, and saves the model, its learning curve and a picture of
the learned future density.
"""

from pathlib import Path

import gymnasium as gym
import numpy as np
import torch as th
from matplotlib.figure import Figure
from stable_baselines3.common.callbacks import BaseCallback

from sb3_clearning import CLearning
from sb3_clearning.common.distances import EpisodeDistances
from sb3_clearning.common.evaluation import N_ENVS_OF_TABLES, evaluate_goals
from sb3_clearning.experiments.tables.sweep import command_line

ENV_ID = "FetchReach-v4"
N_EPISODES = 20
LABELS = {"success": "success rate", "success_any_time": "success at any time", "change": "change (cm)"}


class EvaluateSometimes(BaseCallback):
    """Evaluates the policy every ``every`` steps."""

    def __init__(self, every: int):
        super().__init__()
        self.every = every
        self.curve: dict[int, dict[str, float]] = {}

    def _on_training_start(self) -> None:
        self._evaluate()

    def _on_step(self) -> bool:
        if self.num_timesteps % self.every == 0:
            self._evaluate()
        return True

    def _evaluate(self) -> None:
        self.curve[self.num_timesteps] = evaluate_goals(
            self.model, lambda: gym.make(ENV_ID), N_EPISODES, n_envs=N_ENVS_OF_TABLES
        )


def plot_curve(curve: dict[int, dict[str, float]], path: Path) -> None:
    """Draw the learning curve: an evaluation at each of some steps."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    success, distance = figure.subplots(1, 2)
    success.plot(list(curve), [row["success"] for row in curve.values()], marker="o")
    success.set(title="Success rate", xlabel="environment steps", ylim=(-0.05, 1.05))
    for name in ("initial", "final", "minimum"):
        distance.plot(list(curve), [100 * row[name] for row in curve.values()], marker="o", label=name)
    distance.set(title="Distance to the goal (cm)", xlabel="environment steps", ylim=(0, None))
    distance.legend(frameon=False)
    for axes in (success, distance):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"C-learning on {ENV_ID}: no reward was read")
    figure.savefig(path, dpi=150)


def plot_density(model: CLearning, path: Path, size: int = 101) -> None:
    """
    Where the classifier says that the hand will be: for one state and two opposite first actions, over the horizontal plane
    through the hand, and the difference that the action makes.
    """
    env = gym.make(ENV_ID)
    observation, _ = env.reset(seed=0)
    hand = observation["achieved_goal"]
    xs, ys = np.linspace(hand[0] - 0.2, hand[0] + 0.2, size), np.linspace(hand[1] - 0.2, hand[1] + 0.2, size)
    goals = np.stack([*np.meshgrid(xs, ys), np.full((size, size), hand[2])], axis=-1).reshape(-1, 3)
    visited = model.replay_buffer.observations["achieved_goal"][: model.replay_buffer.size()].reshape(-1, 3)
    near = visited[np.abs(visited[:, 2] - hand[2]) < 0.02]

    left, right = np.array([0.0, -1, 0, 0]), np.array([0.0, 1, 0, 0])
    maps = {
        "first action: y down": model.future.log_ratio(observation, left, goals),
        "first action: y up": model.future.log_ratio(observation, right, goals),
    }
    # One scale for both, so that they can be compared.
    low, high = min(values.min() for values in maps.values()), max(values.max() for values in maps.values())
    maps["difference (up - down)"] = maps["first action: y up"] - maps["first action: y down"]
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (title, values) in zip(panels, maps.items(), strict=True):
        difference = title.startswith("difference")
        limit = float(np.abs(values).max())
        image = axes.pcolormesh(
            xs, ys, values.reshape(size, size), cmap="coolwarm" if difference else "viridis",
            vmin=-limit if difference else low, vmax=limit if difference else high, shading="auto",
        )  # fmt: skip
        axes.plot(near[::10, 0], near[::10, 1], ".", color="black" if difference else "white", markersize=2, alpha=0.5)
        axes.plot(hand[0], hand[1], "o", color="black", markerfacecolor="white", label="the hand now")
        axes.set(xlabel="x (m)", aspect="equal", xlim=(xs[0], xs[-1]), ylim=(ys[0], ys[-1]))
        axes.set_title(title.replace(": ", ":\n").replace(" (", "\n("), fontsize=10)
        if axes is not panels[0]:
            figure.colorbar(
                image, ax=panels[2] if difference else panels[:2], location="bottom", aspect=15 if difference else 30
            )
    panels[0].set_ylabel("y (m)")
    figure.suptitle(
        "Where the hand will be: log p(future state | state, action) / p(state),\nwith each place as the goal", fontsize=11
    )
    figure.savefig(path, dpi=165)
    env.close()


def main(argv: list[str]) -> None:
    """Run the command."""
    parser = command_line("demo", __doc__)
    parser.add_argument("--steps", type=int, default=8000, help="environment steps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("demo"))
    options = parser.parse_args(argv)
    if options.steps < 10:
        parser.error("--steps must be at least 10")

    import gymnasium_robotics

    gym.register_envs(gymnasium_robotics)
    options.output.mkdir(parents=True, exist_ok=True)
    model = CLearning("MultiInputPolicy", ENV_ID, seed=options.seed)
    # A second thread gains little, and on a busy machine it costs a lot.
    th.set_num_threads(1)
    evaluate = EvaluateSometimes(max(options.steps // 8, 1))
    print(f"Training CLearning on {ENV_ID} for {options.steps} steps; rewards are not read.")
    model.learn(options.steps, callback=evaluate, progress_bar=True)

    before, after = evaluate.curve[0], evaluate.curve[max(evaluate.curve)]
    print(f"\n{N_EPISODES} evaluation episodes   before    after")
    for name in ("success", "success_any_time", *EpisodeDistances._fields):
        label = LABELS.get(name, f"{name} distance (cm)")
        scale = 1 if name.startswith("success") else 100
        print(f"{label:24} {scale * before[name]:8.2f} {scale * after[name]:8.2f}")

    model_path, curve_path, density_path = (options.output / name for name in ("model.zip", "curve.png", "density.png"))
    model.save(model_path)
    plot_curve(evaluate.curve, curve_path)
    plot_density(model, density_path)
    print(f"\nSaved: {model_path} (the model), {curve_path} (its learning curve), {density_path} (the learned future density)")
