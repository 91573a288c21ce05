"""Saved estimators."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th

from sb3_clearning import FutureStateEstimator, HindsightQEstimator, OneStepModel, UnreadableFileError
from sb3_clearning.files.array_file import from_bytes, to_bytes
from tests.support.fitted_estimators import CASES, OBJECTS, answers, fitted, same


@pytest.mark.parametrize("case", CASES)
def test_a_loaded_estimator_answers_and_learns_as_the_saved_one(case: str, tmp_path: Path) -> None:
    estimator = fitted(case)
    expected = answers(case, estimator)
    estimator.save(tmp_path / "file")
    loaded = type(estimator).load(tmp_path / "file", **OBJECTS.get(case, {}))
    assert same(answers(case, loaded), expected)
    loaded.save(tmp_path / "again")
    (content, arrays), (again, arrays_again) = (
        from_bytes("estimator", (tmp_path / name).read_bytes()) for name in ("file", "again")
    )
    assert content == again
    assert same(list(arrays.values()), [arrays_again[name] for name in arrays])
    # All of its arguments are there, those for learning, too
    loaded.fit(CASES[case][2](), steps=5, **CASES[case][3])  # type: ignore[attr-defined]
    assert same(answers(case, loaded), expected)


def test_a_new_process_answers_the_same(tmp_path: Path) -> None:
    expected = {}
    for case in CASES:
        estimator = fitted(case)
        estimator.save(tmp_path / case)
        expected[case] = answers(case, estimator)
    subprocess.run([sys.executable, "-m", "tests.support.fitted_estimators", str(tmp_path)], check=True)
    for case, arrays in expected.items():
        with np.load(tmp_path / f"{case}.npz") as found:
            assert same(list(found.values()), arrays), case


def test_what_is_a_function_is_asked_for_when_it_is_needed(tmp_path: Path) -> None:
    estimator = fitted("function")
    estimator.save(tmp_path / "file")
    loaded = FutureStateEstimator.load(tmp_path / "file")
    assert same(answers("function", loaded, own_actions=False), answers("function", estimator, own_actions=False))
    states, goals = np.zeros((2, 2)), np.zeros((3, 1))
    with pytest.raises(ValueError, match=r"`policy` was a Python object: <function contracting.*load\(path, policy=…\)"):
        loaded.log_ratio(states, None, goals)
    with pytest.raises(ValueError, match=r"`crop` was a Python object: <function first.*load\(path, crop=…\)"):
        loaded.fit(CASES["function"][2](), steps=1)
    fitted("one step").save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"`policy` was a Python object"):
        OneStepModel.load(tmp_path / "model").expected_future_state(states, states)
    # A copy of a copy says the same
    loaded.save(tmp_path / "copy")
    with pytest.raises(ValueError, match=r"`policy` was a Python object: <function contracting"):
        FutureStateEstimator.load(tmp_path / "copy").log_ratio(states, None, goals)


def test_only_what_is_missing_can_be_passed(tmp_path: Path) -> None:
    fitted("slice").save(tmp_path / "file")
    for name in ("policy", "crop", "gamma"):
        with pytest.raises(TypeError, match=rf"needs no \['{name}'\]: only \['device'\] can be passed"):
            FutureStateEstimator.load(tmp_path / "file", **{name: 0.5})
    assert FutureStateEstimator.load(tmp_path / "file", device="cpu").device == th.device("cpu")
    fitted("function").save(tmp_path / "file")
    with pytest.raises(ValueError, match="A policy is an SB3 model, a callable, a table or None"):
        FutureStateEstimator.load(tmp_path / "file", policy="left")


def test_the_class_that_wrote_it_reads_it(tmp_path: Path) -> None:
    fitted("q").save(tmp_path / "file")
    for kind in (FutureStateEstimator, OneStepModel):
        with pytest.raises(UnreadableFileError, match=f"holds a HindsightQEstimator, not a {kind.__name__}"):
            kind.load(tmp_path / "file")
    assert HindsightQEstimator.load(tmp_path / "file").reading == "density"


def test_a_diverged_estimator_is_not_saved(tmp_path: Path) -> None:
    estimator = fitted("slice")
    assert estimator._network is not None
    next(estimator._network.parameters()).data[0] = np.nan
    with pytest.raises(ValueError, match=r"not finite.*training has diverged"):
        estimator.save(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("case", "change", "message"),
    [
        ("slice", {"hidden": [10**9, 10**9]}, "do not match the declared architecture"),
        ("slice", {"n_classifiers": 10**9}, "do not match the declared architecture"),
        ("learned policy", {"hidden": [10**9, 10**9]}, "do not match the declared architecture"),
        ("learned policy", {"crop": [5]}, "is out of range"),
        ("learned policy", {"crop": [1]}, "goals need the shape"),
        ("slice", {"seed": "now"}, "is not a saved FutureStateEstimator"),
        ("slice", {"gamma": 2}, "`gamma` must be"),
        ("slice", {"depth": 2}, r"Unknown arguments \['depth'\]"),
    ],
)
def test_a_forged_argument_is_an_error_before_it_costs_memory(
    case: str, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    fitted(case).save(path)
    content, arrays = from_bytes("estimator", path.read_bytes())
    path.write_bytes(to_bytes("estimator", {**content, "arguments": {**content["arguments"], **change}}, arrays))
    with pytest.raises(UnreadableFileError, match=message):
        CASES[case][0].load(path)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("visited", np.zeros((0, 1), np.float32)),
        ("visited", np.zeros((5, 2), np.float32)),
        ("visited", np.zeros((5, 1))),
        ("known", np.zeros((0, 2), np.float32)),
        ("known", np.zeros((5, 3), np.float32)),
        ("known_scale", np.zeros(2, np.float32)),
        ("known_scale", np.ones(3, np.float32)),
        ("network/scale", np.zeros((1, 1, 5), np.float32)),
        ("network/layers.0.weight", np.full((1, 5, 8), np.inf, np.float32)),
        ("network/extra", np.zeros(1, np.float32)),
    ],
)
def test_a_forged_array_is_an_error(name: str, array: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "file"
    fitted("slice").save(path)
    content, arrays = from_bytes("estimator", path.read_bytes())
    path.write_bytes(to_bytes("estimator", content, {**arrays, name: array}))
    with pytest.raises(UnreadableFileError, match="is not a saved FutureStateEstimator"):
        FutureStateEstimator.load(path)
