"""A policy as one ONNX graph, from raw observations to actions in the environment's units."""

import contextlib
import copy
import json
import logging
import math
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn

from sb3_clearning.common.standardizing_extractor import StandardizingExtractor
from sb3_clearning.files.json_values import encode_space
from sb3_clearning.runs.model_state import package_version
from sb3_clearning.runs.vec_normalize import normalized_keys

if TYPE_CHECKING:
    from sb3_clearning.common.goal_algorithm import GoalAlgorithm
    from sb3_clearning.common.policies import CLearningPolicy

#: The ONNX operators of 2022, and the file layout that goes with them: robots have old versions of onnxruntime.
OPSET, IR_VERSION = 18, 8
#: The name of the graph's output.
OUTPUT = "action"
#: Observations that the graph is compared with `predict` on.
N_COMPARED = 64
#: The graph may differ from `predict` by this share of the action's range. Rounding stays far below, a wrong graph far above.
TOLERANCE = 1e-4


class DeployedPolicy(nn.Module):
    """
    What a robot computes: a VecNormalize's normalization, the actor's deterministic action, and the scaling to the bounds.

    :param vec_normalize: The normalization that the policy was trained with, if any
    """

    low: th.Tensor
    high: th.Tensor

    def __init__(self, policy: "CLearningPolicy", vec_normalize: VecNormalize | None):
        super().__init__()
        self.actor, self.stochastic = policy.actor, policy.stochastic_actor
        assert isinstance(policy.action_space, spaces.Box)
        device = policy.device
        self.register_buffer("low", th.as_tensor(policy.action_space.low, device=device))
        self.register_buffer("high", th.as_tensor(policy.action_space.high, device=device))
        self._normalization: dict[str, tuple[th.Tensor, th.Tensor]] = {}
        for key in normalized_keys(vec_normalize):
            assert vec_normalize is not None
            assert isinstance(vec_normalize.obs_rms, dict)
            statistics = vec_normalize.obs_rms[key]
            deviation = np.sqrt(statistics.var + vec_normalize.epsilon)
            mean, scale = (th.as_tensor(part, dtype=th.float64, device=device) for part in (statistics.mean, deviation))
            self._normalization[key] = mean, scale
        self._clip = math.inf if vec_normalize is None else float(vec_normalize.clip_obs)

    def forward(self, observations: dict[str, th.Tensor]) -> th.Tensor:
        """:return: Actions ``(batch, *action_shape)`` for raw observations"""
        observations = dict(observations)
        for key, (mean, deviation) in self._normalization.items():
            # In float64, as VecNormalize does it: a mean far from 0 would cost digits.
            scaled = (observations[key].double() - mean) / deviation
            observations[key] = scaled.clamp(-self._clip, self._clip).float()
        shares = 0.5 * (self._scaled_actions(observations).reshape(-1, *self.low.shape).to(self.low.dtype) + 1)
        # Rounding may exceed a bound, and drivers of robots refuse that.
        return (self.low + shares * (self.high - self.low)).clamp(self.low, self.high)

    def _scaled_actions(self, observations: dict[str, th.Tensor]) -> th.Tensor:
        """:return: The deterministic actions in [-1, 1]"""
        if self.stochastic:  # SB3's actor builds a distribution first, which cannot be exported
            return th.tanh(self.actor.get_action_dist_params(observations)[0])  # type: ignore[operator]
        return self.actor(observations)


def onnx_bytes(model: "GoalAlgorithm", vec_normalize: VecNormalize | None) -> bytes:
    """
    :param vec_normalize: The normalization that goes into the graph, if any
    :return: The ONNX file's bytes, after a comparison with ``model.predict``
    """
    onnx, session_class = _import_onnx()
    input_spaces = _input_spaces(model, vec_normalize)
    observations = _observations(model, vec_normalize, input_spaces)
    model.policy.set_training_mode(False)  # as `predict` does
    deployed = DeployedPolicy(model.policy, vec_normalize)
    example = {key: th.as_tensor(values[:2], device=model.device) for key, values in observations.items()}
    try:
        with _quiet():
            # Two steps: non-strict tracing accepts the Python code in features extractors.
            shapes = ({key: {0: th.export.Dim("batch")} for key in example},)
            program = th.export.export(deployed, (example,), dynamic_shapes=shapes, strict=False)
            exported = th.onnx.export(
                program, input_names=list(example), output_names=[OUTPUT], opset_version=OPSET, dynamo=True, verbose=False
            )
            assert exported is not None
            graph = exported.model_proto
        _clean(graph)
        _describe(graph, model, vec_normalize, input_spaces)
        onnx.checker.check_model(graph)
        data = graph.SerializeToString()
        session = session_class(data, providers=["CPUExecutionProvider"])
    except Exception as error:  # torch and onnx raise many kinds
        extractor = type(model.actor.features_extractor).__name__
        raise ValueError(
            f"This policy cannot be exported to ONNX, and nothing was written. Its features extractor is {extractor}: use "
            "torch operations that ONNX has, with no branch on values and no NumPy. The exporter says: "
            f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
        ) from error
    _compare(model, vec_normalize, session, observations)
    return data


