"""Agents to and from the Hugging Face Hub, as exports: files without pickle."""

import math
import pathlib
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch as th
from stable_baselines3.common.type_aliases import GymEnv

from sb3_clearning.clearning.clearning import CLearning
from sb3_clearning.common.goal_algorithm import GoalAlgorithm
from sb3_clearning.files.array_file import UnreadableFileError, read_arrays
from sb3_clearning.goal_td3.goal_td3 import GoalTD3
from sb3_clearning.runs.vec_normalize import normalized_keys

if TYPE_CHECKING:
    from huggingface_hub import HfApi

#: The agent's file in a repository.
AGENT_FILE = "agent.safetensors"
#: The Hub plays a file of this name beside the card of an agent.
FILM_NAME = "replay"
FILM_SUFFIXES = (".mp4", ".gif")

_ALGORITHMS = {algorithm.__name__: algorithm for algorithm in (CLearning, GoalTD3)}
_TAGS = ("reinforcement-learning", "deep-reinforcement-learning", "goal-conditioned", "stable-baselines3", "sb3_clearning")
_CARD = """
# {algorithm} on {env_id}

An agent of `sb3_clearning`: goal-conditioned reinforcement learning with Stable-Baselines3, without a reward function.{film}

## Use

```python
{use}
```

`{file}` holds arrays and JSON, no pickle: loading it runs no code.

## Results

{results}
{training}"""

_USE = """from sb3_clearning import load_from_hub

model = load_from_hub("{repo_id}")
action, _ = model.predict(observation, deterministic=True)"""
_USE_NORMALIZED = """from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from sb3_clearning import load_from_hub

env = VecNormalize(make_vec_env({env}), {arguments})
model = load_from_hub("{repo_id}", env)  # which gives env the statistics of the training
action, _ = model.predict(env.normalize_obs(observation), deterministic=True)"""


def push_to_hub(
    model: GoalAlgorithm,
    repo_id: str,
    results: Mapping[str, float] | None = None,
    film: str | pathlib.Path | None = None,
    env_id: str | None = None,
    private: bool | None = None,
    api: "HfApi | None" = None,
) -> str:
    """
    Upload an agent to the Hugging Face Hub (extra ``hub``) in one commit: its export, which has no pickle, a model card, and a
    film. The repository is created if it does not exist; in one that exists, these files are replaced and others are kept.

    :param repo_id: ``"user/name"`` or ``"organization/name"``
    :param results: What :func:`~sb3_clearning.evaluate_goals` returned, for the card
    :param film: An .mp4 or .gif file
    :param env_id: The environment's name on the card. None: the id of the model's environment, if it has one
    :param private: Whether a new repository is private. None: as your account's settings say
    :param api: For another token or server than those of ``hf auth login``: ``huggingface_hub.HfApi(token=…)``
    :return: The commit's address
    """
    api = _api(repo_id, api)
    if not isinstance(model, GoalAlgorithm):
        raise ValueError(f"`model` must be a CLearning or GoalTD3 model, not {type(model).__name__}.")
    shown = _checked_results(results)
    film = _checked_film(film)
    from huggingface_hub import CommitOperationAdd

    card = _card(model, repo_id, shown, film, env_id or _env_id(model))
    with tempfile.TemporaryDirectory() as folder:
        agent = pathlib.Path(folder) / AGENT_FILE
        model.export(agent)
        files: dict[str, Any] = {AGENT_FILE: agent, "README.md": card.encode()}
        if film is not None:
            files[FILM_NAME + film.suffix.lower()] = film
        additions = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=content) for name, content in files.items()]
        api.create_repo(repo_id, private=private, exist_ok=True)
        commit = api.create_commit(repo_id, additions, commit_message=f"{type(model).__name__} agent")
    return commit.commit_url


def load_from_hub(
    repo_id: str,
    env: GymEnv | str | None = None,
    device: th.device | str = "auto",
    revision: str | None = None,
    api: "HfApi | None" = None,
    **arguments: Any,
) -> CLearning | GoalTD3:
    """
    Download an agent that :func:`push_to_hub` uploaded, and build it as ``from_export`` does, with the same checks. Nothing in
    the file can run code. A file that was downloaded before is taken from huggingface_hub's cache.

    :param repo_id: ``"user/name"`` or ``"organization/name"``
    :param env: The environment to learn in. Prediction needs none
    :param revision: A branch, a tag or a commit. Name a commit to get the same agent always
    :param api: For another token or server than those of ``hf auth login``: ``huggingface_hub.HfApi(token=…)``
    :param arguments: Arguments that replace the exported ones
    :return: The model, of the class that was uploaded
    """
    api = _api(repo_id, api)
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        path = pathlib.Path(api.hf_hub_download(repo_id, AGENT_FILE, revision=revision))
    except LocalEntryNotFoundError:  # no connection, and nothing in the cache
        raise
    except EntryNotFoundError as error:
        raise UnreadableFileError(
            f"{repo_id} has no {AGENT_FILE}, so `push_to_hub` did not upload it. An SB3 agent (.zip) is loaded with the "
            "package huggingface_sb3; it holds pickles, which can run code."
        ) from error
    content, _ = read_arrays(path, "export")
    algorithm = _ALGORITHMS.get(str(content.get("algorithm")))
    if algorithm is None:
        raise UnreadableFileError(
            f"{repo_id} holds a {str(content.get('algorithm'))[:50]}, not a CLearning or GoalTD3. Download {AGENT_FILE} with "
            "huggingface_hub's `hf_hub_download`, and call `from_export` of the class that wrote it."
        )
    return algorithm.from_export(path, env, device, **arguments)


