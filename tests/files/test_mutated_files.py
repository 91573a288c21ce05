"""Files that were damaged or forged: our error or a correct load, never another exception, never code, never a hang."""

import hashlib
import json
import pickle
import random
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_clearning import CLearning, Experience, GoalReplayBuffer, OneStepModel, ResumableCheckpoint, collect
from sb3_clearning.files.array_file import UnreadableFileError, from_bytes, to_bytes
from tests.support.checkpointed_runs import learn, make_env
from tests.support.fitted_estimators import CASES, fitted
from tests.support.ring_invariants import check_invariants
from tests.support.small_models import small_model

th.set_num_threads(1)

#: What a file must not make Python do.
FORBIDDEN = ("pickle.find_class", "os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "socket.connect")
_watching = False
_seen: list[str] = []


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _watching and event.startswith(FORBIDDEN):
        _seen.append(event)


sys.addaudithook(_audit)


class HungError(AssertionError):
    """A load took too long."""


@contextmanager
def watched(seconds: float = 30.0) -> Iterator[None]:
    """Nothing forbidden happens meanwhile, and it takes no more than the given time of the processor."""
    global _watching

    def too_long(*_: Any) -> None:
        raise HungError

    before = signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    _seen.clear()
    _watching = True
    try:
        yield
    finally:
        _watching = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert _seen == []


class Bomb:
    """A pickle that runs code where it is loaded."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        import os

        return os.system, ("echo this must not run",)


STRANGE: list[Any] = [
    *(
        None,
        True,
        -1,
        0,
        1,
        2**31,
        10**30,
        -0.5,
        1e308,
        "",
        "x" * 2000,
        "\ud800",
        [],
        {},
        [[]],
        {"float": "nan"},
        {"tuple": []},
    ),
    *({"class": "os.system"}, {"class": "torch.nn.ReLU"}, {"object": "PinkActionNoise", "arguments": {}}, {"dict": {"a": 1}}),
    *({"array": [1, [2]], "dtype": "object"}, {"dtype": "O"}, {"class": "builtins.eval"}, "../../etc/passwd", [10**9, 10**9]),
    {"object": "VectorizedActionNoise", "arguments": {"base_noise": None, "n_envs": 10**9}},
]


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """:return: The file with some bytes changed, cut out, moved, doubled or set to telling values"""
    mutated = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5, 20])):
        if not mutated:
            break
        # Half of them in the header, where the structure is.
        place = rng.randrange(min(len(mutated), 4000)) if rng.random() < 0.5 else rng.randrange(len(mutated))
        kind = rng.randrange(7)
        if kind == 0:
            mutated[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            mutated[place] = rng.randrange(256)
        elif kind == 2:
            del mutated[place : place + rng.choice([1, 8, 1000, 10**7])]
        elif kind == 3:
            mutated[place:place] = rng.randbytes(rng.choice([1, 8, 300]))
        elif kind == 4:
            mutated[place : place + 8] = rng.choice([b"\xff" * 8, bytes(8), (2**62).to_bytes(8, "little"), b"99999999"])
        elif kind == 5:
            other = rng.randrange(len(mutated))
            mutated[place : place + 50], mutated[other : other + 50] = mutated[other : other + 50], mutated[place : place + 50]
        else:
            mutated[place:place] = mutated[place : place + 200]
    return bytes(mutated)


def _mutate_value(value: Any, rng: random.Random) -> Any:
    """:return: A JSON document with one of its values replaced, removed or doubled"""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {other: item for other, item in value.items() if other != key}
        if rng.random() < 0.05:
            return {**value, rng.choice(["extra", "env", "policy", "_init_setup_model"]): rng.choice(STRANGE)}
        return {**value, key: _mutate_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        if rng.random() < 0.2:
            return value[:place] + value[place + 1 :]
        return [*value[:place], _mutate_value(value[place], rng), *value[place + 1 :]]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.5:
        return rng.choice([value + 1, value - 1, -value, value * 1000, value / 3])
    return rng.choice(STRANGE)


def _mutate_array(array: np.ndarray, rng: random.Random) -> np.ndarray:
    kind = rng.randrange(6)
    if kind == 0:
        return array.astype(rng.choice([np.float64, np.int32, np.uint8, np.bool_]))
    if kind == 1:
        return array[..., None]
    if kind == 2 and array.ndim:
        return array[: rng.randrange(len(array) + 1)]
    if kind == 3:
        return np.zeros((), np.float32)
    if kind == 4 and array.dtype.kind == "f":
        return np.full_like(array, rng.choice([np.nan, np.inf, -1e30]))
    changed = array.copy()
    if changed.size:
        changed.reshape(-1)[rng.randrange(changed.size)] = rng.choice([0, 1, 3, 100])
    return changed


def forge(kind: str, data: bytes, rng: random.Random) -> bytes:
    """:return: A file with another content and the checksum that belongs to it"""
    content, arrays = from_bytes(kind, data)
    arrays = dict(arrays)
    for _ in range(rng.choice([1, 1, 2, 4])):
        if rng.random() < 0.65:
            content = _mutate_value(content, rng)
            if not isinstance(content, dict):
                content = {"content": content}
        else:
            name = rng.choice(sorted(arrays))
            if rng.random() < 0.2:
                arrays.pop(name)
                arrays[rng.choice(["extra", name + "x", "policy/x", "actor.optimizer/0/exp_avg"])] = np.zeros(3)
            else:
                arrays[name] = _mutate_array(arrays[name], rng)
    try:
        return to_bytes(kind, content, arrays)
    except Exception:  # what cannot even be written
        return mutate_bytes(data, rng)


def _mutants(kind: str, original: bytes, n: int, seed: int) -> Iterator[bytes]:
    bomb = pickle.dumps(Bomb())
    yield from (b"", bomb, b"PK\x03\x04" + bomb, original[:8], original + b"\0", b"{}" * 1000, b'{"a":' * 10**5)
    deep = json.dumps({"__metadata__": {"content": "[" * 10**5}}).encode()
    yield len(deep).to_bytes(8, "little") + deep
    rng = random.Random(seed)
    for i in range(n):
        yield forge(kind, original, rng) if i % 2 else mutate_bytes(original, rng)


def _try(load: Callable[[], Any]) -> bool:
    """:return: Whether it loaded; raises if it did anything else than that or our error"""
    with watched(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            load()
        except UnreadableFileError:
            return False
        return True


def _buffers(folder: Path, n: int) -> int:
    model = small_model(make_env(), learning_starts=1000, buffer_size=40).learn(55)
    path = folder / "buffer"
    model.replay_buffer.save(path)
    buffer = GoalReplayBuffer(40, model.observation_space, model.action_space, device="cpu")
    buffer.load(path)
    loaded = 0
    for data in _mutants("buffer", path.read_bytes(), n, seed=1):
        path.write_bytes(data)
        storage = buffer.rows
        if _try(lambda: buffer.load(path)):
            loaded += 1
            if buffer.size():
                for batch in buffer.sample_goals(16, {"future": 0.5, "random": 0.5}):
                    assert th.isfinite(batch.observations["observation"]).all()
        else:
            assert buffer.rows is storage  # untouched
    return loaded


def _datasets(folder: Path, n: int) -> int:
    path = folder / "data.safetensors"
    collect("random", make_env(), 30, seed=0).save(path)
    found: list[Experience] = []
    for data in _mutants("dataset", path.read_bytes(), n, seed=5):
        path.write_bytes(data)
        _try(lambda: found.append(Experience.load(path)))
    for experience in found:
        assert {len(part) for part in experience.observations.values()} == {len(experience)}  # type: ignore[union-attr]
        assert experience.ends.dtype == bool
        experience.last()
    return len(found)


def _npz_files(folder: Path, n: int) -> int:
    path, rng = folder / "data.npz", random.Random(6)
    experience = collect("random", make_env(), 30, seed=0)
    states = experience.observations["observation"]
    np.savez_compressed(path, observations=states, actions=experience.actions, terminals=experience.ends)
    original, loaded = path.read_bytes(), 0
    for _ in range(n):
        path.write_bytes(mutate_bytes(original, rng))
        buffer = GoalReplayBuffer(40, experience.observation_space, experience.action_space, device="cpu")
        with watched(), suppress(ValueError):
            buffer.load_dataset(path, crop=[0, 1])
            loaded += 1
            continue
        assert buffer.total_added == 0
    return loaded


def _exports(folder: Path, n: int) -> int:
    model = small_model(make_env(), buffer_size=100).learn(30)
    path = folder / "agent"
    model.export(path)
    obs = DummyVecEnv([make_env]).reset()
    loaded = 0

    def load() -> None:
        agent = CLearning.from_export(path, device="cpu")
        agent.predict(obs)  # type: ignore[arg-type]

    for data in _mutants("export", path.read_bytes(), n, seed=2):
        path.write_bytes(data)
        loaded += _try(load)
    return loaded


def _estimators(folder: Path, n: int) -> int:
    loaded = 0
    for seed, case in enumerate(CASES):
        path = folder / case
        fitted(case).save(path)

        def load(path: Path = path, kind: Any = CASES[case][0]) -> None:
            found = kind.load(path)
            found.marginal()(found._goals.decode(found._visited[:3]))
            n_inputs = found._states.size + found._actions.size + (0 if kind is OneStepModel else found._goals.size)
            found._network(th.zeros(getattr(found, "n_classifiers", 1), 1, n_inputs))

        for data in _mutants("estimator", path.read_bytes(), n // len(CASES), seed):
            path.write_bytes(data)
            loaded += _try(load)
    return loaded


def _checkpoints(folder: Path, n: int) -> int:
    learn(folder / "original", steps=60)
    newest = sorted((folder / "original").glob("checkpoint-*"))[-1].name
    shutil.copytree(folder / "original", folder / "run")
    for path in (folder / "run").glob("checkpoint-*"):
        if path.name != newest:
            path.unlink()
    path, loaded = folder / "run" / newest, 0
    env = DummyVecEnv([make_env])
    for data in _mutants("checkpoint", path.read_bytes(), n, seed=3):
        path.write_bytes(data)
        loaded += _try(lambda: _go_on(CLearning.resume(folder / "run", env, device="cpu"), folder / "run"))
    return loaded


def _go_on(model: CLearning, folder: Path) -> None:
    """Up to the first step: generators, noises, environments, logs and the callback are set when learning starts."""
    with model.session.call(model, offline=False):
        model._setup_learn(60, ResumableCheckpoint(folder))
        model.dump_logs()


def _segments(folder: Path, n: int) -> int:
    """Segments of the buffer, half of them with a checkpoint that was forged to name their checksum."""
    learn(folder / "run", steps=60)
    newest = sorted((folder / "run").glob("checkpoint-*"))[-1]
    for path in (folder / "run").glob("checkpoint-*"):
        if path != newest:
            path.unlink()
    content, arrays = from_bytes("checkpoint", newest.read_bytes())
    segments = content["buffer"]["segments"]
    originals = {segment["file"]: (folder / "run" / segment["file"]).read_bytes() for segment in segments}
    rng, env, loaded = random.Random(4), DummyVecEnv([make_env]), 0
    models: list[CLearning] = []
    mutants = {name: _mutants("segment", data, n, seed=4) for name, data in originals.items()}
    for i in range(n):
        segment = rng.choice(segments)
        path = folder / "run" / segment["file"]
        path.write_bytes(data := next(mutants[path.name]))
        checksum = hashlib.sha256(data).hexdigest() if i % 4 else segment["sha256"]
        forged = [{**one, "sha256": checksum} if one is segment else one for one in segments]
        newest.write_bytes(to_bytes("checkpoint", {**content, "buffer": {**content["buffer"], "segments": forged}}, arrays))
        if _try(lambda: models.append(CLearning.resume(folder / "run", env, device="cpu"))):
            loaded += 1
            check_invariants(models[-1].replay_buffer)
        models.clear()
        path.write_bytes(originals[path.name])
    return loaded


KINDS: dict[str, Callable[[Path, int], int]] = {
    "buffers": _buffers,
    "datasets": _datasets,
    "npz": _npz_files,
    "exports": _exports,
    "estimators": _estimators,
    "checkpoints": _checkpoints,
    "segments": _segments,
}


@pytest.mark.parametrize("kind", KINDS)
def test_mutated(kind: str, tmp_path: Path) -> None:
    loaded = KINDS[kind](tmp_path, 150)
    assert loaded < 100  # a forged learning rate is valid, but most changes are not


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_mutated(kind: str, tmp_path: Path) -> None:
    loaded = KINDS[kind](tmp_path, 2500)
    print(f"{kind}: {loaded} loaded")


def test_the_audit_sees_what_it_must_not_see(tmp_path: Path) -> None:
    (tmp_path / "bomb").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(AssertionError), watched():
        pickle.loads((tmp_path / "bomb").read_bytes())
    with pytest.raises(HungError), watched(0.05):
        sum(i for i in iter(int, 1))


@pytest.mark.parametrize("kind", ["buffer", "export"])
def test_every_byte_counts(kind: str, tmp_path: Path) -> None:
    # One bit anywhere: the file is refused, whatever it was.
    model = small_model(make_env(), buffer_size=60, policy_kwargs={"net_arch": [2]}).learn(20)
    path = tmp_path / "file"
    model.export(path) if kind == "export" else model.replay_buffer.save(path)
    original = path.read_bytes()
    for place in range(0, len(original), 11):
        mutated = bytearray(original)
        mutated[place] ^= 4
        with pytest.raises(UnreadableFileError):
            from_bytes(kind, bytes(mutated))