def _import_onnx() -> tuple[Any, Any]:
    """:return: The module onnx, and onnxruntime's class of sessions"""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401 (torch's exporter needs it)
    except ImportError as error:
        raise ImportError(
            f'`export_policy` needs onnx, onnxruntime and onnxscript: pip install "sb3_clearning[deploy]" ({error})'
        ) from error
    return onnx, onnxruntime.InferenceSession


def _input_spaces(model: "GoalAlgorithm", vec_normalize: VecNormalize | None) -> dict[str, spaces.Space]:
    """:return: The spaces of raw observations. A model's own space has what a VecNormalize makes of them"""
    assert isinstance(model.observation_space, spaces.Dict)
    found = dict(model.observation_space.spaces)
    for key in normalized_keys(vec_normalize):
        assert vec_normalize is not None
        raw = vec_normalize.venv.observation_space
        if key not in found or not isinstance(raw, spaces.Dict) or raw[key].shape != found[key].shape:
            raise ValueError(f"`vec_normalize` normalizes {key!r}, which does not fit the model's observations {found}.")
        found[key] = raw[key]
    return found


def _observations(
    model: "GoalAlgorithm", vec_normalize: VecNormalize | None, input_spaces: Mapping[str, spaces.Space]
) -> dict[str, np.ndarray]:
    """
    :return: Raw observations ``(N_COMPARED, …)``. Half are samples of the spaces, half are where the training data was:
        samples of an unbounded space may all be clipped
    """
    extractor = model.actor.features_extractor
    rng, found = np.random.default_rng(0), {}
    for key, space in input_spaces.items():
        space = copy.deepcopy(space)
        space.seed(0)
        samples = np.stack([np.asarray(space.sample()) for _ in range(N_COMPARED)])
        statistics = extractor.statistics(key) if isinstance(extractor, StandardizingExtractor) else None
        if key in normalized_keys(vec_normalize):
            assert vec_normalize is not None
            assert isinstance(vec_normalize.obs_rms, dict)
            statistics = vec_normalize.obs_rms[key].mean, np.sqrt(vec_normalize.obs_rms[key].var)
        if statistics is not None and isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
            mean, deviation = (np.reshape(part, space.shape) for part in statistics)
            near = mean + deviation * rng.standard_normal((N_COMPARED // 2, *space.shape))
            samples[::2] = np.clip(near, space.low, space.high)
        found[key] = samples
    return found


def _compare(
    model: "GoalAlgorithm", vec_normalize: VecNormalize | None, session: Any, observations: dict[str, np.ndarray]
) -> None:
    """Raise an error unless the graph gives the actions of ``predict``, for a batch and for a single observation."""
    normalized: Any = observations if vec_normalize is None else vec_normalize.normalize_obs(observations)
    expected, _ = model.predict(normalized, deterministic=True)
    names = [one.name for one in session.get_inputs()]
    (actions,) = session.run([OUTPUT], {name: observations[name] for name in names})
    (first,) = session.run([OUTPUT], {name: observations[name][:1] for name in names})
    assert isinstance(model.action_space, spaces.Box)
    limit = TOLERANCE * (model.action_space.high - model.action_space.low)
    for found, wanted in ((actions, expected), (first, expected[:1])):
        if found.shape != wanted.shape or not (np.abs(found - wanted) <= limit).all():
            difference = np.abs(found - wanted).max() if found.shape == wanted.shape else f"the shape {found.shape}"
            raise ValueError(
                f"The exported policy differs from `predict` (by {difference}), and nothing was written. A features extractor "
                "with a branch on values, randomness, or NumPy would do that: ONNX cannot express it."
            )


def _clean(graph: Any) -> None:
    """Name the free dimension, and drop unread inputs and the exporter's notes, which name this machine's paths."""
    read = {name for node in graph.graph.node for name in node.input}
    kept = [one for one in graph.graph.input if one.name in read]
    del graph.graph.input[:]
    graph.graph.input.extend(kept)
    for value in (*graph.graph.input, *graph.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del graph.graph.value_info[:]
    for part in (graph, graph.graph, *graph.graph.node, *graph.graph.input, *graph.graph.output, *graph.graph.initializer):
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
    graph.ir_version = IR_VERSION


def _describe(
    graph: Any, model: "GoalAlgorithm", vec_normalize: VecNormalize | None, input_spaces: Mapping[str, spaces.Space]
) -> None:
    graph.producer_name, graph.producer_version = "sb3_clearning", package_version("sb3_clearning") or ""
    about = {
        "sb3_clearning": graph.producer_version,
        "algorithm": type(model).__name__,
        "num_timesteps": str(model.num_timesteps),
        "observation_space": json.dumps(encode_space(spaces.Dict(dict(input_spaces)))),
        "action_space": json.dumps(encode_space(model.action_space)),
        "normalized": json.dumps(sorted(normalized_keys(vec_normalize))),
    }
    for key, value in about.items():
        entry = graph.metadata_props.add()
        entry.key, entry.value = key, value


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's notes on packages that it could also use."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
