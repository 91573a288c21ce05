"""
The pictures of docs/idea.md: ``python docs/pictures.py``. All are of the continuous gridworld, whose future is known exactly.

The classifier is the package's own; it learns from a walk of random moves, in some seconds.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import sb3_clearning.envs  # noqa: E402, F401  (registers the gridworld)
from sb3_clearning import FutureStateEstimator  # noqa: E402
from sb3_clearning.envs.gridworld import SIZE, all_cells, cell_of, future_distribution  # noqa: E402

GAMMA = 0.8
START = (2, 2)
NAMES = {0: "right", 1: "left"}
N_CELLS = SIZE * SIZE
# Narrow, so that the labels can be read on a phone, where a page is as wide as 380 pixels.
WIDTH, DPI = 6.0, 165


def wander(steps: int, seed: int) -> dict[str, np.ndarray]:
    """:return: What was seen and done"""
    env = gym.make("ContinuousGridworld-v0", discrete=True, max_episode_steps=100)
    env.action_space.seed(seed)
    observation, _ = env.reset(seed=seed)
    seen: dict[str, list[Any]] = {name: [] for name in ("observations", "actions", "next_observations", "truncations")}
    for _ in range(steps):
        action = env.action_space.sample()
        following, _, _, truncated, _ = env.step(action)
        for name, value in zip(seen, (observation, action, following, truncated), strict=True):
            seen[name].append(value["observation"] if isinstance(value, dict) else value)
        observation = env.reset()[0] if truncated else following
    arrays = {name: np.array(values) for name, values in seen.items()}
    return {**arrays, "terminations": np.zeros(steps, dtype=bool)}


def draw_grid(axes: Any, values: np.ndarray, title: str, limit: float | None = None, cmap: str = "viridis") -> Any:
    """
    :param values: ``(25,)``, one for each cell
    :param limit: The colors' limit; None: the largest value
    :return: The image
    """
    # The first coordinate goes to the right.
    low = -limit if limit is not None and cmap == "coolwarm" else 0 if limit is not None else None
    image = axes.imshow(values.reshape(SIZE, SIZE).T, origin="lower", cmap=cmap, vmin=low, vmax=limit)
    axes.set(title=title, xticks=[], yticks=[])
    axes.title.set_fontsize(10)
    return image


def mark(axes: Any, place: tuple[float, float], symbol: str = "o") -> None:
    """Mark a place."""
    axes.plot(*place, symbol, color="white", markeredgecolor="black", markersize=9)


def picture_of_labels(data: dict[str, np.ndarray], path: Path) -> None:
    """What the classifier is shown: a piece of the walk, its futures and random states."""
    from matplotlib.figure import Figure

    rng = np.random.default_rng(3)
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    visited = data["observations"]
    # A state in the middle of an episode, near a corner, so that its future is not everywhere.
    cells = cell_of(visited)
    starts = np.flatnonzero((np.arange(len(visited)) % 100 < 60) & (np.atleast_2d(cells) == 0).all(axis=-1))
    start = int(starts[0])
    ahead = rng.geometric(1 - GAMMA, size=400)
    end = start - start % 100 + 99
    future = visited[np.minimum(start + ahead, end)]
    walk = visited[start : min(start + 30, end)]
    for axes, goals, color, title in (
        (left, future[:40], "tab:orange", "F = 1: states of its future\n(the nearer, the more often)"),
        (right, visited[rng.integers(len(visited), size=40)], "tab:blue", "F = 0: states drawn\nfrom all that was visited"),
    ):
        axes.plot(walk[:, 0], walk[:, 1], "-", color="lightgrey", linewidth=1.5, zorder=0)
        axes.plot(goals[:, 0], goals[:, 1], ".", color=color, markersize=8, alpha=0.8)
        mark(axes, (walk[0, 0], walk[0, 1]))
        axes.set(title=title, xlim=(-0.6, SIZE - 0.4), ylim=(-0.6, SIZE - 0.4), aspect="equal", xticks=[], yticks=[])
        axes.title.set_fontsize(10)
    figure.suptitle("What the classifier is shown for one state (white)")
    figure.savefig(path, dpi=DPI)


def picture_of_horizons(path: Path) -> None:
    """The exact future for three discounts."""
    from matplotlib.figure import Figure

    policy = np.full((N_CELLS, 4), 0.25)
    figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    for axes, gamma in zip(figure.subplots(1, 3), (0.5, 0.8, 0.95), strict=True):
        future = future_distribution(policy, gamma)[START[0] * SIZE + START[1], 0]
        image = draw_grid(axes, future, f"γ = {gamma}:\n{1 / (1 - gamma):.0f} steps ahead")
        figure.colorbar(image, ax=axes, shrink=0.7)
        mark(axes, START)
    figure.suptitle("Where a random walker will be after a first move\nto the right, exactly")
    figure.savefig(path, dpi=DPI)


def picture_of_learning(data: dict[str, np.ndarray], steps: int, path: Path) -> None:
    """The classifier's answer beside the exact one."""
    from matplotlib.figure import Figure

    estimator = FutureStateEstimator(gamma=GAMMA, seed=0, hidden=(64, 64), learning_rate=1e-3)
    estimator.fit(data, policy=lambda observations: np.full((len(observations), 4), 0.25), method="td", steps=steps)
    centers = all_cells().astype(np.float32)
    visited = np.ravel_multi_index(tuple(cell_of(data["next_observations"]).T), (SIZE, SIZE))
    marginal = np.bincount(visited, minlength=N_CELLS) / len(visited)
    policy = np.full((N_CELLS, 4), 0.25)
    exact = {action: future_distribution(policy, GAMMA)[START[0] * SIZE + START[1], action] for action in NAMES}
    state = np.array(START, dtype=np.float32)
    learned = {action: marginal * np.exp(estimator.log_ratio(state, np.array(action), centers)) for action in NAMES}
    figure = Figure(figsize=(WIDTH, 4.8), layout="constrained")
    grid = figure.subplots(2, 3)
    limit = max(values.max() for values in (*exact.values(), *learned.values()))
    widest = max(float(np.abs(maps[0] - maps[1]).max()) for maps in (exact, learned))
    for row, (name, maps) in enumerate((("exact", exact), ("learned", learned))):
        for column, action in enumerate(NAMES):
            image = draw_grid(grid[row, column], maps[action], f"{name}:\nfirst move {NAMES[action]}", limit)
            mark(grid[row, column], START)
        figure.colorbar(image, ax=grid[row, 1], shrink=0.7)
        image = draw_grid(grid[row, 2], maps[0] - maps[1], f"{name}:\nright - left", widest, "coolwarm")
        figure.colorbar(image, ax=grid[row, 2], shrink=0.7)
        mark(grid[row, 2], START)
    figure.suptitle(
        f"The future of a random walker, γ = {GAMMA}: exact,\nand by a classifier that has seen {len(visited):,} moves"
    )
    figure.savefig(path, dpi=DPI)


