# The tasks of a developer. Each target does its own setup. The targets need no root and no terminal. They write only to
# this directory and to the caches of pip and of the control plane (~/.cache/vmherd).

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# uv pins all other packages. It is pinned only here.
UV := uv==0.13.9

# The tests start hundreds of processes. With this variable, each process would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help:  ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: install
install: $(INSTALLED)  ## create .venv, with the commands .venv/bin/vmherd and .venv/bin/kubectl-vmherd
	@echo "installed: $(BIN)/vmherd; for 'kubectl vmherd': export PATH=\"$(CURDIR)/$(BIN):\$$PATH\""

$(INSTALLED): .ci/requirements-dev.txt pyproject.toml
	@python=$$(PYTHON='$(PYTHON)' .ci/find-python) && \
	if ! PYTHON=$(BIN)/python .ci/find-python >/dev/null 2>&1; then \
		echo "creating $(VENV) with $$python" && "$$python" -m venv --clear $(VENV); \
	fi
	@echo "installing pinned packages into $(VENV) (under a minute the first time)"
	@$(PIP) install --require-hashes --requirement .ci/requirements-dev.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: demo
demo: $(INSTALLED)  ## run a replica set and a pool on a local control plane, and show them
	@$(BIN)/vmherd demo $(ARGS)

# Each pytest worker starts its own control planes. A test on a control plane waits for half of its time, so three workers
# use two cores. With twice as many workers as cores, the programs wait for each other, and short waits fail. One worker
# runs all tests of a group (see tests/groups.py). The groups keep their order: if xdist sorted them by size, the workers
# would stop and start control planes between the groups.
CORES := $(shell getconf _NPROCESSORS_ONLN)
WORKERS := $(shell expr 3 '*' $(CORES) / 2)
PYTEST := $(BIN)/python -m pytest --dist worksteal --maxprocesses 8 --numprocesses

.PHONY: check
check: lint  ## run lint, types, and the tests without a control plane; about a minute
	@$(PYTEST) $(CORES) -m "not cluster and not e2e and not long" $(ARGS)

# With KUBERNETES, the tests on a control plane run on this older version: tools/kube has the versions.
ifdef KUBERNETES
OLDER = KUBEBUILDER_ASSETS=$$($(BIN)/python -m tools.kube $(KUBERNETES))
test: MARKS := cluster and not e2e and not newest
else
test: MARKS := not e2e
endif

.PHONY: test
test: $(INSTALLED)  ## run the tests that every change must pass; ARGS="-k reflector" selects some; KUBERNETES=1.30
	@$(if $(OLDER),export $(OLDER) && test -n "$$KUBEBUILDER_ASSETS" &&) $(PYTEST) $(WORKERS) --dist loadgroup --no-loadscope-reorder -m "$(MARKS)" $(if $(filter true,$(CI)),$(if $(OLDER),,--cov)) $(ARGS)

.PHONY: e2e
e2e: $(INSTALLED)  ## test chart and image on a real node (as root), the monitoring, the demo, and 500 VMs
	@$(PYTEST) $(WORKERS) --dist loadgroup --no-loadscope-reorder -m e2e $(ARGS)

.PHONY: lint
lint: $(INSTALLED)  ## check style, types and import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

.PHONY: format
format: $(INSTALLED)  ## format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: conformance
conformance: $(INSTALLED)  ## check each behaviour of both kinds on a sandbox; ARGS="--kubeconfig FILE" checks a cluster
	@$(BIN)/vmherd $(if $(findstring --kubeconfig,$(ARGS)),,sandbox) conformance $(ARGS)

.PHONY: bench
bench: $(INSTALLED)  ## run the benchmarks; ARGS="set-burst --sizes 1000" runs one
	@$(BIN)/python -m benchmarks $(ARGS)

.PHONY: simulate
simulate: $(INSTALLED)  ## run the whole controller in simulated worlds; ARGS="--seeds 1000" runs more, --from N replays one
	@$(BIN)/python -m tests.simulation $(ARGS)

.PHONY: manifests
manifests: $(INSTALLED)  ## write the generated files of the chart and of manifests/; ARGS=--check only compares
	@$(BIN)/python -m tools.chart $(ARGS)

.PHONY: pictures
pictures: $(INSTALLED)  ## make the pictures of the README from a real run; ARGS=--check only compares
	@$(BIN)/python -m tools.pictures $(ARGS)

.PHONY: reference
reference: $(INSTALLED)  ## write docs/reference from the sources; ARGS=--check only compares
	@$(BIN)/python -m tools.reference $(ARGS)

