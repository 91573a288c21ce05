"""Files of the repository that no other test reads: what they name is there, and the address stands in one place."""

import json
import re
import subprocess
from configparser import ConfigParser

import pytest

from tests.support.pages import PAGES, ROOT

METADATA = ConfigParser(interpolation=None)
METADATA.read(ROOT / "setup.cfg")
ADDRESS = METADATA["metadata"]["url"]


def instructions(name: str) -> list[str]:
    """:return: The arguments of each such instruction of the Dockerfile"""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    return re.findall(rf"^{name} (.*)$", text, re.MULTILINE)


def test_addresses_are_those_of_setup_cfg() -> None:
    urls = METADATA["metadata"]["project_urls"]
    assert re.findall(r"(https://github\.com/\S+?)(?:/blob/\S+|/issues)$", urls, re.MULTILINE) == [ADDRESS, ADDRESS]
    cells = json.loads((ROOT / "examples" / "c_learning.ipynb").read_text())["cells"]
    assert re.findall(r'^REPOSITORY = "(.*)"', "".join(cells[1]["source"]), re.MULTILINE) == [ADDRESS]
    repository = ADDRESS.removeprefix("https://github.com/")
    named = {
        link for page in PAGES for link in re.findall(r"colab\.research\.google\.com/github/(\S+?)/blob", page.read_text())
    }
    assert named == {repository}


def test_files_of_the_dockerfile_are_tracked_and_sent_to_docker() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [path for line in instructions("COPY") for path in line.split()[:-1]]
    assert "sb3_clearning" in copied
    for path in copied:
        assert (ROOT / path).exists(), path
        assert f"!{path}" in ignored, path
    assert {line[1:] for line in ignored if line.startswith("!")} == set(copied)
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "--error-unmatch", *copied]
        assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0


def test_container_does_not_run_as_root() -> None:
    (user,) = instructions("USER")
    assert int(user) > 0


@pytest.mark.parametrize("extra", re.findall(r"\.\[([\w,]+)\]", "".join(instructions("RUN")))[0].split(","))
def test_extras_of_the_dockerfile_exist(extra: str) -> None:
    assert extra in METADATA["options.extras_require"]
