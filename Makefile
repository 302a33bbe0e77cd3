# Needs Python 3.11 to 3.13, make and a C compiler; everything else is installed into .venv from requirements.lock.
# `make test LOCK= PYTHON=python3.12` tests the newest versions that pyproject.toml allows, in .venv-newest.
PYTHON ?= python3
LOCK := requirements.lock
VENV := .venv$(if $(LOCK),,-newest)
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH := $(VENV)/.torch
DOCS := $(VENV)/.docs
# Complete files to two workers, in the order of tests/conftest.py.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart=0
SMOKE = tests/schedules/test_fresh.py tests/envs/test_toy_tasks.py tests/experiments/session/test_exported.py
OUT ?= runs/quick-$(shell date +%Y%m%d-%H%M%S)

.PHONY: run test test-smoke smoke test-theory test-all setup own lint docs lock clean

# SAC with three entropy schedules under three drift patterns: 45 runs, two to five minutes on two cores with the installation.
run: setup
	@$(BIN)/aesjax run --preset quick --patterns steady,abrupt,periodic --steps 6000 --out $(OUT)

# Fast tests (minutes); `slow` and `theory` mark the others.
test: setup
	@$(PYTEST)

# A schedule, an agent, a task and a study in a minute: whether an installation works.
test-smoke: setup
	@$(BIN)/python -m pytest $(SMOKE)

# Which physics engine runs at which rate on this machine, a CUDA device if JAX has one; two minutes.
smoke: setup
	@$(BIN)/aesjax bench --physics hopper,isaac_ant --engines auto --envs 1024 --rounds 1

# The paper's theorems, claim by claim.
test-theory: setup
	@$(PYTEST) -m theory tests/experiments/theory

test-all: setup $(TORCH) $(DOCS)
	@$(PYTEST) -m ""

setup: $(STAMP)

# An environment with another checkout installed stays as it is: setup would point its installation here.
own:
	@test ! -x $(BIN)/python || $(BIN)/python -I -c "$$OTHER"

define OTHER
import importlib.util, pathlib, sys
spec = importlib.util.find_spec("aesjax")
place = spec and spec.origin and pathlib.Path(spec.origin).parents[1]
if place and not place.samefile(".") and not place.is_relative_to(sys.prefix):
    sys.exit(f"VENV=$(VENV) has the aesjax of {place} installed, which make would replace; give another VENV")
endef
export OTHER

$(STAMP): $(LOCK) pyproject.toml | own
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "aesjax needs Python 3.11 to 3.13")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile $(if $(LOCK),-r $(LOCK) -e .,-e '.[lab,dev]')
	@touch $@

# PyTorch and Stable-Baselines3, for tests of the bridge and of the adapters; a CPU build is enough.
$(TORCH): $(STAMP) requirements-torch.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -r requirements-torch.lock
	@touch $@

# Tools of the site and of notebooks, and gymnax, Brax and MuJoCo Playground, whose adapters are tested.
$(DOCS): $(STAMP) requirements-docs.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -r requirements-docs.lock
	@touch $@

docs: setup $(DOCS)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo build/docs/index.html

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# Newest versions that pyproject.toml allows, without addresses.
lock: own
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[lab,dev]'
	$(BIN)/pip freeze --exclude-editable | grep -v '^-e' > requirements.lock

clean: own
	rm -rf $(VENV) build *.egg-info
