"""A model as arrays and JSON, for checkpoints and exports: its arguments, spaces, weights and optimizers."""

from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch as th
from gymnasium import spaces
from gymnasium.spaces import flatdim
from stable_baselines3.common.vec_env import VecEnv

from sb3_clearning.files.array_file import UnreadableFileError, under_prefix
from sb3_clearning.files.json_values import NotPlainError, decode, decode_space, encode, encode_arguments, encode_space

if TYPE_CHECKING:
    from sb3_clearning.runs.model_files import ModelFiles
    from sb3_clearning.runs.resumable_td3 import ResumableTD3

Model = TypeVar("Model", bound="ModelFiles")

_PACKAGES = ("sb3_clearning", "stable_baselines3", "torch", "numpy", "gymnasium")


@cache
def package_version(package: str) -> str | None:
    """:return: The installed version of a package, or None"""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class DivergedError(ValueError):
    """Training has diverged."""

    def __init__(self, what: str):
        super().__init__(f"{what}: training has diverged. Use a lower `learning_rate` or `w_clip` (of CLearning).")


def check_finite_weights(model: "ResumableTD3") -> None:
    """Raise an error if training has diverged, before a good file is replaced by one that nobody can use."""
    for name, tensor in model.policy.state_dict().items():
        if tensor.is_floating_point() and not th.isfinite(tensor).all():
            raise DivergedError(f"The weights `{name}` are not finite")


def snapshot_model(model: "ResumableTD3") -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """:return: The JSON part of a model, and the arrays of its weights and optimizers"""
    arguments, not_held = encode_arguments({"policy": model.policy_class, **model.constructor_arguments()})
    content: dict[str, Any] = {
        "algorithm": type(model).__name__,
        "versions": {package: package_version(package) for package in _PACKAGES},
        "arguments": arguments,
        "not_held": not_held,
        "observation_space": encode_space(model.observation_space),
        "action_space": encode_space(model.action_space),
        "n_envs": model.n_envs,
        "device": str(model.device),
        "groups": {},
    }
    _, others = model._get_torch_save_params()  # noqa: SLF001 (SB3's hook for what `save` writes)
    if others:
        raise NotPlainError(f"{type(model).__name__} has other tensors to save, {others}, which this file cannot hold.")
    arrays: dict[str, np.ndarray] = {}
    for owner, state in model.get_parameters().items():
        if owner == "policy":
            arrays.update({f"policy/{name}": tensor.detach().cpu().numpy() for name, tensor in state.items()})
            continue
        content["groups"][owner] = encode(state["param_groups"])
        for index, slots in state["state"].items():
            for slot, value in slots.items():
                if value is not None:
                    arrays[f"{owner}/{index}/{slot}"] = th.as_tensor(value).detach().cpu().numpy()
    return content, arrays


def build_model(
    algorithm: type[Model],
    content: dict[str, Any],
    arrays: dict[str, np.ndarray],
    env: VecEnv | None,
    device: th.device | str | None,
    given: dict[str, Any],
    where: str,
) -> Model:
    """
    :param env: None: for prediction only
    :param device: None: the saved one, if it is available
    :param given: Arguments that replace the saved ones
    :return: A model with the arguments, weights and optimizers of :func:`snapshot_model`. Errors name it ``where``
    """
    if content.get("algorithm") != algorithm.__name__:
        raise UnreadableFileError(
            f"{where} holds a {str(content.get('algorithm'))[:50]}, not a {algorithm.__name__}: load it with the class that "
            "wrote it."
        )
    missing = {name: value for name, value in content["not_held"].items() if name not in given}
    if missing:
        again = ", ".join(f"{name}=…" for name in missing)
        raise UnreadableFileError(
            f"{where} holds only plain data, and these arguments are Python objects: {missing}. Pass them again: ({again})."
        )
    arguments = {name: decode(value) for name, value in content["arguments"].items() if name not in given}
    saved_spaces = (decode_space(content["observation_space"]), decode_space(content["action_space"]))
    _check_sizes(arguments.get("policy_kwargs"), saved_spaces, sum(array.size for array in arrays.values()), where)
    if device is None:
        device = "cpu" if content["device"] == "cpu" else "auto"
    if env is None:
        model = algorithm.from_spaces(*saved_spaces, device=device, **{**arguments, **given})
    else:
        ours = (env.observation_space, env.action_space)
        if ours != saved_spaces:
            raise UnreadableFileError(f"The environment's spaces {ours} are not those of {where}: {saved_spaces}.")
        model = algorithm(env=env, device=device, **{**arguments, **given})
    restore_parameters(model, content, arrays, where)
    return model


