# The house from one tool. It presumes make, python3 (>= 3.11) with venv, and a C library; `make` lists the targets.

PYTHON ?= python3
TEST_PROCESSES ?= 4
MINUTES ?= 3
STORIES ?= 5000

BIN := .venv/bin
READY := .venv/.ready
# Only wheels: nothing is compiled, and no build tool is fetched that the lock does not name.
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --only-binary :all:
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header

.PHONY: help dev test bench stories chaos lock clean

help:  ## List the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 16

dev: $(READY)  ## Run a whole fleet on this machine: Temporal, worker, agents with a real engine, router
	@$(BIN)/llmgw dev

test: $(READY)  ## Check format, lint, types, import contracts, then run every test (EFFORT=20: properties harder)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -n $(TEST_PROCESSES)

bench: $(READY)  ## Measure everything, each figure beside its floor (SHORT=1: only see that it works; PLOT=1: pictures)
	@$(BIN)/python -m bench $(if $(SHORT),--short) $(if $(PLOT),--plot)

stories: $(READY)  ## Tell simulated fleets thousands of stories of faults (STORIES=5000); exits 1 when one ends badly
	@$(BIN)/python -m sim $(STORIES)

chaos: $(READY)  ## Kill, cut off, freeze and edit for some minutes (MINUTES=3); exits 1 when a promise is broken
	@rm -rf .chaos
	$(BIN)/python -m bench.soak --minutes $(MINUTES) --histories .chaos --strict
	$(BIN)/python -m bench.replay .chaos

lock: .venv/bin/python  ## Resolve pyproject.toml anew into requirements/*.txt (UPGRADE=1 takes newer releases)
	$(INSTALL) uv==0.13.9
	$(LOCK) $(if $(UPGRADE),--upgrade) pyproject.toml --extra dev --extra bench --extra test --group build -o requirements/dev.txt
	$(LOCK) -c requirements/dev.txt pyproject.toml -o requirements/run.txt
	$(LOCK) -c requirements/dev.txt --group build -o requirements/build.txt

clean:  ## Remove the virtual environment and every cache; a fleet's state in .llmgw stays
	rm -rf .venv .chaos .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -m venv .venv

# Installs once: anew only when the lock or the package's own description changed.
$(READY): .venv/bin/python requirements/dev.txt pyproject.toml
	$(INSTALL) --require-hashes -r requirements/dev.txt
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@