def _api(repo_id: str, api: "HfApi | None") -> "HfApi":
    """:return: The given client of the Hub, or one with the defaults; after a check of the repository's name"""
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.utils import validate_repo_id
    except ImportError as error:
        raise ImportError(
            f'`push_to_hub` and `load_from_hub` need huggingface_hub: pip install "sb3_clearning[hub]" ({error})'
        ) from error
    if api is not None and not isinstance(api, HfApi):
        raise ValueError(f"`api` must be a huggingface_hub.HfApi or None, not {type(api).__name__}.")
    try:
        validate_repo_id(repo_id)
        valid = isinstance(repo_id, str) and "/" in repo_id
        reason = ""
    except ValueError as error:
        valid, reason = False, f" ({error})"
    if not valid:
        raise ValueError(f"`repo_id` must be 'user/name' or 'organization/name', not {repo_id!r}{reason}.")
    return api or HfApi()


def _checked_results(results: Mapping[str, float] | None) -> dict[str, float]:
    if results is None:
        return {}
    if not isinstance(results, Mapping):
        raise ValueError(f"`results` must be a dict as `evaluate_goals` returns, not {type(results).__name__}.")
    try:
        numbers = {str(name): float(value) for name, value in results.items()}
    except (TypeError, ValueError) as error:
        raise ValueError(f"`results` must have a number for each name, as `evaluate_goals` returns ({error}).") from error
    # Those that the environment does not report are NaN, which is not in the metadata's format.
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def _checked_film(film: str | pathlib.Path | None) -> pathlib.Path | None:
    if film is None:
        return None
    if not isinstance(film, (str, pathlib.Path)) or pathlib.Path(film).suffix.lower() not in FILM_SUFFIXES:
        raise ValueError(f"`film` must be the path of an .mp4 or .gif file, not {film!r}.")
    if not pathlib.Path(film).is_file():
        raise ValueError(f"There is no file {film} (`film`).")
    return pathlib.Path(film)


def _env_id(model: GoalAlgorithm) -> str | None:
    """:return: The id of the environment that the model learns in, if it has both"""
    env = model.get_env()
    try:
        spec = None if env is None else env.get_attr("spec", 0)[0]
    except AttributeError:  # a VecEnv that is no collection of Gymnasium environments
        return None
    return None if spec is None else spec.id


def _card(model: GoalAlgorithm, repo_id: str, results: dict[str, float], film: pathlib.Path | None, env_id: str | None) -> str:
    """:return: The model card: metadata that the Hub reads, and text"""
    from huggingface_hub import EvalResult, ModelCardData

    algorithm, named = type(model).__name__, env_id or "custom-environment"
    measured = [
        EvalResult(
            task_type="reinforcement-learning",
            task_name="reinforcement-learning",
            dataset_name=named,
            dataset_type=named,
            metric_type=name,
            metric_name=_METRIC_NAMES.get(name, name),
            metric_value=round(value, 4),
        )
        for name, value in results.items()
    ]
    # With the library "stable-baselines3" the Hub would show code that loads a .zip.
    data = ModelCardData(
        library_name="sb3_clearning",
        pipeline_tag="reinforcement-learning",
        tags=[*_TAGS, *([env_id] if env_id else [])],
        model_name=algorithm if measured else None,
        eval_results=measured or None,
    )
    rows = [f"| {_METRIC_NAMES.get(name, name)} | {value:.4g} |" for name, value in results.items()]
    steps, updates = model.progress
    text = _CARD.format(
        algorithm=algorithm,
        env_id=env_id or "an environment of its author",
        use=_use(model, repo_id, env_id),
        file=AGENT_FILE,
        film=_film_text(film),
        results="\n".join(["| mean over the episodes | value |", "|---|---|", *rows]) if rows else "None were given.",
        # An agent that was loaded from an export does not know them.
        training=f"\nTrained for {steps:,} steps of the environment and {updates:,} updates.\n" if updates else "",
    )
    return f"---\n{data.to_yaml()}\n---\n{text}"


def _use(model: GoalAlgorithm, repo_id: str, env_id: str | None) -> str:
    """:return: The card's code, with the normalization that the agent needs"""
    normalize = model.get_vec_normalize_env()
    if normalize is None or not normalized_keys(normalize):
        return _USE.format(repo_id=repo_id)
    arguments = (
        f"norm_obs_keys={sorted(normalized_keys(normalize))}, clip_obs={normalize.clip_obs}, epsilon={normalize.epsilon}"
    )
    # A name stands for a function that makes the environment.
    env = "make_env" if env_id is None else f'"{env_id}"'
    return _USE_NORMALIZED.format(repo_id=repo_id, env=env, arguments=arguments)


def _film_text(film: pathlib.Path | None) -> str:
    if film is None:
        return ""
    name = FILM_NAME + film.suffix.lower()
    return f"\n\n![The agent]({name})" if name.endswith(".gif") else f"\n\n[A film of the agent]({name})"


_METRIC_NAMES = {
    "success": "success rate",
    "success_any_time": "success at any time",
    "initial_success": "success at the reset",
    "initial": "initial distance",
    "final": "final distance",
    "minimum": "minimum distance",
    "average": "average distance",
    "change": "change of the distance",
}
