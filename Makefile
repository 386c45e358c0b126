# Everything a newcomer needs, each target with the set-up that it takes. No root, no terminal, nothing outside of
# this directory but pip's cache and the control plane's (~/.cache/vmherd).

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# Pinned here and nowhere else: it pins the rest.
PIP_TOOLS := pip-tools==7.6.2
LOCK_PYTHON ?= python3.11

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help:  ## print this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: install
install: $(INSTALLED)  ## make .venv, with the command in .venv/bin/vmherd
	@echo "installed: $(BIN)/vmherd"

$(INSTALLED): .ci/requirements-dev.txt pyproject.toml
	@python=$$(PYTHON='$(PYTHON)' .ci/find-python) && \
	if ! PYTHON=$(BIN)/python .ci/find-python >/dev/null 2>&1; then \
		echo "making $(VENV) with $$python" && "$$python" -m venv --clear $(VENV); \
	fi
	@echo "installing pinned packages into $(VENV) (under a minute the first time)"
	@$(PIP) install --require-hashes --requirement .ci/requirements-dev.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: demo
demo: $(INSTALLED)  ## watch a replica set and a pool come up on a control plane of your own
	@$(BIN)/vmherd demo $(ARGS)

# Each worker has control planes of its own. Their tests wait most of the time: two workers keep a core busy.
CORES := $(shell getconf _NPROCESSORS_ONLN)
PYTEST := $(BIN)/python -m pytest --dist worksteal --maxprocesses 8 --numprocesses

.PHONY: check
check: lint  ## lint, types, and the tests that need no control plane; about a minute
	@$(PYTEST) $(CORES) -m "not cluster and not e2e" $(ARGS)

.PHONY: test
test: $(INSTALLED)  ## run what every change has to pass; ARGS="-k reflector" runs some
	@$(PYTEST) $$((2 * $(CORES))) -m "not e2e" $(if $(filter true,$(CI)),--cov) $(ARGS)

.PHONY: e2e
e2e: $(INSTALLED)  ## test the chart, the image, the monitoring, the demo, and a fleet of 500 VMs
	@$(PYTEST) $(CORES) -m e2e $(ARGS)

.PHONY: lint
lint: $(INSTALLED)  ## style, types and import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

.PHONY: format
format: $(INSTALLED)  ## rewrite the code in the house's format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: bench
bench: $(INSTALLED)  ## measure; results go to benchmarks/results
	@$(BIN)/python -m benchmarks $(ARGS)

.PHONY: manifests
manifests: $(INSTALLED)  ## write what the chart and manifests/ get from the program; ARGS=--check only compares
	@$(BIN)/python -m charts $(ARGS)

.PHONY: lock
lock:  ## pin what pyproject.toml asks for, after a change of it
	@python=$$(PYTHON='$(LOCK_PYTHON)' .ci/find-python) && "$$python" -m venv --clear build/lock
	@build/lock/bin/python -m pip --quiet install '$(PIP_TOOLS)'
	@build/lock/bin/python .ci/lock.py

.PHONY: clean
clean:  ## remove whatever the targets above made here
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .coverage .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
