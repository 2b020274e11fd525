# Every target builds what it needs: a virtual environment in $(VENV), one stamp file per set of extras.
# Nothing has to be installed beforehand but Python >= 3.11 (with venv) and make.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

OLDEST := $(VENV)-oldest
BIN := $(VENV)/bin
# Neighbours stay in one process, which has compiled what they share; who is done takes from the other.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip -qq
PIP_OLDEST := PIP_DISABLE_PIP_VERSION_CHECK=1 $(OLDEST)/bin/python -m pip -qq

# The extras behind each stamp. pyright reads the models and the command line, so lint needs theirs.
EXTRAS_demo := paper,atari
EXTRAS_test := test
EXTRAS_lint := lint,paper,atari,nnx
EXTRAS_bench := bench
EXTRAS_scale := bench,paper

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo paper pictures test test-all test-oldest lint ruff-check ruff-format pyright format bench bench-peers bench-scale clean

help: ## Show this list
	@echo "usage: make TARGET [PYTHON=python3] [VENV=.venv] [ARGS='more arguments']"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		while IFS='|' read -r target text; do printf '  %-12s %s\n' $$target "$$text"; done

demo: $(VENV)/.stamp-demo ## Run the demonstration
	$(BIN)/dendrax demo $(ARGS)

paper: $(VENV)/.stamp-demo ## Reproduce the paper's experiments (hours; ARGS=--quick: ten minutes)
	$(BIN)/dendrax paper all $(ARGS)

test: $(VENV)/.stamp-test ## Run the tests, except the slow ones
	$(PYTEST) -m "not slow" $(ARGS)

test-all: $(VENV)/.stamp-test ## Run all tests
	$(PYTEST) $(ARGS)

test-oldest: $(OLDEST)/.stamp-test ## Run the core's tests on the oldest versions that pyproject.toml allows
	$(OLDEST)/bin/python -m pytest -n 2 -m "not slow" tests/test_*.py tests/placement tests/integrations $(ARGS)

lint: ruff-check ruff-format pyright ## Check style, format and types

ruff-check: $(VENV)/.stamp-lint
	$(BIN)/ruff check

ruff-format: $(VENV)/.stamp-lint
	$(BIN)/ruff format --check

pyright: $(VENV)/.stamp-lint
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.stamp-lint ## Repair style and format where ruff can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(VENV)/.stamp-bench ## Run the benchmarks
	$(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(VENV)/.stamp-bench ## Compare inference learning with other libraries
	$(BIN)/python -m benchmarks.peers $(ARGS)

bench-scale: $(VENV)/.stamp-scale ## Train GPT-2 small by backprop and by Z-IL (10 minutes, 6 GB)
	$(BIN)/python -m benchmarks.scale $(ARGS)

pictures: $(VENV)/.stamp-test ## Make the pictures of docs/pictures.md and docs/concepts.md
	$(BIN)/python tools/make_pictures.py

clean: ## Remove caches, build products and .venv
	rm -rf .venv .venv-oldest .venv-peers build dist .cache .pytest_cache .ruff_cache .hypothesis
	find . -name .git -prune -o -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/pyvenv.cfg $(OLDEST)/pyvenv.cfg:
	@command -v $(PYTHON) > /dev/null || \
		{ echo "dendrax needs Python 3.11 or newer; '$(PYTHON)' was not found. Try: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dendrax needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(@D)

$(VENV)/.stamp-%: pyproject.toml $(VENV)/pyvenv.cfg
	$(PIP) install --editable ".[$(EXTRAS_$*)]"
	@touch $@

$(OLDEST)/.stamp-test: pyproject.toml tools/oldest_versions.py $(OLDEST)/pyvenv.cfg
	$(OLDEST)/bin/python tools/oldest_versions.py $(EXTRAS_test) > $(OLDEST)/constraints.txt
	$(PIP_OLDEST) install --constraint $(OLDEST)/constraints.txt --editable ".[$(EXTRAS_test)]"
	@touch $@
