"""The matrix of runs: tasks, methods and seeds, read from YAML files."""

import dataclasses
import importlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import yaml

from sb3_clearning.checks import UsageError
from sb3_clearning.common.arguments import argument_names
from sb3_clearning.common.evaluation import EVALUATION_SEED

#: The file of the package.
SHIPPED = Path(__file__).with_name("suite.yml")
#: A run's seeds are ``seed * SEEDS_PER_RUN`` and those after it, so that they stay below the evaluation episodes' seeds.
SEEDS_PER_RUN = 1000


@dataclasses.dataclass(frozen=True)
class Run:
    """
    One run: everything that its process needs to know.

    :param steps: Environment steps; a finished run can be extended
    :param algorithm: Its class, as "module:name"
    :param env: The environment's id for ``gym.make``, "module:id" if a module has to be imported for it
    :param evaluate_every: Steps between two evaluations, and between two checkpoints
    :param speed: Expected steps per second until some are measured; cheap runs come first
    :param evaluation_seed: The seed of the first evaluation episode. Runs that settings are chosen by have another one
    """

    task: str
    method: str
    seed: int
    steps: int
    algorithm: str
    arguments: dict[str, Any]
    env: str
    env_kwargs: dict[str, Any]
    evaluate_every: int
    episodes: int
    speed: float
    evaluation_seed: int = EVALUATION_SEED

    @property
    def name(self) -> str:
        """:return: The run's name, and its folder's"""
        return f"{self.task}/{self.method}/seed_{self.seed}"

    def settings(self) -> dict[str, Any]:
        """:return: What determines the rows of a run. Other settings make another run"""
        named = ("algorithm", "arguments", "env", "env_kwargs", "evaluate_every", "episodes", "evaluation_seed")
        return json.loads(json.dumps({name: getattr(self, name) for name in named}))

    def has_settings_of(self, row: Mapping[str, str]) -> bool:
        """:return: Whether it was made with this run's settings"""
        return json.loads(row["settings"]) == self.settings()

    def evaluations(self) -> list[int]:
        """:return: The steps at which the run is evaluated"""
        return sorted({*range(self.evaluate_every, self.steps + 1, self.evaluate_every), self.steps})


TASK_KEYS = {"steps", "evaluate_every", "episodes", "speed", "env", "env_kwargs", "arguments"}
METHOD_KEYS = {"algorithm", "arguments", "without", "tasks", "reward", "baseline"}
BLOCK_KEYS = {"tasks", "methods", "seeds", "steps", "evaluation_seed"}
#: The types of an entry's values that are neither text nor number, and their names in errors.
SHAPES: dict[str, dict[str, tuple[type, str]]] = {
    "tasks": {"env_kwargs": (dict, "a mapping"), "arguments": (dict, "a mapping"), "env": (str, "text")},
    "methods": {
        "arguments": (dict, "a mapping"),
        "without": (list, "a list of arguments"),
        "tasks": (dict, "a mapping of tasks"),
        "algorithm": (str, "module:class"),
    },
    "matrices": {"tasks": (list, "a list"), "methods": (list, "a list")},
}