def _check_sizes(policy_kwargs: Any, saved_spaces: tuple[spaces.Space, ...], n_numbers: int, where: str) -> None:
    """Raise an error before networks are built that are larger than the weights in the file."""
    n_critics = policy_kwargs.get("n_critics", 1) if isinstance(policy_kwargs, dict) else 1
    for sizes in _lists_of_numbers(policy_kwargs):
        layers = [1, *sizes, 1]
        if any(a * b * n_critics > n_critics + n_numbers for a, b in pairwise(layers)):
            raise UnreadableFileError(f"{where}: stored weights do not match the declared architecture {str(sizes)[:100]}.")
    if sum(flatdim(space) for space in saved_spaces) > max(n_numbers, 2**20):
        raise UnreadableFileError(f"{where}: stored weights do not match the declared spaces.")


def _lists_of_numbers(value: Any) -> Iterator[list[int]]:
    if isinstance(value, int) and not isinstance(value, bool):
        yield [value]
    elif isinstance(value, (list, tuple)):
        yield [item for item in value if isinstance(item, int)]
        for item in value:
            if not isinstance(item, int):
                yield from _lists_of_numbers(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _lists_of_numbers(item)


def restore_parameters(model: "ResumableTD3", content: dict[str, Any], arrays: dict[str, np.ndarray], where: str) -> None:
    """Set weights and optimizers from what :func:`snapshot_model` returned, after a check against the model's own."""
    own = model.get_parameters()
    ours = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in own["policy"].items()}
    weights = {name: _tensor(array) for name, array in under_prefix(arrays, "policy/").items()}
    weights = model.policy.upgraded(weights)
    theirs = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in weights.items()}
    if ours != theirs:
        different = sorted(name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name))
        raise UnreadableFileError(f"{where}: stored weights do not match these networks; {str(different)[:200]} differ.")
    states = {
        owner: _optimizer_state(owner, own[owner], content["groups"].get(owner), arrays, model, where)
        for owner in own
        if owner != "policy"
    }
    parameters: dict[str, Any] = {"policy": weights, **states}
    model.set_parameters(parameters, exact_match=True, device=model.device)


def _optimizer_state(
    owner: str, own: dict[str, Any], groups: Any, arrays: dict[str, np.ndarray], model: "ResumableTD3", where: str
) -> dict[str, Any]:
    """:return: The optimizer's state for its ``load_state_dict``, checked against the fresh one's"""
    groups = decode(groups)

    def kinds(given: Any) -> list[dict[str, str]]:
        return [{key: _kind(value) for key, value in group.items()} for group in given]

    if not isinstance(groups, list) or kinds(groups) != kinds(own["param_groups"]):
        raise UnreadableFileError(f"{where}: the settings of `{owner}` do not match.")
    if [group["params"] for group in groups] != [group["params"] for group in own["param_groups"]]:
        raise UnreadableFileError(f"{where}: the state of `{owner}` belongs to other parameters.")
    part: Any = model
    for name in owner.split("."):
        part = getattr(part, name)
    parameters = [parameter for group in part.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, th.Tensor]] = {}
    for name, array in under_prefix(arrays, f"{owner}/").items():
        index, _, slot = name.partition("/")
        if not index.isascii() or not index.isdigit() or int(index) >= len(parameters) or not slot.isidentifier():
            raise UnreadableFileError(f"{where}: the state '{owner}/{name}' belongs to no parameter.")
        if array.shape not in ((), tuple(parameters[int(index)].shape)) or array.dtype.kind not in "fiu":
            raise UnreadableFileError(f"{where}: shape mismatch of the state '{owner}/{name}' and its parameter.")
        state.setdefault(int(index), {})[slot] = _tensor(array)
    if len({frozenset(slots) for slots in state.values()}) > 1:
        raise UnreadableFileError(f"{where}: the state of `{owner}` is incomplete.")
    return {"state": state, "param_groups": groups}


def _kind(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} of {len(value)}"
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def _tensor(array: np.ndarray) -> th.Tensor:
    return th.from_numpy(array.copy())