# The pins are for the oldest supported Python, so the backports that only this version needs are among them. They name no
# address of a package index: pip uses its configured index, and the hashes ensure that each index supplies the same
# packages.
LOCK := build/lock/bin/uv pip compile --quiet --no-config --python-version 3.11 --generate-hashes --no-strip-extras \
	--custom-compile-command 'make lock' --output-file .ci/requirements

.PHONY: lock
lock:  ## pin the dependencies after a change of pyproject.toml
	@python=$$(PYTHON='$(PYTHON)' .ci/find-python) && "$$python" -m venv --clear build/lock
	@build/lock/bin/python -m pip --quiet install '$(UV)'
	@$(LOCK)-run.txt pyproject.toml --extra uvloop --extra secure
	@$(LOCK)-plugin.txt pyproject.toml --extra cli
	@$(LOCK)-dev.txt pyproject.toml --extra uvloop --extra secure --extra sandbox --group dev --group build
	@$(LOCK)-release.txt --group release --group build
	@for group in build audit checkov docs workflows; do $(LOCK)-$$group.txt --group $$group || exit; done

AUDIT := build/audit
AUDIT_PYTHON ?= python3.11

$(AUDIT)/.installed: .ci/requirements-audit.txt
	@python=$$(PYTHON='$(AUDIT_PYTHON)' .ci/find-python) && "$$python" -m venv --clear $(AUDIT)
	@$(AUDIT)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes --requirement $<
	@touch $@

# With --strict, a package without an answer is an error. A mirror may answer and know no vulnerabilities, so the first
# question is about a package that has some.
AUDITED := run build plugin dev audit release docs workflows
ASK := $(AUDIT)/bin/pip-audit --strict --disable-pip --no-deps --progress-spinner off --requirement

# In a container of the pinned base image, apt names the Debian packages that have a security update.
CONTAINER ?= docker
APT := . /etc/os-release && apt-get -qq update && apt-get -t $$VERSION_CODENAME-security --simulate upgrade

.PHONY: audit
audit: $(AUDIT)/.installed  ## look for known vulnerabilities in the pinned packages
	@echo 'aiohttp==3.8.0' >$(AUDIT)/vulnerable.txt
	@failed=0; \
	if $(ASK) $(AUDIT)/vulnerable.txt >/dev/null 2>&1; then echo 'audit: the database knows no vulnerabilities' >&2; failed=1; \
	else for name in $(AUDITED); do $(ASK) .ci/requirements-$$name.txt || failed=1; done; fi; \
	$(CONTAINER) run --rm "$$(sed -n 's/^ARG PYTHON_IMAGE=//p' Dockerfile)" sh -c '$(APT)' >$(AUDIT)/debian.txt || \
		{ echo 'audit: the Debian packages of the base image were not checked' >&2; failed=1; }; \
	! grep '^Inst .*Debian-Security' $(AUDIT)/debian.txt || failed=1; exit $$failed

RELEASE := build/release

$(RELEASE)/.installed: .ci/requirements-release.txt
	@python=$$(PYTHON='$(PYTHON)' .ci/find-python) && "$$python" -m venv --clear $(RELEASE)
	@$(RELEASE)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes --requirement $<
	@touch $@

.PHONY: release
release: $(INSTALLED) $(RELEASE)/.installed  ## make all files of a release in dist/: VERSION=0.1.0, and IMAGE=ghcr.io/me/vmherd if it is published
	@$(BIN)/python -m tools.release "$(VERSION)" --tools $(abspath $(RELEASE))/bin/python --image "$(IMAGE)" $(ARGS)

.PHONY: bundle
bundle: $(INSTALLED)  ## write the bundle for OpenShift's operator catalog in dist/bundle: IMAGE=registry.example.com/vmherd@sha256:...
	@$(BIN)/python -m tools.bundle "$(IMAGE)"

DOCS := build/docs

$(DOCS)/.installed: .ci/requirements-docs.txt
	@python=$$(PYTHON='$(PYTHON)' .ci/find-python) && "$$python" -m venv --clear $(DOCS)
	@$(DOCS)/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes --requirement $<
	@touch $@

.PHONY: docs
docs: $(INSTALLED) $(DOCS)/.installed  ## build the site of this version in site/; a broken link is an error
	@$(BIN)/python -m tools.site $(abspath $(DOCS))/bin/python

.PHONY: clean
clean:  ## remove all files that the targets above created here
	@rm -rf $(VENV) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .coverage .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
