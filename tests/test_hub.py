"""Agents to and from a server on this machine that answers as the Hugging Face Hub does."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import TD3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import sb3_clearning.envs  # noqa: F401 (registers the gridworld)
from sb3_clearning import CLearning, GoalTD3, UnreadableFileError, evaluate_goals, load_from_hub, push_to_hub
from sb3_clearning.files.array_file import from_bytes, to_bytes
from tests.support.goal_envs import PointEnv, make
from tests.support.small_models import same, small_model, weights

huggingface_hub = pytest.importorskip("huggingface_hub")
yaml = pytest.importorskip("yaml")

from tests.support.hub_server import HubServer, as_default_hub, oid, running_hub  # noqa: E402 (after the extra is found)

REPO = "someone/point"


@pytest.fixture(scope="module")
def server() -> Iterator[HubServer]:
    with running_hub() as server:
        yield server


@pytest.fixture
def hub(server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubServer:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    for record in (server.commits, server.private, server.requests):
        record.clear()
    return server


@pytest.fixture
def api(hub: HubServer) -> Any:
    return huggingface_hub.HfApi(endpoint=hub.url, token=hub.token)


def metadata(hub: HubServer) -> dict[str, Any]:
    return yaml.safe_load(hub.files(REPO)["README.md"].decode().split("---\n")[1])


def test_the_same_agent_comes_back(hub: HubServer, api: Any) -> None:
    model = small_model(PointEnv(), gamma=0.9).learn(30)
    url = push_to_hub(model, REPO, private=True, api=api)
    assert url == f"{hub.url}/{REPO}/commit/{oid(REPO, 1)}"
    assert hub.private == {REPO: True}
    agent = load_from_hub(REPO, api=api, device="cpu")
    assert type(agent) is CLearning
    assert same(weights(model), weights(agent))
    assert agent.gamma == 0.9
    obs, _ = PointEnv().reset(seed=0)
    np.testing.assert_array_equal(model.predict(obs, deterministic=True)[0], agent.predict(obs, deterministic=True)[0])
    # Python objects and other arguments may be passed, as to `from_export`.
    assert load_from_hub(REPO, PointEnv(), "cpu", api=api, learning_rate=0.5).learning_rate == 0.5


def test_what_is_uploaded_is_the_export_and_no_pickle(hub: HubServer, api: Any, tmp_path: Path) -> None:
    model = small_model(PointEnv(), tensorboard_log="/home/someone/secret").learn(15)
    push_to_hub(model, REPO, api=api)
    model.export(tmp_path / "agent")
    files = hub.files(REPO)
    assert set(files) == {"agent.safetensors", "README.md"}
    uploaded, exported = (
        from_bytes("export", data) for data in (files["agent.safetensors"], (tmp_path / "agent").read_bytes())
    )
    assert uploaded[0] == exported[0]
    for name, array in exported[1].items():
        np.testing.assert_array_equal(uploaded[1][name], array)
    assert b"secret" not in files["agent.safetensors"]
    assert b"secret" not in files["README.md"]


def test_card(hub: HubServer, api: Any, tmp_path: Path) -> None:
    (tmp_path / "film.MP4").write_bytes(b"pictures")
    model = small_model(gym.make("ContinuousGridworld-v0", max_episode_steps=5)).learn(20)
    results = evaluate_goals(model, gym.make("ContinuousGridworld-v0", max_episode_steps=5), 4)
    push_to_hub(model, REPO, {**results, "success": 0.75, "initial_success": float("nan")}, tmp_path / "film.MP4", api=api)
    assert hub.files(REPO)["replay.mp4"] == b"pictures"
    head, text = metadata(hub), hub.files(REPO)["README.md"].decode()
    assert {"stable-baselines3", "reinforcement-learning", "ContinuousGridworld-v0"} <= set(head["tags"])
    (entry,) = head["model-index"]
    assert entry["name"] == "CLearning"
    (measured,) = entry["results"]
    assert measured["dataset"]["name"] == "ContinuousGridworld-v0"
    values = {metric["type"]: metric["value"] for metric in measured["metrics"]}
    assert values["success"] == 0.75
    assert values["final"] == pytest.approx(results["final"], abs=1e-4)
    assert "nan" not in text, "NaN is no number in the metadata"
    for line in ("| success rate | 0.75 |", "replay.mp4", f'load_from_hub("{REPO}")'):
        assert line in text
    assert "20 steps of the environment and 8 updates" in text


@pytest.mark.parametrize("env_id", [None, "My robot"])
def test_card_without_results(env_id: str | None, hub: HubServer, api: Any, tmp_path: Path) -> None:
    (tmp_path / "film.gif").write_bytes(b"pictures")
    model = CLearning.from_spaces(PointEnv().observation_space, PointEnv().action_space, buffer_size=10, device="cpu")
    push_to_hub(model, REPO, film=str(tmp_path / "film.gif"), env_id=env_id, api=api)
    assert "model-index" not in metadata(hub)
    text = hub.files(REPO)["README.md"].decode()
    assert "![The agent](replay.gif)" in text
    assert (env_id or "an environment of its author") in text
    assert "updates" not in text


@pytest.mark.parametrize("normalized", [False, True])
def test_the_code_of_the_card_gives_the_actions_of_the_agent(
    normalized: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env: Any = DummyVecEnv([lambda: gym.make("ContinuousGridworld-v0", max_episode_steps=5)])
    if normalized:
        env = VecNormalize(env, norm_obs_keys=["observation", "desired_goal"], clip_obs=1.5)
    model = small_model(env).learn(20)
    observation, _ = gym.make("ContinuousGridworld-v0").reset(seed=0)
    with as_default_hub(monkeypatch, tmp_path / "cache") as hub:
        push_to_hub(model, REPO)
        code = hub.files(REPO)["README.md"].decode().split("```python\n")[1].split("```")[0]
        names = {"observation": observation}
        exec(code, names)
    seen: Any = env.normalize_obs(observation) if normalized else observation
    assert all(normalized == (not np.allclose(seen[key], observation[key])) for key in ("observation", "desired_goal"))
    np.testing.assert_allclose(names["action"], model.predict(seen, deterministic=True)[0], atol=1e-6)


def test_second_push_is_a_commit_and_the_first_can_still_be_loaded(hub: HubServer, api: Any) -> None:
    first, second = small_model(PointEnv(), seed=1), small_model(PointEnv(), seed=2)
    push_to_hub(first, REPO, api=api)
    hub.commits[REPO][-1]["notes.txt"] = b"kept"
    push_to_hub(second, REPO, api=api)
    assert len(hub.commits[REPO]) == 3
    assert hub.files(REPO)["notes.txt"] == b"kept"
    assert same(weights(load_from_hub(REPO, api=api, device="cpu")), weights(second))
    assert same(weights(load_from_hub(REPO, api=api, device="cpu", revision=oid(REPO, 1))), weights(first))


def test_other_algorithm_and_normalization(hub: HubServer, api: Any) -> None:
    baseline = GoalTD3("MultiInputPolicy", PointEnv(), buffer_size=50, policy_kwargs={"net_arch": [8]}, device="cpu")
    push_to_hub(baseline, REPO, api=api)
    assert type(load_from_hub(REPO, api=api)) is GoalTD3
    push_to_hub(small_model(VecNormalize(DummyVecEnv([make(PointEnv)]))).learn(20), REPO, api=api)
    with pytest.raises(UnreadableFileError, match="exported with a VecNormalize"):
        load_from_hub(REPO, PointEnv(), api=api)


def test_files_that_are_no_export_are_refused(hub: HubServer, api: Any) -> None:
    push_to_hub(small_model(PointEnv()), REPO, api=api)
    content, arrays = from_bytes("export", hub.files(REPO)["agent.safetensors"])
    forged = {
        "was not written by sb3_clearning": b"no export",
        "checksum does not match": hub.files(REPO)["agent.safetensors"].replace(b"CLearning", b"XLearning"),
        "holds 'sb3_clearning.buffer'": to_bytes("buffer", content, arrays),
        "holds a Own, not a CLearning or GoalTD3": to_bytes("export", {**content, "algorithm": "Own"}, arrays),
        "stored weights do not match these networks": to_bytes("export", {**content, "arguments": {}}, arrays),
    }
    for message, data in forged.items():
        hub.commits[REPO].append({"agent.safetensors": data})
        with pytest.raises(UnreadableFileError, match=message):
            load_from_hub(REPO, api=api)
    hub.commits[REPO].append({"model.zip": b"a pickle"})
    with pytest.raises(UnreadableFileError, match=r"someone/point has no agent\.safetensors"):
        load_from_hub(REPO, api=api)
    with pytest.raises(huggingface_hub.errors.RepositoryNotFoundError):
        load_from_hub("someone/nothing", api=api)


def test_wrong_inputs_send_nothing(hub: HubServer, api: Any, tmp_path: Path) -> None:
    (tmp_path / "film.avi").write_bytes(b"")
    model = small_model(PointEnv())
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("`model` must be a CLearning or GoalTD3 model, not TD3", {"model": TD3("MlpPolicy", gym.make("Pendulum-v1"))}),
        ("`model` must be .*, not str", {"model": "reach.zip"}),
        ("`repo_id` must be 'user/name'", {"repo_id": "point"}),
        ("`repo_id` must be 'user/name'", {"repo_id": "a/b/c"}),
        ("`repo_id` must be 'user/name'", {"repo_id": "some one/point"}),
        ("`repo_id` must be 'user/name'", {"repo_id": None}),
        ("`results` must be a dict", {"results": 0.9}),
        ("`results` must have a number for each name", {"results": {"success": "all"}}),
        ("`film` must be the path of an .mp4 or .gif", {"film": tmp_path / "film.avi"}),
        ("`film` must be the path", {"film": 3}),
        ("There is no file", {"film": tmp_path / "film.mp4"}),
        ("`api` must be a huggingface_hub.HfApi or None, not str", {"api": "hf_token"}),
    ]
    for message, change in wrong:
        with pytest.raises(ValueError, match=message):
            push_to_hub(**{"model": model, "repo_id": REPO, "api": api, **change})
    next(model.actor.parameters()).data.fill_(float("inf"))
    with pytest.raises(ValueError, match="diverged"):
        push_to_hub(model, REPO, api=api)
    assert hub.requests == []


def test_without_a_connection_the_cache_is_used(hub: HubServer, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(PointEnv())
    push_to_hub(model, REPO, api=api)
    load_from_hub(REPO, api=api)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert same(weights(load_from_hub(REPO, api=api, device="cpu")), weights(model))
    with pytest.raises(huggingface_hub.errors.LocalEntryNotFoundError):
        load_from_hub("someone/other", api=api)


def test_without_a_valid_token_the_hub_says_so(hub: HubServer) -> None:
    api = huggingface_hub.HfApi(endpoint=hub.url, token="hf_other")
    with pytest.raises(huggingface_hub.errors.HfHubHTTPError, match="401"):
        push_to_hub(small_model(PointEnv()), REPO, api=api)
    assert hub.commits == {}


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import sys
sys.modules["huggingface_hub"] = None
from sb3_clearning import load_from_hub, push_to_hub
for call in (lambda: push_to_hub(None, "a/b"), lambda: load_from_hub("a/b")):
    try:
        call()
    except ImportError as error:
        print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.count('pip install "sb3_clearning[hub]"') == 2
