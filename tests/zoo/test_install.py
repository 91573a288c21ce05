"""The startup hook: what it costs, how it is switched off, and what pip installs and removes."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from sb3_clearning.zoo import import_hook
from tests.support.commands import TINY, Run, command, environment

PROJECT = Path(import_hook.__file__).resolve().parents[2]
FILES = {"_sb3_clearning_zoo.py", "sb3_clearning_zoo.pth", "sb3_clearning_zoo.start"}


def python(*arguments: str, interpreter: str = sys.executable, cwd: Path = Path("/"), **variables: str) -> str:
    result = subprocess.run(
        [interpreter, *arguments], cwd=cwd, env=environment(**variables), capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout + result.stderr


def test_installed_hook_is_that_of_the_project() -> None:
    installed = Path(python("-c", "import _sb3_clearning_zoo; print(_sb3_clearning_zoo.__file__)").strip())
    assert installed.read_text() == Path(import_hook.__file__).read_text(), "the hook has changed: install the package again"


def test_interpreters_without_rl_zoo3_start_no_slower_and_import_no_torch() -> None:
    def cost() -> int:
        """:return: microseconds for the module and all that it imports"""
        (line,) = re.findall(r"import time: +\d+ \| +(\d+) \| +_sb3_clearning_zoo\n", python("-X", "importtime", "-c", "pass"))
        return int(line)

    assert min(cost() for _ in range(5)) < 1000
    loaded = json.loads(python("-c", "import json, sys; print(json.dumps(list(sys.modules)))"))
    assert "_sb3_clearning_zoo" in loaded
    assert not {"torch", "numpy", "gymnasium", "sb3_clearning"} & set(loaded)


def test_watching_costs_next_to_nothing_per_import() -> None:
    text = python("-m", "timeit", "-p", "-s", "from _sb3_clearning_zoo import ZooFinder", "ZooFinder.find_spec('json', None)")
    assert "nsec" in text


def test_hook_is_switched_off_by_the_environment(run: Run, tmp_path: Path) -> None:
    assert "ZooFinder" in python("-c", "import sys; print(sys.meta_path)")
    assert "ZooFinder" not in python("-c", "import sys; print(sys.meta_path)", SB3_CLEARNING_ZOO="0")
    result = run("rl_zoo3.train", "--algo", "clearning", cwd=tmp_path, fails=True, SB3_CLEARNING_ZOO="0")
    assert "invalid choice: 'clearning'" in result.stderr


@pytest.mark.slow
def test_explicit_command_needs_no_hook(run: Run, tmp_path: Path) -> None:
    arguments = ["--algo", "clearning", "--env", "SawyerReach-v0", "-n", 60, "--eval-freq", -1, "-params", *TINY]
    run("sb3_clearning.zoo", "train", *arguments, cwd=tmp_path, SB3_CLEARNING_ZOO="0")
    assert (tmp_path / "logs/clearning/SawyerReach-v0_1/SawyerReach-v0.zip").is_file()


def test_explicit_command_says_what_there_is(tmp_path: Path) -> None:
    result = subprocess.run(
        command("sb3_clearning.zoo", "trian"), cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    assert result.returncode == 1
    assert "train,enjoy,record_video,plot_train,plot_from_file,all_plots,study_report" in result.stderr
    assert "there is no command 'trian'" in result.stderr


def test_start_file_installs_the_hook_by_the_rules_of_pep_829() -> None:
    # What 3.15 and later do, for older interpreters: an entry point `module:callable` per line is resolved and called, and the
    # import line of the .pth file with the same name is not run.
    code = """
import pathlib, pkgutil, sys
(file,) = [file for entry in sys.path for file in pathlib.Path(entry).glob("sb3_clearning_zoo.start")]
assert file.with_suffix(".pth").is_file()
assert "ZooFinder" not in str(sys.meta_path)
for line in file.read_text("utf-8").splitlines():
    module, colon, function = line.partition(":")
    assert module.isidentifier() and colon and function.isidentifier()
    pkgutil.resolve_name(line)()
print(sys.meta_path, "torch" in sys.modules)
"""
    path = os.pathsep.join(entry for entry in sys.path if entry.endswith("-packages"))
    text = python("-S", "-c", code, PYTHONPATH=path)  # -S: no startup file is read
    assert "ZooFinder" in text
    assert text.strip().endswith("False")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["wheel", "editable", "sdist"])
def test_pip_installs_the_hook_and_removes_all_of_it(tmp_path: Path, mode: str) -> None:
    python("-m", "venv", str(tmp_path / "venv"))
    interpreter = str(tmp_path / "venv/bin/python")
    packages = tmp_path / "venv/lib" / f"python{sysconfig.get_python_version()}/site-packages"
    # The packages of this environment without its startup files: only ours are to act.
    here = [entry for entry in sys.path if entry.endswith("-packages")]
    (packages / "zz_packages_of_the_tests.pth").write_text("\n".join(here))
    before = set(os.listdir(packages))

    # A copy, because a build leaves folders in the project.
    project = tmp_path / "project"
    for name in ("sb3_clearning", "hyperparams", "zoo_configs"):
        shutil.copytree(PROJECT / name, project / name)
    for name in ("setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        (project / name).write_bytes((PROJECT / name).read_bytes())

    if mode == "sdist":
        python("-m", "build", "--sdist", "--outdir", str(tmp_path / "dist"), str(project))
        (archive,) = (tmp_path / "dist").glob("*.tar.gz")
        source = [str(archive)]
    else:
        source = [".", *(["--editable"] if mode == "editable" else [])]
    python("-m", "pip", "install", "--no-deps", *source[::-1], interpreter=interpreter, cwd=project)
    assert set(os.listdir(packages)) >= FILES
    arguments = ["--algo", "clearning", "--env", "SawyerReach-v0", "-n", "60", "--eval-freq", "-1", "-params", *TINY]
    log = python("-m", "rl_zoo3.train", *arguments, interpreter=interpreter, cwd=tmp_path)
    place = project if mode == "editable" else packages / "sb3_clearning"
    assert f"Loading hyperparameters from: {place}/hyperparams/clearning.yml" in log
    arguments[-len(TINY) - 1 :] = ["-conf", "paper.yml", "-params", *TINY]  # found by its name
    log = python("-m", "rl_zoo3.train", *arguments, interpreter=interpreter, cwd=tmp_path)
    assert f"Loading hyperparameters from: {place}/zoo_configs/paper.yml" in log

    python("-m", "pip", "uninstall", "-y", "sb3_clearning", interpreter=interpreter, cwd=tmp_path)
    assert set(os.listdir(packages)) - {"__pycache__"} == before - {"__pycache__"}
    assert "ZooFinder" not in python("-c", "import sys; print(sys.meta_path)", interpreter=interpreter)
