"""The core needs torch, numpy, gymnasium, Stable-Baselines3, safetensors and filelock only."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "sb3_clearning"
ALLOWED = {"torch", "numpy", "gymnasium", "stable_baselines3", "safetensors", "filelock"}
EXTRAS = (
    "mujoco",
    "metaworld",
    "dm_control",
    "gymnasium_robotics",
    "shimmy",
    "rl_zoo3",
    "optuna",
    "minari",
    "matplotlib",
    "huggingface_hub",
)
ROOMS = ("clearning", "goal_td3", "common", "runs", "prediction", "replay", "files")
#: Modules of envs/ that import a simulator, or draw.
TASKS = {"adroit", "contact_sheet", "control_suite", "maze", "mujoco_task", "sawyer"}


def core() -> list[Path]:
    rooms = [path for room in ROOMS for path in (PACKAGE / room).rglob("*.py")]
    envs = [path for path in (PACKAGE / "envs").glob("*.py") if path.stem not in TASKS]
    return sorted([*PACKAGE.glob("*.py"), *rooms, *envs])


def on_import(body: list[ast.stmt]) -> Iterator[str]:
    """The packages that are imported with a module: not those inside of functions, or for annotations only."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.level == 0
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from on_import(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for block in ("body", "orelse", "handlers", "finalbody"):
                yield from on_import(getattr(node, block, []))


def test_every_room_is_core_or_named_here() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms == {*ROOMS, "envs", "zoo", "experiments"}


def test_core_imports_only_its_dependencies() -> None:
    allowed = ALLOWED | {PACKAGE.name} | sys.stdlib_module_names
    found = {(str(path.relative_to(PACKAGE)), name) for path in core() for name in on_import(ast.parse(path.read_text()).body)}
    assert {place for place in found if place[1] not in allowed} == set()
    assert {name for _, name in found} >= ALLOWED - {"safetensors"}, "the test no longer sees what is imported"


def test_core_imports_without_the_extras() -> None:
    # SB3 itself imports matplotlib where it is installed, so that an extra that is missing is what counts.
    modules = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__") for path in core()]
    code = f"""
import importlib, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
for name in {modules!r}:
    importlib.import_module(name)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
