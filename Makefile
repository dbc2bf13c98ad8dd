# Everything lives in .venv; every target sets up what it needs and is quick when it is there.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.specplan-installed
EXTRAS ?= run,report,onnx,triton,grammar,images,gguf,dev
# More options for pip (an index) and for pytest (a path, -k, -m).
PIP_FLAGS ?=
ARGS ?=
# Interpreters to try, in this order; PYTHON=/path/to/python make ... takes that one.
PYTHONS := $(or $(PYTHON),python3.12 python3.13 python3.11 python3.14 python3)

SOURCES := ir cost_models passes planner runtime backends measure training src
QUICKSTART := .work/quickstart

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export HF_HUB_OFFLINE := 1

.PHONY: help setup quickstart test test-all test-engines peers check lint count format clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## Make .venv and install specplan with its extras (EXTRAS=run,report,onnx,triton,grammar,images,gguf,dev)

$(STAMP): pyproject.toml
	@if ! [ -x $(BIN)/python ]; then \
	  for candidate in $(PYTHONS); do \
	    if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	      >/dev/null 2>&1; then found="$$candidate"; break; fi; \
	  done; \
	  if [ -z "$${found:-}" ]; then \
	    echo "specplan needs Python >= 3.11 with its venv module (tried: $(PYTHONS))." >&2; \
	    echo "Install it (Debian, Ubuntu: apt install python3 python3-venv; or uv, pyenv," \
	      "conda), or name one: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; \
	    exit 2; \
	  fi; \
	  echo "Making $(VENV) with $$found ($$("$$found" --version))"; \
	  "$$found" -m venv $(VENV); \
	fi
	$(BIN)/python -m pip install --quiet --no-compile $(PIP_FLAGS) --editable '.[$(EXTRAS)]'
	@# Bytecode by all cores; pip would write it with one. Some packages hold files of no Python.
	@$(BIN)/python -m compileall -qq -j 0 $(SOURCES) $(VENV)/lib/python3*/site-packages || true
	@touch $@

quickstart: $(STAMP) ## Optimise, run and benchmark the reference models
	@# What optimize prints comes last, below what shows that it is so.
	$(BIN)/specplan optimize examples/quickstart/problem.yaml --out $(QUICKSTART)/bundle >/dev/null
	$(BIN)/specplan run $(QUICKSTART)/bundle --prompt-file examples/quickstart/prompt.txt --max-new-tokens 64 --stream
	$(BIN)/specplan bench $(QUICKSTART)/bundle --limit 8 --repeats 1
	$(BIN)/specplan explain $(QUICKSTART)/bundle

test: $(STAMP) ## Run the tests, a file per core at a time (ARGS="tests/ir -k parse")
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder $(ARGS)

test-all: $(STAMP) ## Run the tests and their long matrix (docs/testing.md)
	SPECPLAN_LONG=1 OMP_NUM_THREADS=1 \
	  $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder $(ARGS)

test-engines: $(STAMP) ## Install serving engines into .work/engines, and let them read and run what is emitted
	$(BIN)/python -m tests.engines.environments
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/engines $(ARGS)

peers: $(STAMP) ## Install other runtimes into .work/peers, and compare speeds (ARGS="--limit 2")
	$(BIN)/python benchmarks/peer_workers/environments.py
	$(BIN)/python benchmarks/peers.py $(ARGS)

check: $(STAMP) ## Plan recorded problems anew, and compare (ARGS="--base-python PATH" or --update)
	$(BIN)/specplan check plans examples/ci/plans $(ARGS)

lint: $(STAMP) ## Check style, format, types and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks
	PYTHONPATH=src $(BIN)/lint-imports --no-cache

count: $(STAMP) ## Count lines of code by folder (ARGS=REVISION counts another commit)
	$(BIN)/python benchmarks/code_size.py $(ARGS)

format: $(STAMP) ## Mend style and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove what builds and runs leave behind (keeps .venv)
	rm -rf build dist .work .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
