"""What the YAML files say, and errors in them."""

import json
import math
import re
from pathlib import Path

import pytest

from sb3_clearning.checks import UsageError
from sb3_clearning.common.evaluation import EVALUATION_SEED
from sb3_clearning.envs import TASK_IDS
from sb3_clearning.experiments.suite.config import SEEDS_PER_RUN, SHIPPED, Run, Suite
from sb3_clearning.experiments.suite.output_folder import OutputFolder
from sb3_clearning.experiments.tables.rows import read_rows
from sb3_clearning.goal_td3.goal_td3 import RELABELLING
from tests.support.tiny_suite import undisturbed, write_config

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite.load()


def test_the_papers_matrix(suite: Suite) -> None:
    runs = suite.runs(["paper"])
    tasks = set(TASK_IDS) - {"ContinuousGridworld-v0"}
    assert {run.task for run in runs} == tasks
    assert len(tasks) == 9
    # Five seeds of CLearning and next-state relabelling, and at least one of the others.
    seeds = {(task, method): 0 for task in tasks for method in {run.method for run in runs}}
    for run in runs:
        seeds[run.task, run.method] += 1
    assert all(n >= (5 if method in ("clearning", "next_state") else 1) for (_, method), n in seeds.items())
    assert len(seeds) == 9 * 8
    assert len(runs) == 182
    long = {"SawyerPush-v0", "SawyerWindow-v0", "SawyerDrawer-v0"}
    assert all(run.steps == (60_000 if run.task in long else 30_000) for run in runs)
    assert all(len(run.evaluations()) == 6 for run in runs)
    costs = [run.steps / run.speed for run in runs]
    assert costs == sorted(costs)


def test_methods_are_compared_with_equal_settings(suite: Suite) -> None:
    def own(method: str) -> set[str]:
        # Next-state relabelling has the paper's discounts for it. CLearning's learning rate was chosen by trials.
        return {"n_steps", "lambda_", "actor_loss", "learning_rate", "relabel", "buffer_size"} | (
            {"gamma"} if method == "next_state" else set()
        )

    for run in suite.runs(["paper"]):
        ours = suite.run(run.task, "clearning", 0)
        shared = [{key: value for key, value in one.arguments.items() if key not in own(run.method)} for one in (run, ours)]
        assert shared[0] == shared[1]


def test_the_sweep_has_nine_ratios_and_three_seeds(suite: Suite) -> None:
    runs = [run for run in suite.runs(["maze_ratio"]) if run.method != "clearning"]
    shares = [RELABELLING["next"] if run.method == "next_state" else run.arguments["relabel"] for run in runs]
    ratios = {share.get("random") for share in shares}
    assert len(ratios) == 9
    assert len(runs) == 27
    assert (1 + runs[0].arguments["gamma"]) / 2 in ratios
    assert all(math.isclose(sum(share.values()), 1) for share in shares)


def test_training_seeds_stay_apart_from_evaluation_seeds() -> None:
    # The largest seed's last segment, as `Suite.run` and `_seeds` limit them.
    assert (SEEDS_PER_RUN - 1) * SEEDS_PER_RUN + SEEDS_PER_RUN - 1 < EVALUATION_SEED


def test_a_file_of_ones_own_joins(tmp_path: Path) -> None:
    suite = Suite.load([write_config(tmp_path)])
    (run,) = suite.runs(["tiny"], methods=["clearning"])
    assert run.arguments["batch_size"] == 16  # the task's
    assert run.arguments["gamma"] == suite.arguments["gamma"]  # everybody's
    assert "SawyerPush-v0" in suite.tasks


def test_the_example_in_the_file_is_valid(tmp_path: Path) -> None:
    """The commented example, with an algorithm that exists."""
    lines = SHIPPED.read_text().splitlines()
    block = [line[2:] for line in lines if line.startswith("#   ") and not line.startswith("#   python")]
    path = tmp_path / "example.yml"
    path.write_text("\n".join(block).replace("my_package.my_module:MyAlgorithm", "stable_baselines3:TD3"))
    suite = Suite.load([path])
    assert suite.tasks["FetchReach"]["arguments"] == {"gamma": 0.98}
    runs = suite.runs(["mine"])
    assert len(runs) == 10
    assert "mine" in suite.non_baselines()
    assert all(("noise_std" in run.arguments) == (run.method != "mine") for run in runs)
    assert {run.arguments.get("tau") for run in runs if run.method == "mine"} == {0.02}


