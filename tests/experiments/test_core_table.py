"""The core's learning table: which rows stand in it, and which runs are left to do."""

import json
from pathlib import Path
from typing import Any

import pytest

from sb3_clearning.common.distances import EpisodeDistances
from sb3_clearning.common.evaluation import EVALUATION_SEED
from sb3_clearning.experiments import core
from sb3_clearning.experiments.tables.rows import read_rows, spread, write_rows

OLD_FIELDS = [name for name in core.FIELDS if name not in ("evaluation_seed", "success_any_time")]


def row(seed: int, success: float, step: int = 10_000, **others: str) -> dict[str, str]:
    numbers = {name: "0.1" for name in EpisodeDistances._fields}
    run = {"task": "FetchReach-v4", "seed": str(seed), "step": str(step), "success": str(success), "arguments": "{}"}
    return {**run, **numbers, "seconds": "1", "versions": "v", "commit": "first", **others}


def test_table_is_of_the_defaults(tmp_path: Path) -> None:
    rows = [row(0, 1.0), row(1, 0.5, evaluation_seed=str(EVALUATION_SEED))]
    tried = row(0, 0.0, arguments='{"gamma": 0.5}', commit="later")
    elsewhere = row(1, 0.0, evaluation_seed="5", commit="later")
    for last_only in (False, True):
        lines = core.table([*rows, tried, elsewhere], last_only)
        assert lines == core.table(rows, last_only)
        assert "| 2 | 0.75 ± 0.35 | 0.50 |" in lines[-1]
    core.write_table([*rows, tried, elsewhere], tmp_path / "core.md")
    assert "Commit first" in (tmp_path / "core.md").read_text()


def test_success_at_any_time_stands_in_the_table_where_rows_have_it() -> None:
    old, new = row(0, 0.5, step=2000), [row(seed, 0.5, success_any_time=str(rate)) for seed, rate in ((0, 0.75), (1, 1.0))]
    assert "any time" not in core.table([old])[0]
    header, _, before, after = core.table([old, *new, row(2, 0.0, success_any_time="")])
    assert header.endswith("| success at any time |")
    assert before.endswith("| – |")
    assert after.endswith("| 0.88 ± 0.18 |")


def test_run_is_finished_with_its_own_arguments_and_evaluation_episodes() -> None:
    for rows in ([row(0, 1.0)], [row(0, 1.0, evaluation_seed="")], [row(0, 1.0, evaluation_seed=str(EVALUATION_SEED))]):
        assert core.finished(rows, "FetchReach-v4", 0, {})
        assert not core.finished(rows, "FetchReach-v4", 0, {}, evaluation_seed=5)
        assert not core.finished(rows, "FetchReach-v4", 0, {"gamma": 0.5})
    elsewhere = [row(0, 1.0, evaluation_seed="5")]
    assert not core.finished(elsewhere, "FetchReach-v4", 0, {})
    assert core.finished(elsewhere, "FetchReach-v4", 0, {}, evaluation_seed=5)


def test_run_records_its_evaluation_seed_in_an_older_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gymnasium_robotics")
    path, old = tmp_path / "core.csv", row(7, 1.0)
    write_rows(path, [old], OLD_FIELDS)

    def evaluate(*_: Any, seed: int, n_envs: int) -> dict[str, float]:
        return {"success": float(seed == 5), "success_any_time": 0.75, **dict.fromkeys(EpisodeDistances._fields, 0.1)}

    monkeypatch.setattr(core, "evaluate_goals", evaluate)
    monkeypatch.setitem(core.TASKS, "FetchReach-v4", core.TASKS["FetchReach-v4"]._replace(steps=10))
    core.add_columns(path, core.FIELDS)
    core.run_one("FetchReach-v4", 0, path, {}, evaluation_seed=5)
    first, *new = read_rows(path)
    assert first == {**old, "evaluation_seed": "", "success_any_time": ""}
    assert [line["step"] for line in new] == ["2", "4", "6", "8", "10"]
    for line in new:
        assert line["success_any_time"] == "0.75"
        assert (line["evaluation_seed"], line["success"], json.loads(line["arguments"])) == ("5", "1.0", {})
    assert core.finished(new, "FetchReach-v4", 0, {}, evaluation_seed=5)


def test_one_seed_has_no_spread() -> None:
    assert spread([0.5], 2) == "0.50"
    assert spread([0.4, 0.6], 2) == "0.50 ± 0.14"
