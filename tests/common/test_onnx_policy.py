"""An exported policy does what `predict` does, without this package."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_clearning import CLearning, DivergedError, GoalTD3
from sb3_clearning.common.goal_algorithm import GoalAlgorithm
from sb3_clearning.files.json_values import decode_space
from tests.support.goal_envs import ImageGoalEnv, PointEnv
from tests.support.small_models import small_model

ROOT = Path(__file__).parents[2]
TASKS = sorted(path.stem for path in (ROOT / "trained_agents" / "clearning").glob("*/*.zip"))
N = 1000


class Bounded(PointEnv):
    """A point with other bounds of its actions, and with all spaces in float64."""

    def __init__(self, low: float | list[float], high: float | list[float], dtype: Any = np.float64):
        super().__init__(dtype=dtype)
        self.action_space = spaces.Box(np.full(2, low, dtype), np.full(2, high, dtype), dtype=dtype)

    def step(self, action: np.ndarray) -> Any:
        assert self.action_space.contains(np.asarray(action, dtype=self.action_space.dtype))
        self._move(0.05 * action)
        self.steps += 1
        return self._observation(), 0.0, False, self.steps == self.length, {}


class Far(Bounded):
    """The same 1,000 units away, where float32 has 4 digits left: normalization has to come before it."""

    def _observation(self) -> dict[str, np.ndarray]:
        return {key: 1000 + value for key, value in super()._observation().items()}

    def __init__(self) -> None:
        super().__init__([0.0, -7.0], [5.0, 1.0])
        box = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        whole = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.observation_space = spaces.Dict(observation=whole, achieved_goal=box, desired_goal=box)


def observations(space: spaces.Dict, scale: float = 1.0, shift: float = 0.0, seed: int = 1) -> dict[str, np.ndarray]:
    """:return: Observations of a space, also beyond its bounds, and where it has none"""
    rng, found = np.random.default_rng(seed), {}
    for key, part in space.items():
        part.seed(seed)
        if isinstance(part, spaces.Box) and part.dtype != np.uint8:
            found[key] = (shift + scale * rng.standard_normal((N, *part.shape))).astype(part.dtype)
        else:
            found[key] = np.stack([np.asarray(part.sample()) for _ in range(N)])
    return found


def session(path: Path) -> Any:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def both(
    model: GoalAlgorithm, path: Path, obs: dict[str, np.ndarray], normalize: VecNormalize | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """:return: The actions of the file, as a batch and one by one; they must be those of `predict`, which are returned, too"""
    policy = session(path)
    names = [one.name for one in policy.get_inputs()]
    (actions,) = policy.run(None, {name: obs[name] for name in names})
    (first,) = policy.run(None, {name: obs[name][:1] for name in names})
    expected, _ = model.predict(obs if normalize is None else normalize.normalize_obs(obs), deterministic=True)
    np.testing.assert_allclose(first, actions[:1], rtol=0, atol=1e-5)
    assert actions.dtype == expected.dtype == model.action_space.dtype
    assert actions.shape == expected.shape
    assert (actions >= model.action_space.low).all()  # type: ignore[attr-defined]
    assert (actions <= model.action_space.high).all()  # type: ignore[attr-defined]
    return actions, expected


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "default, with further keys": (lambda: PointEnv(extra=True), {}),
    "stochastic actor, actions of two axes": (
        lambda: PointEnv(action_shape=(2, 1)),
        {"policy_kwargs": {"stochastic_actor": True}},
    ),
    "bounds [0, 5], not standardized": (lambda: Bounded(0.0, 5.0, np.float32), {"policy_kwargs": {"standardize": False}}),
    "asymmetric bounds, float64": (lambda: Bounded([-3.0, 0.5], [0.25, 4.0]), {}),
    "images": (
        lambda: ImageGoalEnv(False),
        {"policy_kwargs": {"features_extractor_kwargs": {"cnn_output_dim": 8}}, "learning_rate": 3e-4},
    ),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] if case.startswith("bounds") else []) for case in CASES]
)
def test_actions_are_those_of_predict(case: str, tmp_path: Path) -> None:
    make, arguments = CASES[case]
    model = small_model(make(), **arguments).learn(40)
    path = tmp_path / "policy.onnx"
    model.export_policy(path)
    assert isinstance(model.observation_space, spaces.Dict)
    actions, expected = both(model, path, observations(model.observation_space, 0.7))
    assert np.ptp(expected, axis=0).min() > 0.01  # they depend on the observation
    np.testing.assert_allclose(actions, expected, rtol=0, atol=1e-6)
    assert {one.name for one in session(path).get_inputs()} == set(model.observation_space.spaces)
    assert all(one.shape[0] == "batch" for one in session(path).get_inputs())
    about = session(path).get_modelmeta().custom_metadata_map
    assert decode_space(json.loads(about["observation_space"])) == model.observation_space
    assert decode_space(json.loads(about["action_space"])) == model.action_space
    assert about["algorithm"] == "CLearning"
    assert about["num_timesteps"] == "40"
    assert str(ROOT).encode() not in path.read_bytes()  # nor anything else of the machine that trained


def test_the_action_is_the_tanh_scaled_to_the_bounds(tmp_path: Path) -> None:
    model = GoalTD3(
        "MultiInputPolicy", Bounded([-3.0, 0.0], [1.0, 5.0]), buffer_size=10, policy_kwargs={"net_arch": [8]}, device="cpu"
    )
    layer: Any = model.actor.mu[-2]
    with th.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(th.tensor([0.4, 30.0]))
    model.export_policy(str(tmp_path / "policy.onnx"))
    (action,) = session(tmp_path / "policy.onnx").run(
        None, {key: np.zeros((1, n)) for key, n in (("observation", 3), ("achieved_goal", 2), ("desired_goal", 2))}
    )
    np.testing.assert_allclose(action, [[-3 + 2 * (np.tanh(0.4) + 1), 5.0]], rtol=0, atol=1e-6)


def test_normalization_is_in_the_graph(tmp_path: Path) -> None:
    env = VecNormalize(DummyVecEnv([Far]), norm_obs_keys=["observation", "achieved_goal", "desired_goal"], clip_obs=2.0)
    model = small_model(env).learn(60)
    model.export_policy(tmp_path / "policy.onnx")
    raw = env.venv.observation_space
    assert isinstance(raw, spaces.Dict)
    obs = observations(raw, shift=1000.0)
    actions, expected = both(model, tmp_path / "policy.onnx", obs, env)
    assert np.ptp(expected, axis=0).min() > 0.01
    np.testing.assert_allclose(actions, expected, rtol=0, atol=1e-6)
    # A loaded model has no environment, so that the statistics have to be given.
    model.save(tmp_path / "model.zip")
    loaded = CLearning.load(tmp_path / "model.zip", device="cpu")
    loaded.export_policy(tmp_path / "loaded.onnx", vec_normalize=env)
    np.testing.assert_array_equal(both(loaded, tmp_path / "loaded.onnx", obs, env)[0], actions)


class OnlyGoals(BaseFeaturesExtractor):
    """Reads two of three keys."""

    def __init__(self, observation_space: spaces.Dict):
        super().__init__(observation_space, features_dim=2)

    def forward(self, obs: Any) -> th.Tensor:
        return obs["desired_goal"] - obs["achieved_goal"]


def test_a_key_that_the_actor_does_not_read_is_no_input(tmp_path: Path) -> None:
    model = small_model(PointEnv(), policy_kwargs={"features_extractor_class": OnlyGoals}).learn(20)
    model.export_policy(tmp_path / "policy.onnx")
    assert {one.name for one in session(tmp_path / "policy.onnx").get_inputs()} == {"desired_goal", "achieved_goal"}
    assert isinstance(model.observation_space, spaces.Dict)
    actions, expected = both(model, tmp_path / "policy.onnx", observations(model.observation_space))
    np.testing.assert_allclose(actions, expected, rtol=0, atol=1e-6)


class Branches(OnlyGoals):
    """Python decides by the values, which a graph cannot."""

    def forward(self, obs: Any) -> th.Tensor:
        return obs["desired_goal"] if obs["observation"].sum() > 0 else obs["achieved_goal"]


class Drifts(OnlyGoals):
    """Its output depends on how often it was called."""

    calls = 0

    def forward(self, obs: Any) -> th.Tensor:
        Drifts.calls += 1
        return super().forward(obs) + 5.0 * Drifts.calls


@pytest.mark.parametrize(
    ("extractor", "message"),
    [(Branches, "cannot be exported to ONNX, and nothing was written.*Branches"), (Drifts, "differs from `predict`")],
)
def test_what_cannot_be_exported_leaves_the_old_file(extractor: type, message: str, tmp_path: Path) -> None:
    model = small_model(PointEnv(), policy_kwargs={"features_extractor_class": extractor})
    path = tmp_path / "policy.onnx"
    path.write_text("old")
    with pytest.raises(ValueError, match=message):
        model.export_policy(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_diverged_model_is_not_exported(tmp_path: Path) -> None:
    model = small_model(PointEnv())
    with th.no_grad():
        next(model.actor.parameters())[0] = th.nan
    with pytest.raises(DivergedError, match="not finite"):
        model.export_policy(tmp_path / "policy.onnx")
    assert not any(tmp_path.iterdir())


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r'pip install "sb3_clearning\[deploy\]"'):
        small_model(PointEnv()).export_policy(tmp_path / "policy.onnx")


# In float64 every action is that of `predict` to 1e-6. In float32 the sums of these networks are exact to some 1e-6 only:
# `predict` differs by that much from float64, and also between a batch and its single observations. So the mean is compared.
@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=[] if task == "SawyerWindow-v0" else [pytest.mark.slow]) for task in TASKS]
)
def test_every_trained_agent(task: str, tmp_path: Path) -> None:
    model = CLearning.load(ROOT / "trained_agents" / "clearning" / f"{task}_1" / f"{task}.zip", device="cpu")
    model.export_policy(tmp_path / "policy.onnx")
    extractor: Any = model.actor.features_extractor
    rng, obs = np.random.default_rng(0), {}
    assert isinstance(model.observation_space, spaces.Dict)
    for key, space in model.observation_space.items():
        mean, deviation = extractor.statistics(key)
        obs[key] = (mean + deviation * rng.standard_normal((N, len(mean)))).astype(space.dtype)
    actions, expected = both(model, tmp_path / "policy.onnx", obs)
    assert np.abs(actions - expected).mean() < 1e-6
    np.testing.assert_allclose(actions, expected, rtol=0, atol=1e-5)
    model.policy.double()
    model.export_policy(tmp_path / "double.onnx")
    policy = session(tmp_path / "double.onnx")
    (exact,) = policy.run(None, {one.name: obs[one.name] for one in policy.get_inputs()})
    np.testing.assert_allclose(exact, model.predict(obs, deterministic=True)[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(exact, expected, rtol=0, atol=1e-5)


def test_the_file_runs_without_this_package(tmp_path: Path) -> None:
    model = small_model(PointEnv()).learn(20)
    model.export_policy(tmp_path / "policy.onnx")
    obs, _ = PointEnv().reset(seed=0)
    np.savez(tmp_path / "obs.npz", **obs)
    code = """
import sys
for name in ("torch", "sb3_clearning", "stable_baselines3", "gymnasium"):
    sys.modules[name] = None
import numpy as np, onnxruntime
policy = onnxruntime.InferenceSession("policy.onnx")
obs = np.load("obs.npz")
print(*policy.run(["action"], {key: obs[key][None] for key in obs})[0][0])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    expected, _ = model.predict(obs, deterministic=True)
    np.testing.assert_allclose([float(word) for word in done.stdout.split()], expected, rtol=0, atol=1e-6)