def test_the_examples_of_the_docs_make_runs(tmp_path: Path) -> None:
    """SB3's own algorithm joins by its entry alone, and learns."""
    text = (ROOT / "docs" / "suite.md").read_text()
    first, second = tmp_path / "first.yml", tmp_path / "second.yml"
    for path, block in zip((first, second), re.findall(r"```yaml\n(.*?)```", text, re.DOTALL), strict=True):
        path.write_text(block.replace("my_package:MyAlgorithm", "stable_baselines3:SAC"))
    suite = Suite.load([write_config(tmp_path, {"sac": 30}), first, second])
    assert len(suite.runs(["mine"])) == 10
    (run,) = suite.runs(["tiny"])
    assert "noise_std" not in run.arguments
    settings = run.settings()
    (row,) = undisturbed([run], tmp_path / "out")
    assert row["step"] == "30"
    # SAC writes into the `policy_kwargs` that it is given.
    assert json.loads(row["settings"]) == settings
    assert not OutputFolder(tmp_path / "out").progress(run).other_settings


def test_runs_of_several_matrices_are_done_once(suite: Suite) -> None:
    paper, both = suite.runs(["paper"]), suite.runs(["paper", "maze_ratio"])
    # C-learning's runs on the maze are the same ones, and next-state relabelling's, whose ratio is 0.5.
    assert len(both) == len(paper) + 24
    assert len({run.name for run in both}) == len(both)


def test_more_steps_are_the_same_run(suite: Suite) -> None:
    short, long = suite.run("SawyerPush-v0", "clearning", 0), suite.run("SawyerPush-v0", "clearning", 0, 300_000)
    assert short.settings() == long.settings()
    assert short.evaluations() == long.evaluations()[:6]


def test_more_steps_are_the_same_run_where_the_evaluations_are_not_said(tmp_path: Path) -> None:
    path = tmp_path / "own.yml"
    path.write_text("tasks: {T: {env: SawyerPush-v0, steps: 600}}")
    suite = Suite.load([path])
    short, long = suite.run("T", "clearning", 0), suite.run("T", "clearning", 0, 1200)
    assert short.settings() == long.settings()
    assert short.evaluations() == [100, 200, 300, 400, 500, 600] == long.evaluations()[:6]


def test_trials_are_apart_from_results(suite: Suite) -> None:
    """What settings are chosen by shares neither training nor evaluation episodes with what is reported."""
    loaded = Suite.load([ROOT / "results" / "suite" / "trials.yml"])
    trials = loaded.runs([name for name in loaded.matrices if name not in suite.matrices])
    results = suite.runs(list(suite.matrices))
    assert not {run.seed for run in trials} & {run.seed for run in results}
    first = {run.evaluation_seed for run in results}
    assert first == {EVALUATION_SEED}
    assert all(abs(run.evaluation_seed - EVALUATION_SEED) >= run.episodes for run in trials)
    check_rows(ROOT / "results" / "suite" / "trials.csv", trials)


def test_the_table_has_what_the_matrices_say(suite: Suite) -> None:
    check_rows(ROOT / "results" / "suite" / "suite.csv", suite.runs(list(suite.matrices)))


