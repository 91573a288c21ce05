"""The search space: what is drawn is what a model gets, and what `--trial-id` gets back."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import optuna
import pytest

from sb3_clearning import CLearning
from sb3_clearning.checks import UsageError
from sb3_clearning.envs import GoalFromObservation
from sb3_clearning.zoo.search import PARTS, arguments_of, check_parts, convert_params, default_parts, sample_params
from sb3_clearning.zoo.storage import load_study, open_storage
from sb3_clearning.zoo.study_report import write_report


def sample(study: optuna.Study, **attributes: object) -> tuple[optuna.Trial, dict]:
    trial = study.ask()
    for name, value in attributes.items():
        trial.set_user_attr(name, value)
    return trial, sample_params(trial, 1, 1, {})


def random_study() -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))


def test_every_draw_makes_a_model() -> None:
    env = GoalFromObservation(gym.make("Pendulum-v1"), crop=[0, 1])
    study = random_study()
    for _ in range(20):
        _, hyperparams = sample(study)
        model = CLearning("MultiInputPolicy", env, buffer_size=10, device="cpu", **hyperparams)
        assert 0.3 <= model.gamma <= 0.995
        assert model.importance_weight_limit == hyperparams["w_clip"]
        assert model.policy.net_arch == hyperparams["policy_kwargs"]["net_arch"]
        assert model.batch_size in (64, 128, 256, 512, 1024, 2048)
        assert 1 <= model.gradient_steps <= model.train_freq.frequency  # type: ignore[union-attr]


def test_horizons_are_drawn_on_a_logarithmic_scale() -> None:
    study = random_study()
    gammas = [sample(study, search=["gamma"])[1]["gamma"] for _ in range(400)]
    # Uniform in log(1 - gamma) from log .005 to log .7: half of the draws below 1 - sqrt(.005 * .7) = .941
    assert 0.4 < sum(gamma < 0.941 for gamma in gammas) / 400 < 0.6
    assert min(gammas) < 0.35
    assert max(gammas) > 0.99


def test_w_clip_is_absolute_or_relative_to_the_horizon() -> None:
    drawn = {"one_minus_gamma": 0.1, "w_clip_absolute": 7.0, "w_clip_relative": 2.0}
    assert convert_params({**drawn, "w_clip_kind": "absolute"})["w_clip"] == 7.0
    assert convert_params({**drawn, "w_clip_kind": "relative"})["w_clip"] == pytest.approx(20.0)
    assert convert_params({"one_minus_gamma": 0.1, "w_clip_relative": 2.0})["w_clip"] == pytest.approx(20.0)
    assert convert_params({"w_clip_absolute": 7.0}) == {"w_clip": 7.0}


def test_a_stored_trial_converts_to_what_the_sampler_returned(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/study.db"
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(storage=storage, study_name="s", sampler=optuna.samplers.RandomSampler(seed=1))
    returned = []
    for _ in range(5):
        trial, hyperparams = sample(study)
        study.tell(trial, 0.0)
        returned.append(hyperparams)
    stored = optuna.load_study(storage=storage, study_name="s").trials
    assert [convert_params(trial.params) for trial in stored] == returned


@pytest.mark.parametrize(("part", "arguments"), [("gamma", {"gamma"}), ("lambda_", {"lambda_"}), ("noise", None)])
def test_search_is_limited_to_the_named_parts(part: str, arguments: set[str] | None) -> None:
    _, hyperparams = sample(random_study(), search=[part])
    assert set(hyperparams) == (arguments or {"action_noise", "noise_std", "warmup_noise"})


@pytest.mark.parametrize("part", PARTS)
def test_the_arguments_of_a_part_are_those_that_it_draws(part: str) -> None:
    parts = list(dict.fromkeys(["gamma", part]))  # a relative limit of w needs the horizon
    _, hyperparams = sample(random_study(), search=parts)
    assert set(arguments_of(parts)) == set(hyperparams)


def test_the_baselines_search_has_no_classifier_parts() -> None:
    parts = default_parts("goal_td3")
    assert "gamma" in parts
    assert not {"w_clip", "lambda_"} & set(parts)
    assert {"w_clip", "lambda_"} <= set(default_parts("clearning"))


@pytest.mark.parametrize("parts", [["gama"], "gamma", [], ["w_clip"], ["gamma", "w_clip_absolute", "w_clip_relative"], None])
def test_wrong_search_entries_are_refused(parts: object) -> None:
    with pytest.raises(ValueError, match="search"):
        check_parts("clearning", parts)
    assert check_parts("clearning", ["gamma", "w_clip"]) == ["gamma", "w_clip"]
    assert set(PARTS) > {"gamma", "w_clip"}


def test_report_of_a_study(tmp_path: Path) -> None:
    study = random_study()
    for _ in range(12):
        trial, hyperparams = sample(study, search=["gamma", "lambda_"])
        study.tell(trial, hyperparams["gamma"])  # nothing but gamma matters
    write_report(study, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"trials.csv", "importances.png", "slices.png", "study.md"}
    text = (tmp_path / "study.md").read_text()
    assert "12 trials: 12 complete." in text
    assert text.index("| one_minus_gamma |") < text.index("| lambda_ |")  # the most important first
    assert len((tmp_path / "trials.csv").read_text().splitlines()) == 13


@pytest.mark.parametrize(
    ("first", "second"),
    [(["gamma"], ["gamma", "lambda_"]), (["gamma"], ["lambda_"]), (["lambda_", "gamma"], ["gamma", "w_clip"])],
)
@pytest.mark.parametrize("n_trials", [1, 6])
def test_report_of_a_study_whose_search_has_changed(tmp_path: Path, first: list, second: list, n_trials: int) -> None:
    study = random_study()
    for parts in (first, second):
        for _ in range(n_trials):
            trial, hyperparams = sample(study, search=parts)
            study.tell(trial, hyperparams.get("gamma", hyperparams.get("lambda_")))
    write_report(study, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"trials.csv", "importances.png", "slices.png", "study.md"}
    assert f"{2 * n_trials} trials: {2 * n_trials} complete." in (tmp_path / "study.md").read_text()


def test_report_of_a_study_whose_trials_are_all_the_same(tmp_path: Path) -> None:
    study = random_study()
    study.enqueue_trial({"lambda_": 0.5})
    study.enqueue_trial({"lambda_": 0.5})
    for value in (1.0, 2.0):
        study.tell(sample(study, search=["lambda_"])[0], value)
    write_report(study, tmp_path)
    assert (tmp_path / "study.md").is_file()


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("sqlite:///typo.db", "There is no storage sqlite:///typo.db: typo.db is not a file."),
        ("typo.log", "There is no storage typo.log: typo.log is not a file."),
        ("sqlite:///folder", "There is no storage sqlite:///folder: folder is not a file."),
        ("folder", "The Optuna storage folder cannot be opened: Could not parse SQLAlchemy URL"),
        ("sqlite:///own.yml", "The Optuna storage sqlite:///own.yml cannot be opened: .*file is not a database"),
        ("foo://x", "The Optuna storage foo://x cannot be opened: Can't load plugin"),
        ("sqlite:///study.db", "There is no study 'typo' in sqlite:///study.db."),
    ],
)
def test_studies_that_can_not_be_loaded(manager: Any, storage: str, message: str, tmp_path: Path) -> None:
    Path("folder").mkdir()
    Path("own.yml").write_text("default: {n_timesteps: 100, policy: MultiInputPolicy}\n" * 100)
    optuna.create_study(storage="sqlite:///study.db", study_name="study")
    before = set(tmp_path.iterdir())
    with pytest.raises(UsageError, match=message) as error:
        load_study(storage, "typo")
    assert "\n" not in str(error.value)
    for number in (0, 1):
        with pytest.raises(UsageError, match=message):
            manager(storage=storage, study_name="typo", trial_id=number).setup_experiment()
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("number", [0, 7])
def test_a_trial_that_is_not_there(manager: Any, number: int) -> None:
    storage = "sqlite:///study.db"
    optuna.create_study(storage=storage, study_name="study")
    with pytest.raises(UsageError, match=f"The study 'study' in {storage} has no trial {number}."):
        manager(storage=storage, study_name="study", trial_id=number).setup_experiment()


@pytest.mark.parametrize("storage", ["study.db", "foo://x"])
def test_a_storage_without_an_address(storage: str) -> None:
    with pytest.raises(UsageError, match=f"The Optuna storage {storage} cannot be opened"):
        open_storage(storage)
