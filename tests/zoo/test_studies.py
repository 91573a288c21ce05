"""`rl_zoo3.train -optimize` on real storages: several workers, pruning, killed workers, and trials trained again."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from sb3_clearning import CLearning
from sb3_clearning.zoo.search import convert_params
from tests.support.commands import Run, command, environment

#: Whole trials in a second or so.
CONFIGURATION = """
SawyerReach-v0:
  n_timesteps: 150
  policy: MultiInputPolicy
  learning_starts: 50
  buffer_size: 500
  train_freq: 50
  gradient_steps: 1
  batch_size: 16
  policy_kwargs: "dict(net_arch=[8])"
  search: [gamma, w_clip, lambda_]
"""
TASK = ["--algo", "clearning", "--env", "SawyerReach-v0", "-conf", "study.yml", "-f", "logs"]


def search(storage: str, n_trials: int, *options: object) -> list[str]:
    study = ["-optimize", "--storage", storage, "--study-name", "reach", "--n-trials", n_trials, "--eval-episodes", 1]
    return command("rl_zoo3.train", *TASK, *study, "--n-evaluations", 3, "--no-optim-plots", *options)


def load(storage: str) -> optuna.Study:
    backend = JournalStorage(JournalFileBackend(storage)) if storage.endswith(".log") else storage
    return optuna.load_study(study_name="reach", storage=backend)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "study.yml").write_text(CONFIGURATION)
    return tmp_path


def run_workers(folder: Path, storage: str, n_workers: int = 2, n_trials: int = 2) -> list[str]:
    """:return: what each worker printed"""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    workers = [
        subprocess.Popen(search(storage, n_trials), cwd=folder, env=environment(), text=True, **pipes)  # type: ignore[call-overload]
        for _ in range(n_workers)
    ]
    outputs = [worker.communicate(timeout=900)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * n_workers, "\n\n".join(output[-3000:] for output in outputs)
    return outputs


def check_one_study(storage: str, n_trials: int) -> None:
    trials = load(storage).trials
    assert [trial.number for trial in trials] == list(range(n_trials))
    assert all(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in trials)
    assert len({tuple(trial.params.values()) for trial in trials}) == n_trials  # no worker repeats another's
    names = {"one_minus_gamma", "w_clip_kind", "w_clip_absolute", "w_clip_relative", "lambda_"}
    assert all(set(trial.params) == names for trial in trials)


def test_two_workers_share_a_sqlite_study_whose_first_trial_trains_again(folder: Path, run: Run) -> None:
    storage = f"sqlite:///{folder}/study.db"
    run_workers(folder, storage)
    check_one_study(storage, 4)
    # A search leaves its reports, but no run folder without a model for `enjoy` to find.
    assert not list(folder.glob("logs/clearning/SawyerReach*"))

    # The number 0 is the one that rl-zoo3 takes for "no trial".
    check_trained_again(folder, run, storage, 0)


def check_trained_again(folder: Path, run: Run, storage: str, number: int) -> None:
    study = ["--storage", storage, "--study-name", "reach", "--trial-id", number]
    result = run("rl_zoo3.train", *TASK, *study, "--eval-freq", -1, cwd=folder)
    assert "Loading from Optuna study" in result.stdout
    model = CLearning.load(folder / "logs/clearning/SawyerReach-v0_1/SawyerReach-v0.zip")
    expected = convert_params(load(storage).trials[number].params)
    assert {name: getattr(model, name) for name in expected} == expected
    assert model.policy.net_arch == [8]  # what is not searched is the configuration's


def test_a_hopeless_trial_is_pruned(folder: Path) -> None:
    storage = f"sqlite:///{folder}/study.db"
    study = optuna.create_study(storage=storage, study_name="reach", direction="maximize")
    for _ in range(5):  # trials that reached the goal at once
        distributions: dict[str, BaseDistribution] = {"lambda_": FloatDistribution(0, 1)}
        perfect = optuna.trial.create_trial(
            params={"lambda_": 0.5}, distributions=distributions, value=0.0, intermediate_values={1: 0.0, 2: 0.0, 3: 0.0}
        )
        study.add_trial(perfect)
    result = subprocess.run(search(storage, 1, "--n-startup-trials", 1), cwd=folder, env=environment(), capture_output=True)
    assert result.returncode == 0, result.stderr[-3000:]
    last = load(storage).trials[-1]
    assert last.state == TrialState.PRUNED
    assert max(last.intermediate_values) == 1  # at the first evaluation: n-evaluations // 3 = 1 step of warm-up is over


@pytest.mark.slow
def test_two_workers_share_a_journal_whose_best_trial_trains_again(folder: Path, run: Run) -> None:
    storage = str(folder / "journal.log")
    run_workers(folder, storage)
    check_one_study(storage, 4)
    check_trained_again(folder, run, storage, load(storage).best_trial.number)


@pytest.mark.slow
def test_a_killed_worker_loses_no_finished_trial(folder: Path) -> None:
    storage = f"sqlite:///{folder}/study.db"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    worker = subprocess.Popen(search(storage, 1000), cwd=folder, env=environment(), **quiet)  # type: ignore[call-overload]
    try:
        finished: dict[int, float | None] = {}
        deadline = time.monotonic() + 300
        while len(finished) < 2 and time.monotonic() < deadline:
            time.sleep(0.5)
            with contextlib.suppress(KeyError, Exception):
                finished = {t.number: t.value for t in load(storage).trials if t.state == TrialState.COMPLETE}
    finally:
        worker.kill()
        worker.wait()
    assert len(finished) >= 2
    run_workers(folder, storage, n_workers=1, n_trials=2)
    trials = {trial.number: trial for trial in load(storage).trials}
    assert all(trials[number].value == value for number, value in finished.items())
    assert sum(trial.state.is_finished() for trial in trials.values()) >= len(finished) + 2


@pytest.fixture
def postgresql() -> Iterator[str]:
    """The address of a PostgreSQL server of our own, on a free port, with its data in a temporary folder."""
    pytest.importorskip("psycopg2", reason="needs PostgreSQL's driver: pip install psycopg2-binary")
    found = [Path("/usr/bin"), *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    programs = next((place for place in found if (place / "initdb").is_file()), None)
    if programs is None:
        pytest.skip("needs a PostgreSQL server: apt-get install postgresql")
    # It refuses to run as root; Debian's package makes a user for it. `tmp_path` is closed to other users whenever a pytest
    # starts.
    user = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        if user:
            shutil.chown(data, **user)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        quiet = {"check": True, "cwd": "/", "stdout": subprocess.DEVNULL, **user}
        subprocess.run([programs / "initdb", "-D", data, "-U", "zoo", "--auth", "trust"], **quiet)  # type: ignore[call-overload]
        control = [programs / "pg_ctl", "-D", data, "-w"]
        options = ["-l", data / "log", "-o", f"-p {port} -k {data} -h 127.0.0.1"]
        subprocess.run([*control, *options, "start"], **quiet)  # type: ignore[call-overload]
        yield f"postgresql+psycopg2://zoo@127.0.0.1:{port}/postgres"
        subprocess.run([*control, "stop", "-m", "immediate"], **quiet)  # type: ignore[call-overload]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts Debian's PostgreSQL")
def test_two_workers_share_a_postgresql_study(folder: Path, postgresql: str) -> None:
    run_workers(folder, postgresql)
    check_one_study(postgresql, 4)