def check_rows(table: Path, runs: list[Run]) -> None:
    """Each row is of one of the runs, and was made with its settings."""
    by_name = {run.name: run for run in runs}
    rows = read_rows(table)
    assert rows
    for row in rows:
        assert by_name[f"{row['task']}/{row['method']}/seed_{row['seed']}"].has_settings_of(row), row


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tasks: [", "is not valid YAML"),
        ("runs: {}", "must be a mapping with some of arguments, tasks"),
        ("methods: {x: {without: noise_std}}", "`without` of x of methods in .* must be a list of arguments"),
        (
            "methods: {x: {algorithm: 'sb3_clearning:CLearning', without: [noise]}}\nmatrices: {m: [{methods: [x]}]}",
            "no argument 'noise'. There are: device",
        ),
        ("tasks: [1]", "`tasks` in .* must be a mapping"),
        ("tasks: {T: {step: 3}}", "T of tasks in .* unknown key 'step'. Known: arguments, env"),
        ("matrices: {m: {seeds: 1}}", "must be a list of blocks"),
        ("matrices: {m: [{seeds: -1}]}", "Seeds must be"),
        ("matrices: {m: [{seeds: [1000]}]}", "below 1000"),
        ("matrices: {m: [{evaluation_seed: 5}]}", "evaluation_seed must be a number from 1000000 on"),
        ("matrices: {m: [{evaluation_seed: other}]}", "evaluation_seed must be a number"),
        ("matrices: {m: [{tasks: [Nowhere]}]}", "no task 'Nowhere'. There are: SawyerReach-v0"),
        ("matrices: {m: [{methods: [clairning]}]}", "no method 'clairning'"),
        ("methods: {x: {algorithm: nowhere}}\nmatrices: {m: [{methods: [x]}]}", "must be module:class"),
        (
            "methods: {x: {algorithm: 'sb3_clearning:CLearning', arguments: {lambda: 1}}}\nmatrices: {m: [{methods: [x]}]}",
            "no argument 'lambda'. It has: .*lambda_.*without: .lambda",
        ),
        ("tasks: {T: {steps: 0.5}}\nmatrices: {m: [{tasks: [T]}]}", "`steps` of the task T must be a whole number above 0"),
        ("tasks: {T: {steps: 1e4}}\nmatrices: {m: [{tasks: [T]}]}", r"not '1e4' \(YAML reads 1e4 as text\)"),
        ("tasks: {T: {episodes: true}}\nmatrices: {m: [{tasks: [T]}]}", "`episodes` of the task T must be a whole number"),
        ("tasks: {T: {speed: 0}}\nmatrices: {m: [{tasks: [T]}]}", "`speed` of the task T must be a number above 0, not 0"),
        ("tasks: {T: {}}\nmatrices: {m: [{tasks: [T], steps: -5}]}", "`steps` of the task T must be .*, not -5"),
        ("tasks: {T: {arguments: [gamma]}}", "`arguments` of T of tasks in .* must be a mapping, not"),
        ("tasks: {T: {env: 3}}", "`env` of T of tasks in .* must be text, not 3"),
        ("methods: {x: {tasks: [T]}}", "`tasks` of x of methods in .* must be a mapping of tasks, not"),
        ("methods: {x: {algorithm: 1}}", "`algorithm` of x of methods in .* must be module:class, not 1"),
        ("matrices: {m: [{methods: clearning}]}", "`methods` of m of matrices in .* must be a list, not 'clearning'"),
        (
            "methods: {x: {tasks: {SawyerReach-v0: 5}}}",
            "SawyerReach-v0 of `tasks` of x of methods in .* a mapping",
        ),
        (
            "methods: {x: {tasks: {SawyerPush: {tau: 0.1}}}}",
            "x has arguments for 'SawyerPush', which is not a task",
        ),
        ("methods: {x: {algorithm: }}", "`algorithm` of x of methods in .* must be module:class, not None"),
        ("methods: {x: {algorithm: 'numpy:array'}}\nmatrices: {m: [{methods: [x]}]}", "not 'numpy:array': it is no class"),
        ("matrices: {m: []}", "The matrix m in .* must be a list of blocks"),
        ("matrices: {m: [{tasks: }]}", "`tasks` of m of matrices in .* must be a list, not None"),
        ("matrices: {m: [{tasks: [[T]]}]}", r"There is no task \['T'\]"),
        ("matrices: {m: [{seeds: true}]}", "Seeds must be .*, not True"),
        ("matrices: {m: [{seeds: [true]}]}", r"Seeds must be .*, not \[True\]"),
        ("arguments: {1: 2}\nmatrices: {m: [{methods: [clearning]}]}", "has no argument '1'"),
        ("tasks: {T: {env: }}", "`env` of T of tasks in .* must be text, not None"),
        (
            "tasks: {T: {env_kwargs: {day: 2026-01-02}}}\nmatrices: {m: [{tasks: [T]}]}",
            "must be text, numbers, or lists .*date",
        ),
        ("tasks: {my/Env-v0: {}}", "The name 'my/Env-v0' of tasks in .* without a slash, .*; a task's `env` may have one"),
        ("methods: {..: {}}", "The name '..' of methods in .* begin with no dot"),
        ("matrices: {1: [{}]}", "The name 1 of matrices in .* must be text"),
        ("tasks: {T: {steps: 5000, evaluate_every: 1}}\nmatrices: {m: [{tasks: [T]}]}", "raise its `evaluate_every`"),
    ],
)
def test_errors_say_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "wrong.yml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        Suite.load([path]).runs(["m"])


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yml"
    path.write_bytes("# größer".encode("latin-1"))
    with pytest.raises(UsageError, match=r"is not valid YAML: .*utf-8"):
        Suite.load([path])