def picture_of_n_steps(path: Path, gamma: float = 0.9, length: int = 24) -> None:
    """
    Whose future a target is made of: how much weight recorded steps have, and how much the classifier itself.

    :param length: The steps of the recorded episode
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    rows = (("one step (n = 1)", 1), ("n-step (n = 5)", 5), ("to the end of the record (n = ∞)", length))
    for axes, (title, n) in zip(figure.subplots(3, 1, sharex=True), rows, strict=True):
        ahead = np.arange(1, length + 1)
        weights = (1 - gamma) * gamma ** (ahead - 1)
        recorded = ahead <= n
        axes.bar(ahead[recorded], weights[recorded], color="tab:orange")
        axes.bar(
            ahead[~recorded], weights[~recorded], color="white", edgecolor="tab:blue", linestyle=":", label="the policy's"
        )
        beyond = gamma**length
        axes.bar(length + 2, beyond, color="white", edgecolor="tab:blue", linestyle=":")
        axes.axvline(n + 0.5, color="tab:blue")
        axes.annotate(
            f"the classifier is asked here: {gamma**n:.0%} of the future",
            (n + 0.7, 1.08 * weights[0]),
            color="tab:blue",
            ha="right" if n == length else "left",
            xytext=(-8 if n == length else 0, 0),
            textcoords="offset points",
        )
        axes.set_title(title, loc="left", fontsize=10)
        axes.set(yticks=[], xlim=(0.3, length + 3), ylim=(0, 1.35 * weights[0]))
        axes.spines[["left", "top", "right"]].set_visible(False)
    axes.set_xticks([1, 5, 10, 15, 20, length + 2], ["1", "5", "10", "15", "20", "later"])
    axes.set_xlabel("steps ahead")
    figure.suptitle(f"What a target is made of (γ = {gamma}):\nrecorded states, then the classifier's own answer")
    figure.savefig(path, dpi=DPI)


def main() -> None:
    """Draw all pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "images", help="the folder to write to")
    parser.add_argument("--moves", type=int, default=10_000, help="moves of the random walk")
    parser.add_argument("--steps", type=int, default=3_000, help="batches of the classifier's training")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    data = wander(options.moves, seed=0)
    picture_of_labels(data, options.output / "idea_labels.png")
    picture_of_horizons(options.output / "idea_horizons.png")
    picture_of_learning(data, options.steps, options.output / "idea_learned.png")
    picture_of_n_steps(options.output / "idea_n_steps.png")
    print(f"Wrote idea_labels.png, idea_horizons.png, idea_learned.png and idea_n_steps.png to {options.output}")


if __name__ == "__main__":
    main()
