"""The search space: what is drawn is what a model gets, and what `--trial-id` gets back."""

from pathlib import Path

import gymnasium as gym
import optuna
import pytest

from sb3_clearning import CLearning
from sb3_clearning.envs import GoalFromObservation
from sb3_clearning.zoo.search import PARTS, arguments_of, check_parts, convert_params, default_parts, sample_params
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
