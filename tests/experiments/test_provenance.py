"""What stands in every row of a table."""

import subprocess
from pathlib import Path

import pytest

from sb3_clearning.experiments.tables import provenance


def test_a_change_anywhere_in_the_package_marks_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "package" / "experiments" / "tables" / "provenance.py"
    module.parent.mkdir(parents=True)
    for path in (module, module.parents[2] / "core.py", tmp_path / "README.md"):
        path.write_text("1")
    name = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], [*name, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance, "__file__", str(module))
    clean = provenance.commit()
    assert len(clean) >= 7
    (tmp_path / "README.md").write_text("2")  # decides no result
    assert provenance.commit() == clean
    (module.parents[2] / "core.py").write_text("2")
    assert provenance.commit() == f"{clean}+"
    # A package that lies in a checkout, and is not of it.
    subprocess.run(["git", "rm", "-q", "--cached", str(module)], cwd=tmp_path, check=True)
    assert provenance.commit() == "?"


def test_versions_name_what_decides_a_result() -> None:
    found = dict(part.split("=", 1) for part in provenance.versions().split())
    assert {"sb3_clearning", "torch", "stable_baselines3", "gymnasium", "mujoco", "numpy"} <= set(found)
    assert "?" not in (found["torch"], found["stable_baselines3"])