def test_each_matrix_has_its_own_runs(suite: Suite) -> None:
    """What one of several matrices has does not join the others, and a matrix keeps its own steps."""
    found = suite.runs_of_each(["paper", "maze_ratio"], methods=["ratio_0.9"])
    assert {matrix: len(runs) for matrix, runs in found.items()} == {"paper": 0, "maze_ratio": 3}
    found = suite.runs_of_each(["paper", "longer"], tasks=["SawyerPush-v0"], methods=["clearning", "ratio_0.9"])
    of_ours = {matrix: {run.steps for run in runs if run.method == "clearning"} for matrix, runs in found.items()}
    assert of_ours == {"paper": {60_000}, "longer": {100_000}}
    joined = {matrix: sorted(run.seed for run in runs if run.method == "ratio_0.9") for matrix, runs in found.items()}
    assert joined == {"paper": [0, 1, 2, 3, 4], "longer": []}
    together = suite.runs(["paper", "longer"], tasks=["SawyerPush-v0"], methods=["clearning", "ratio_0.9"], seeds=iter([0, 5]))
    assert {(run.method, run.seed, run.steps) for run in together} == {
        *(("clearning", seed, 100_000) for seed in (0, 5)),
        *(("ratio_0.9", seed, 60_000) for seed in (0, 5)),
    }


def test_what_is_named_joins_the_matrix(tmp_path: Path, suite: Suite) -> None:
    """One entry in a file is enough."""
    path = tmp_path / "own.yml"
    path.write_text("methods: {mine: {algorithm: 'sb3_clearning:GoalTD3'}}\ntasks: {Own: {env: SawyerPush-v0, steps: 600}}")
    own = Suite.load([path])
    names = {(run.task, run.method, run.seed) for run in own.runs(["paper"], methods=["mine"])}
    assert names == {(run.task, "mine", seed) for run in suite.runs(["paper"]) for seed in range(5)}  # of the first block
    names = {(run.task, run.method, run.seed) for run in own.runs(["paper"], tasks=["Own"])}
    assert names == {("Own", run.method, seed) for run in suite.runs(["paper"]) for seed in range(5)}
    both = own.runs(["paper"], tasks=["Own", "Finger-v0"], methods=["clearning", "mine"], seeds=[4])
    names = {(run.task, run.method, run.seed) for run in both}
    assert names == {(task, method, 4) for task in ("Own", "Finger-v0") for method in ("clearning", "mine")}
    assert {run.name for run in own.runs(["paper"])} == {run.name for run in suite.runs(["paper"])}


def test_what_no_matrix_has_is_an_error(suite: Suite) -> None:
    with pytest.raises(UsageError, match="No run is left"):
        suite.runs(["discounts", "maze_ratio"], tasks=["PointUMaze-v0"], methods=["next_state_same_discount"])
    with pytest.raises(UsageError, match="method next_state_same_discount is in none of the matrices discounts, maze_ratio"):
        suite.runs(["discounts", "maze_ratio"], tasks=["PointUMaze-v0"], methods=["next_state", "next_state_same_discount"])
    with pytest.raises(UsageError, match="There is no matrix 'all'"):
        suite.runs(["all"])
    with pytest.raises(UsageError, match="cannot be read"):
        Suite.load([Path("nowhere.yml")])