@dataclasses.dataclass
class Suite:
    """
    All tasks, methods and matrices of the files.

    :param arguments: Arguments that all methods take on all tasks
    :param matrices: Each a list of blocks of tasks, methods and seeds
    """

    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    tasks: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    methods: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    matrices: dict[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)

    @classmethod
    def load(cls, paths: Iterable[Path] = ()) -> "Suite":
        """:return: The package's suite; entries of the user's files are added to it, or overwrite its own"""
        suite = cls()
        for path in (SHIPPED, *paths):
            try:
                content = yaml.safe_load(path.read_text(encoding="utf-8"))
            except OSError as error:
                raise UsageError(f"{path} cannot be read: {error.strerror}") from error
            except (yaml.YAMLError, UnicodeDecodeError) as error:
                raise UsageError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
            suite._join(content, path)
        for name, method in suite.methods.items():
            for task in method.get("tasks") or ():
                if task not in suite.tasks:
                    raise UsageError(f"The method {name} has arguments for {task!r}, which is not a task.")
        return suite

    def _join(self, content: Any, path: Path) -> None:
        names = [field.name for field in dataclasses.fields(self)]
        if not isinstance(content, dict) or not set(content) <= set(names):
            raise UsageError(f"{path} must be a mapping with some of {', '.join(names)}, as {SHIPPED} is.")
        for name in names:
            part = content.get(name) or {}
            if not isinstance(part, dict):
                raise UsageError(f"`{name}` in {path} must be a mapping of names, as in {SHIPPED}.")
            getattr(self, name).update(part)
        for kind, known in (("tasks", TASK_KEYS), ("methods", METHOD_KEYS)):
            for name, entry in (content.get(kind) or {}).items():
                _check_name(name, f"{kind} in {path}")
                _check_entry(entry, known, SHAPES[kind], f"{name} of {kind} in {path}")
        for name, method in (content.get("methods") or {}).items():
            for task, arguments in (method.get("tasks") or {}).items():
                if not isinstance(arguments, dict):
                    raise UsageError(f"{task} of `tasks` of {name} of methods in {path} must be a mapping.")
        for name, blocks in (content.get("matrices") or {}).items():
            _check_name(name, f"matrices in {path}")
            if not isinstance(blocks, list) or not blocks:
                raise UsageError(f"The matrix {name} in {path} must be a list of blocks with `methods` and `seeds`.")
            for block in blocks:
                _check_entry(block, BLOCK_KEYS, SHAPES["matrices"], f"{name} of matrices in {path}")

    def runs(
        self,
        matrices: Sequence[str],
        tasks: Sequence[str] | None = None,
        methods: Sequence[str] | None = None,
        seeds: Iterable[int] | None = None,
        steps: int | None = None,
    ) -> list[Run]:
        """:return: The selected runs, each once, the cheap ones first. Tasks and methods outside the matrices are added"""
        of_each = self.runs_of_each(matrices, tasks, methods, seeds, steps)
        chosen = _each_once(run for runs in of_each.values() for run in runs)
        for kind, wanted in (("task", tasks), ("method", methods)):
            left_out = set(wanted or ()) - {getattr(run, kind) for run in chosen}
            if left_out and chosen:
                raise UsageError(f"The {kind} {sorted(left_out)[0]} is in none of the matrices {', '.join(matrices)}.")
        if not chosen:
            raise UsageError("No run is left: the matrix has none with these tasks and methods. See `suite --list`.")
        return sorted(chosen, key=lambda run: (run.steps / run.speed, run.seed))

    def runs_of_each(
        self,
        matrices: Iterable[str],
        tasks: Iterable[str] | None = None,
        methods: Iterable[str] | None = None,
        seeds: Iterable[int] | None = None,
        steps: int | None = None,
    ) -> dict[str, list[Run]]:
        """:return: The runs of each matrix, selected as in :meth:`runs`. Tasks and methods outside go to the first"""
        matrices = _known(matrices, self.matrices, "matrix")
        wanted_tasks = None if tasks is None else _known(tasks, self.tasks, "task")
        wanted_methods = None if methods is None else _known(methods, self.methods, "method")
        wanted_seeds = None if seeds is None else list(seeds)
        blocks = {matrix: list(self.matrices[matrix]) for matrix in matrices}
        joining = self._joining([block for of_one in blocks.values() for block in of_one], wanted_tasks, wanted_methods)
        blocks[matrices[0]] += joining

        def of_block(block: dict[str, Any], matrix: str) -> Iterator[Run]:
            block_tasks, block_methods = self._names(block)
            for task in [task for task in block_tasks if wanted_tasks is None or task in wanted_tasks]:
                for method in [name for name in block_methods if wanted_methods is None or name in wanted_methods]:
                    for seed in _seeds(block.get("seeds", 1) if wanted_seeds is None else wanted_seeds, matrix):
                        yield self.run(task, method, seed, steps or block.get("steps"), block.get("evaluation_seed"))

        return {
            matrix: _each_once(run for block in of_one for run in of_block(block, matrix)) for matrix, of_one in blocks.items()
        }

    def _names(self, block: dict[str, Any]) -> tuple[list[str], list[str]]:
        """:return: The tasks and the methods of a block"""
        tasks = _known(block.get("tasks", self.tasks), self.tasks, "task")
        return tasks, _known(block.get("methods", self.methods), self.methods, "method")

    def _joining(
        self, blocks: list[dict[str, Any]], tasks: list[str] | None, methods: list[str] | None
    ) -> list[dict[str, Any]]:
        """:return: Blocks, like the first one, for selected tasks and methods that no block has"""
        named = [self._names(block) for block in blocks]
        there = [list(dict.fromkeys(name for names in one for name in names)) for one in zip(*named, strict=True)]
        new_tasks = [task for task in tasks or () if task not in there[0]]
        new_methods = [method for method in methods or () if method not in there[1]]
        of_tasks = {**blocks[0], "tasks": new_tasks, "methods": methods or there[1]} if new_tasks else None
        of_methods = {**blocks[0], "tasks": tasks or there[0], "methods": new_methods} if new_methods else None
        return [block for block in (of_tasks, of_methods) if block is not None]

    def non_baselines(self) -> list[str]:
        """:return: The methods that are not reward-free baselines: they read the reward, or are for comparison only"""
        return [name for name, method in self.methods.items() if method.get("reward") or not method.get("baseline", True)]

    def run(self, task: str, method: str, seed: int, steps: int | None = None, evaluation_seed: int | None = None) -> Run:
        """:return: The run; its evaluation episodes have the usual seeds, or begin with ``evaluation_seed``"""
        of_task, of_method = self.tasks[task], self.methods[method]
        own_steps = _number(of_task.get("steps", 30_000), "steps", task)
        shared = {**self.arguments, **(of_task.get("arguments") or {})}
        without = _known(of_method.get("without") or [], shared, "argument")
        arguments = {
            **{key: value for key, value in shared.items() if key not in without},
            **(of_method.get("arguments") or {}),
            **((of_method.get("tasks") or {}).get(task) or {}),
        }
        run = Run(
            task=task,
            method=method,
            seed=seed,
            steps=own_steps if steps is None else _number(steps, "steps", task),
            algorithm=of_method.get("algorithm", ""),
            arguments=arguments,
            env=of_task.get("env", task),
            env_kwargs=of_task.get("env_kwargs") or {},
            # By the task's own steps: an extended run keeps its settings.
            evaluate_every=_number(of_task.get("evaluate_every", max(own_steps // 6, 1)), "evaluate_every", task),
            episodes=_number(of_task.get("episodes", 50), "episodes", task),
            speed=_number(of_task.get("speed", 100), "speed", task, whole=False),
            evaluation_seed=EVALUATION_SEED if evaluation_seed is None else evaluation_seed,
        )
        if not isinstance(run.evaluation_seed, int) or run.evaluation_seed < EVALUATION_SEED:
            raise UsageError(f"evaluation_seed must be a number from {EVALUATION_SEED} on: training takes the smaller ones.")
        if len(run.evaluations()) >= SEEDS_PER_RUN:
            raise UsageError(f"The task {task} has {len(run.evaluations())} evaluations: raise its `evaluate_every`.")
        check_arguments(run)
        try:
            run.settings()
        except TypeError as error:
            raise UsageError(
                f"Arguments of {run.name} must be text, numbers, or lists or mappings of them: {error}."
            ) from error
        return run


def _each_once(runs: Iterable[Run]) -> list[Run]:
    """:return: The runs without duplicates: of those with the same name the longest"""
    chosen: dict[str, Run] = {}
    for run in runs:
        chosen[run.name] = max(chosen.get(run.name, run), run, key=lambda one: one.steps)
    return list(chosen.values())


def find_algorithm(name: str, method: str) -> type:
    """:return: The class"""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
        if not isinstance(found, type):
            raise ValueError("it is no class")
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"`algorithm` of the method {method} must be module:class, as sb3_clearning:CLearning, not {name!r}: {error}."
        ) from error
    return found


def check_arguments(run: Run) -> None:
    """Raise an error for arguments that the algorithm does not have, before any run is started."""
    known = set(argument_names(find_algorithm(run.algorithm, run.method))) - {"seed"}  # set by the run
    unknown = sorted(map(str, set(run.arguments) - known))
    if unknown:
        raise UsageError(
            f"{run.algorithm} of the method {run.method} has no argument {unknown[0]!r}. It has: {', '.join(sorted(known))}. "
            f"What all methods are given is left out with `without: [{', '.join(unknown)}]` in the method's entry."
        )


def _check_name(name: Any, where: str) -> None:
    """Names are also those of folders."""
    if not isinstance(name, str) or not name or name.startswith(".") or set(name) & {"/", "\\"}:
        hint = "; a task's `env` may have one" if isinstance(name, str) and "/" in name else ""
        raise UsageError(f"The name {name!r} of {where} must be text without a slash, and begin with no dot{hint}.")


def _check_entry(entry: Any, known: set[str], shapes: dict[str, tuple[type, str]], where: str) -> None:
    if not isinstance(entry, dict):
        raise UsageError(f"{where} must be a mapping with some of {', '.join(sorted(known))}.")
    unknown = set(entry) - known
    if unknown:
        raise UsageError(f"{where} has an unknown key {sorted(map(str, unknown))[0]!r}. Known: {', '.join(sorted(known))}.")
    for key, (kind, said) in shapes.items():
        value = entry.get(key, kind())
        nothing = value is None and kind is dict  # what YAML has for a key without a value
        if not nothing and not isinstance(value, kind):
            raise UsageError(f"`{key}` of {where} must be {said}, not {value!r}.")


def _number(value: Any, name: str, task: str, whole: bool = True) -> Any:
    """:return: The value of a task, which must be a number above 0"""
    allowed = int if whole else (int, float)
    if not isinstance(value, allowed) or isinstance(value, bool) or value <= 0:
        hint = " (YAML reads 1e4 as text)" if isinstance(value, str) else ""
        raise UsageError(
            f"`{name}` of the task {task} must be a {'whole ' if whole else ''}number above 0, not {value!r}{hint}."
        )
    return value


def _known(names: Iterable[str], known: Mapping[str, Any], kind: str) -> list[str]:
    names = list(names)
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise UsageError(f"There is no {kind} {name!r}. There are: {', '.join(known)}.")
    return names


def _seeds(seeds: Any, matrix: str) -> list[int]:
    """:return: The seeds of a block, which is a list or a number of seeds"""
    found = list(range(seeds)) if type(seeds) is int else seeds  # True is an int, too
    if not isinstance(found, list) or not found or not all(type(seed) is int and 0 <= seed < SEEDS_PER_RUN for seed in found):
        raise UsageError(
            f"Seeds must be a number of seeds or a list of seeds below {SEEDS_PER_RUN}, not {seeds!r} ({matrix})."
        )
    return found


def make_env(run: Run) -> gym.Env:
    """:return: Its environment"""
    import sb3_clearning.envs  # noqa: F401 (registers the paper's tasks)

    return gym.make(run.env, **run.env_kwargs)
