"""The prediction experiments: their measures against independent computations, and that sweeps resume."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize

from sb3_clearning.envs.gridworld import MOVES, future_distribution
from sb3_clearning.experiments import __main__ as command_line
from sb3_clearning.experiments import analytic_q, gridworld, locomotion, locomotion_data, paper, relabel_ratio, visions
from sb3_clearning.experiments.gridworld_data import cell_number, errors, fit_seeds, make_seed, training_data
from sb3_clearning.experiments.locomotion import load, split
from sb3_clearning.experiments.tables.rows import read_rows
from sb3_clearning.experiments.tables.statistics import half_width, paired_interval
from sb3_clearning.experiments.tables.sweep import sweep
from sb3_clearning.prediction.training import TrainingSettings
from sb3_clearning.replay.datasets import read_dataset


def test_errors_are_zero_for_the_truth_and_the_plain_formula_otherwise() -> None:
    policy = np.random.default_rng(0).dirichlet(np.ones(4), size=25)
    truth = future_distribution(policy, 0.9)
    with np.errstate(divide="ignore"):
        exact = errors(np.log(truth), truth)
    assert abs(exact.kl) < 1e-12
    assert abs(exact.total - 1) < 1e-12
    guess = np.random.default_rng(1).random((25, 4, 25)) + 0.1
    plain = np.mean([
        sum(p * np.log(p / q) for p, q in zip(truth[s, a], guess[s, a] / guess[s, a].sum(), strict=True) if p > 0)
        for s in range(25)
        for a in range(4)
    ])  # fmt: skip
    found = errors(np.log(guess), truth)
    assert np.isclose(found.kl, plain)
    assert np.isclose(found.total, guess.sum(axis=-1).mean())


def test_the_data_follows_the_policy_and_on_and_off_policy_share_it() -> None:
    on, off = make_seed(3, False), make_seed(3, True)
    assert np.array_equal(on.observations, off.observations)
    assert not np.allclose(on.evaluated, off.evaluated)
    cells = cell_number(on.observations)
    often = np.argmax(np.bincount(cells))
    frequency = np.bincount(on.actions[cells == often], minlength=4) / (cells == often).sum()
    assert np.abs(frequency - on.evaluated[often]).max() < 0.06
    # The next row continues where the last one led, except at the ends.
    inside = ~on.ends[:-1]
    assert np.array_equal(on.next_observations[:-1][inside], on.observations[1:][inside])
    even = training_data(on, uniform_goals=1.0).random_goals
    assert even is not None
    assert np.abs(np.bincount(cell_number(even), minlength=25) / len(even) - 1 / 25).max() < 0.01


def test_c_learning_beats_uniform_predictions_on_the_gridworld() -> None:
    seeds = [make_seed(seed, False, n_trajectories=50) for seed in range(2)]
    settings = TrainingSettings(method="mc", gamma=0.9, steps=250, hidden=(32,), learning_rate=1e-2)
    logits = fit_seeds(seeds, settings)
    for seed, found in zip(seeds, logits, strict=True):
        truth = future_distribution(seed.evaluated, 0.9)
        uniform = errors(np.zeros((25, 4, 25)), truth).kl
        assert errors(found + np.log(seed.marginal()), truth).kl < uniform / 2


def test_the_closed_forms_are_what_q_learning_learns() -> None:
    ratios = [analytic_q.Ratio(0.5, 0.9), analytic_q.Ratio(0.8, 0.5)]
    second = analytic_q.tabular_q(analytic_q.example_2(), ratios, steps=6000, seeds=20).mean(axis=1)
    first = analytic_q.tabular_q(analytic_q.example_1(3), ratios, steps=6000, seeds=20).mean(axis=1)
    for index, ratio in enumerate(ratios):
        formulas = analytic_q.formulas_2(*ratio)
        for name in ("Q11", "Q12", "Q21", "Q22"):
            value = second[index, int(name[1]) - 1, int(name[2]) - 1]
            assert abs(value - formulas[name].fixed_point) < 0.03
        assert abs(first[index, 0, 0] - analytic_q.formulas_1(3, *ratio)["Q11"].fixed_point) < 0.03


def test_the_mean_of_tabular_q_is_that_of_a_plain_loop() -> None:
    process, ratios, steps = analytic_q.example_2(), [analytic_q.Ratio(0.3, 0.9), analytic_q.Ratio(0.7, 0.5)], 60
    found = analytic_q.tabular_q(process, ratios, steps, seeds=1)
    rng = np.random.default_rng(0)  # the same draws
    which = rng.integers(3, size=(steps, 2))
    uniform, goals = rng.random((steps, 2)), rng.integers(2, size=(steps, 2))
    for run, ratio in enumerate(ratios):
        q, visits, kept = np.zeros((2, 2)), np.zeros((2, 2)), []
        for step in range(steps):
            state, following = process.states[which[step, run]], process.next_states[which[step, run]]
            random = uniform[step, run] < ratio.lambda_
            goal = goals[step, run] if random else following
            target = ratio.gamma * q[following, goal] if random else 1.0
            visits[state, goal] += 1
            q[state, goal] += 20 / (20 + visits[state, goal]) * (target - q[state, goal])
            kept.append(q.copy())
        assert np.allclose(found[run, 0], np.mean(kept[steps // 2 :], axis=0), rtol=1e-9)


def test_the_corrected_formulas_solve_the_paper_s_equations() -> None:
    lambda_, gamma, n = 0.7, 0.8, 5
    half = gamma * lambda_ / 2
    q = {name: found.corrected for name, found in analytic_q.formulas_2(lambda_, gamma).items()}
    assert np.isclose(q["Q11"], 1 - lambda_ + half * q["Q11"] + half * q["Q21"])
    assert np.isclose(q["Q12"], 1 - lambda_ + half * q["Q12"] + half * q["Q22"])
    assert np.isclose(q["Q22"] * (1 - lambda_ / 2), 1 - lambda_ + half * q["Q22"])
    first = analytic_q.formulas_1(n, lambda_, gamma)["Q11"].corrected
    assert np.isclose(first, 1 - lambda_ + lambda_ / n * gamma * first)


def test_the_fixed_point_is_where_targets_average_to_q_and_tends_to_the_future_s_ratio() -> None:
    seed, gamma, lambda_ = make_seed(0, False), 0.8, 0.6
    q = relabel_ratio.fixed_point(seed, gamma, lambda_)
    # One pair by hand: the cell (0, 1), its number 1, and each move, for all goals.
    for move, step in enumerate(MOVES):
        reached = int(np.clip(step[0], 0, 4) * 5 + np.clip(1 + step[1], 0, 4))
        for goal in range(25):
            weight, target = lambda_ * seed.marginal()[goal], gamma * float(seed.evaluated[reached] @ q[reached, :, goal])
            extra = (1 - lambda_) * (goal == reached)
            assert np.isclose(q[1, move, goal], (extra + weight * target) / (extra + weight))
    truth = future_distribution(seed.evaluated, gamma)
    kl = [errors(np.log(relabel_ratio.fixed_point(seed, gamma, value)) + np.log(seed.marginal()), truth).kl
          for value in (0.5, 0.9, 0.9999)]  # fmt: skip
    assert kl[0] > kl[1] > kl[2]
    assert kl[2] < 1e-4


def test_intervals() -> None:
    values = np.array([1.0, 2.0, 4.0])
    assert np.isclose(half_width(values), 4.302653 * np.std(values, ddof=1) / np.sqrt(3))
    assert (
        paired_interval(pd.Series({0: 1.0, 1: 3.0, 5: 9.0}), pd.Series({0: 0.0, 1: 0.0, 2: 7.0}), 1) == "+2.0 [-10.7, +14.7]"
    )
    assert relabel_ratio.grid_steps([0.5, 0.7, 0.9], 0.5, 0.86) == 2


def _work(setting: int) -> list[dict[str, Any]]:
    if setting == 3:
        raise RuntimeError("stopped")
    return [{"setting": setting, "value": setting**2}]


def _done(setting: int, rows: list[dict[str, str]]) -> bool:
    return any(row["setting"] == str(setting) for row in rows)


@pytest.mark.parametrize(
    ("totals", "verdict"),
    [
        ((0.7, 1.15), "agrees: the mean is within 1 ± 0.1"),
        ((1.1, 1.3), "does not agree: the mean is not within 1 ± 0.1"),
        ((0.5, 0.9), "does not agree: the mean is not within 1 ± 0.1"),
    ],
)
def test_a_verdict_on_sums_says_its_rule(totals: tuple[float, float], verdict: str) -> None:
    rows = [
        {"setting": "on-policy", "method": "TD", "reading": "ratio", "seed": seed, "total": total}
        for seed, total in enumerate(totals)
    ]
    (line,) = paper.normalization_lines(pd.DataFrame(rows))
    assert line.verdict == verdict
    assert line.ours.endswith(f"(2 seeds), from {totals[0]:.2f} to {totals[1]:.2f}")


@pytest.mark.parametrize(
    ("other", "verdict"),
    [(0.25, "agrees: the means are less than 0.1 apart"), (0.35, "does not agree: the means are at least 0.1 apart")],
)
def test_a_verdict_on_similar_errors_says_its_rule(other: float, verdict: str) -> None:
    rows = [
        {"setting": "on-policy", "method": method, "reading": "ratio", "seed": seed, "kl": kl}
        for method, kl in (("MC", 0.2), ("TD", other))
        for seed in range(2)
    ]
    assert [line.verdict for line in paper.gridworld_lines(pd.DataFrame(rows))] == [verdict]


def test_a_sweep_writes_rows_as_they_come_and_resumes(tmp_path: Path) -> None:
    path = tmp_path / "sweep.csv"
    with pytest.raises(RuntimeError, match="stopped"):
        sweep(path, ("setting", "value"), [1, 2, 3], _done, _work, jobs=1)
    assert [row["value"] for row in csv.DictReader(path.open())] == ["1", "4"]
    rows = sweep(path, ("setting", "value"), [1, 2, 4], _done, _work, jobs=1)
    assert [row["value"] for row in rows] == ["1", "4", "16"]
    assert float(rows[-1]["cpu_seconds"]) >= 0


def test_a_sweep_adds_columns_that_an_older_table_lacks(tmp_path: Path) -> None:
    path = tmp_path / "sweep.csv"
    path.write_text("setting,value,seconds,versions,commit\n1,1,0.1,v,c\n")
    rows = sweep(path, ("setting", "value"), [1, 2], _done, _work, jobs=1)
    assert [(row["value"], row["seconds"], row["commit"]) for row in rows[:1]] == [("1", "0.1", "c")]
    assert rows[0]["cpu_seconds"] == ""
    assert rows[1]["value"] == "4"
    assert None not in rows[1]


def test_a_locomotion_split_keeps_test_episodes_apart() -> None:
    lengths = np.full(10, 130)
    states = np.stack([np.repeat(np.arange(10), 130), np.tile(np.arange(130), 10)], axis=1).astype(np.float32)
    ends = np.zeros(len(states), dtype=bool)
    ends[np.cumsum(lengths) - 1] = True
    data = {"observations": states, "actions": np.zeros((len(states), 1), dtype=np.float32),
            "next_observations": states + np.array([0, 1]), "truncations": ends}  # fmt: skip
    found = split(read_dataset(data), "test", seed=0, horizon=100)
    tested, trained = set(found.states[:, 0]), set(np.asarray(found.train.observations)[:, 0])
    assert len(tested) == 2
    assert not tested & trained
    assert (found.futures[:, :, 1] - found.states[:, None, 1] == np.arange(1, 101)).all()
    with pytest.raises(ValueError, match="No test episode has 200 steps"):
        split(read_dataset(data), "test", seed=0, horizon=200)


def test_a_locomotion_agent_resumes_from_its_checkpoint_and_acts_on_standardized_states(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    task = locomotion_data.TASKS["hopper"]
    agent = locomotion_data.train_agent(task, 2048, 0, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["2048"]
    again = locomotion_data.train_agent(task, 2048, 0, tmp_path)  # nothing is left to do
    states = np.random.default_rng(0).normal(size=(5, 11))
    seen = again.scaling.obs_rms
    assert isinstance(seen, RunningMeanStd)
    mean, variance = seen.mean, seen.var
    assert np.abs(variance - 1).max() > 0.1  # it has seen the environment
    standardized = ((states - mean) / np.sqrt(variance + 1e-8)).clip(-10, 10).astype(np.float32)
    for one in (agent, again):
        one.model.set_random_seed(1)
        expected = one.model.predict(standardized, deterministic=False)[0]
        one.model.set_random_seed(1)
        assert np.allclose(one.act(states), expected, atol=1e-5)
    longer = locomotion_data.train_agent(task, 4096, 0, tmp_path)
    assert longer.model.num_timesteps == 4096
    assert (tmp_path / "4096" / "model.zip").exists()
    data = locomotion_data.collect(task, longer, 400, seed=3)
    assert data["observations"].shape == (400, 12)
    inside = ~(data["terminations"] | data["truncations"])[:-1]
    assert np.array_equal(data["observations"][1:][inside], data["next_observations"][:-1][inside])


def test_a_checkpoint_of_a_locomotion_agent_lies_between_two_rollouts_and_is_whole(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    envs = VecNormalize(make_vec_env("Hopper-v5", n_envs=2, seed=0))
    model = PPO("MlpPolicy", envs, n_steps=32, batch_size=64, n_epochs=2, seed=0, device="cpu")
    (tmp_path / "half").mkdir()  # what an interruption left
    (tmp_path / "half" / "model.zip").write_bytes(b"PK")
    model.learn(192, callback=locomotion_data.Checkpoints(tmp_path, every=128))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["128", "192"]
    saved = PPO.load(tmp_path / "128" / "model.zip", device="cpu")
    assert (saved.num_timesteps, saved._n_updates) == (128, 4)  # both rollouts were learned from
    seen = VecNormalize.load(str(tmp_path / "128" / "scaling.pkl"), envs.venv).obs_rms
    assert isinstance(seen, RunningMeanStd)
    assert seen.count == pytest.approx(130, abs=1)


def test_what_the_locomotion_data_is_like_stands_in_a_table(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    command = [
        "--tasks",
        "hopper",
        "--steps",
        "2048",
        "--transitions",
        "800",
        "--seed",
        "1",
        "--output",
        str(tmp_path / "data"),
    ]
    for _ in range(2):  # the second time nothing is made again, and the row is still there once
        locomotion_data.main([*command, "--results", str(tmp_path)])
    (row,) = read_rows(tmp_path / "locomotion_data.csv")
    data = np.load(tmp_path / "data" / "hopper.npz")
    returns, total = [], 0.0
    for reward, end in zip(data["rewards"], data["terminations"] | data["truncations"], strict=True):
        total += reward
        if end:
            returns.append(total)
            total = 0.0
    assert (row["task"], row["seed"], row["agent_steps"], row["transitions"]) == ("hopper", "1", "2048", "800")
    assert int(row["episodes"]) == len(returns)
    assert float(row["mean_return"]) == pytest.approx(np.mean(returns), abs=0.06)
    experience, source = load("hopper", tmp_path / "data")
    assert source == "own PPO agent"
    assert np.asarray(experience.observations).shape == (800, 11)  # without the global position


def test_quick_locomotion_data_is_not_taken_for_the_measured_one(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    places = ["--output", str(tmp_path / "data"), "--results", str(tmp_path)]
    locomotion_data.main(["--tasks", "hopper", "--quick", *places])
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"hopper_quick.npz", "hopper_quick_agent"}
    assert [path.name for path in tmp_path.glob("*.csv")] == ["locomotion_data_quick.csv"]
    for module in (locomotion, visions):
        with pytest.raises(FileNotFoundError, match=r"hopper\.npz"):
            module.load("hopper", tmp_path / "data")
        module.load("hopper", tmp_path / "data", quick=True)
    short = ["--steps", "2048", "--transitions", "80"]
    locomotion_data.main(["--tasks", "hopper", *short, *places])
    quick, measured = (np.load(tmp_path / "data" / name)["actions"] for name in ("hopper_quick.npz", "hopper.npz"))
    assert (len(quick), len(measured)) == (8000, 80)
    experience, _ = load("hopper", tmp_path / "data", quick=True)  # a quick command, too, prefers what was measured
    assert np.array_equal(experience.actions, measured)


def test_locomotion_data_of_other_settings_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mujoco")

    def command(seed: int, steps: int, transitions: int) -> None:
        options = {"seed": seed, "steps": steps, "transitions": transitions, "output": tmp_path / "data", "results": tmp_path}
        words = [word for option, value in options.items() for word in (f"--{option}", str(value))]
        locomotion_data.main(["--tasks", "hopper", *words])

    command(1, 2048, 80)
    before = (tmp_path / "locomotion_data.csv").read_text()
    others = {
        "--seed 1, not 0": (0, 2048, 80),
        "--steps 2048, not 4096": (1, 4096, 80),
        "--transitions 80, not 96": (1, 2048, 96),
    }
    for message, settings in others.items():
        with pytest.raises(SystemExit):
            command(*settings)
        assert message in capsys.readouterr().err
    (tmp_path / "data" / "hopper.npz").unlink()  # only the agent is there
    with pytest.raises(SystemExit):
        command(0, 2048, 80)
    assert not (tmp_path / "data" / "hopper.npz").exists()
    assert (tmp_path / "locomotion_data.csv").read_text() == before
    command(1, 2048, 96)  # the same agent, more of its experience


def test_the_command_runs_and_says_what_it_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gridworld, "PAPER", TrainingSettings(gamma=0.9, steps=3, hidden=(4,)))
    gridworld.main(["--quick", "--seeds", "2", "--output", str(tmp_path)])
    assert (tmp_path / "gridworld_quick.png").stat().st_size > 1000
    table = (tmp_path / "gridworld_quick.md").read_text()
    assert "On-policy" in table
    assert "even goals" in table
    before = (tmp_path / "gridworld_quick.csv").read_text()
    gridworld.main(["--quick", "--seeds", "2", "--output", str(tmp_path)])
    assert (tmp_path / "gridworld_quick.csv").read_text() == before
    with pytest.raises(SystemExit):
        gridworld.main(["--seeds", "0"])
    monkeypatch.setattr("sys.argv", ["experiments", "nothing"])
    with pytest.raises(SystemExit, match="relabel_ratio"):
        command_line.main()
