# Everything works from a fresh clone: what a target needs is set up first, once.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
LISTEN ?= 127.0.0.1:8778
BIN := .venv/bin
PYTEST := $(BIN)/pytest
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
AT_ONCE := --numprocesses 2 --dist
FOUR_AT_ONCE := --numprocesses 4 --dist
# What takes longest comes first. Of four at once two mostly wait: for a server, or for a database.
PROCESSES := tests/conformance tests/console tests/ops tests/faults tests/databases tests/clients tests/http tests/crash
SIMULATED := tests/lifecycle tests/simulator
SERVICES := tests/services
SLOW := $(PROCESSES) $(SIMULATED) $(SERVICES)
SMOKE := tests/http/test_workers.py tests/clients/test_command.py tests/crash/test_torn_write.py \
    tests/lifecycle/test_moves.py tests/databases/test_journal_everywhere.py tests/faults/test_freshness.py

# Hundreds of processes are started: none of them is to compile again what others have compiled.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup run test test-keystone check checks packages unit lint types imports fmt docs hashes tempest bench bench-bystander bench-console bench-scale screenshots soak soak-wire mutants clean

help: ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## */  make \1\t/' | expand -t 18

setup: .venv/.complete ## Make .venv with everything in it

# What Berth runs on, and nothing for tests.
.venv/.running: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=...")'
	@test -x $(BIN)/python || { echo 'making a virtual environment in .venv ...' && $(PYTHON) -m venv .venv; }
	@echo 'installing what Berth runs on, about 200 MiB, this once ...'
	@$(subst --quiet,,$(PIP)) --require-hashes --requirement requirements.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.complete: .venv/.running requirements-dev.txt
	@# Most of it is never imported: what is, is compiled then.
	$(PIP) --no-compile --require-hashes --requirement requirements-dev.txt
	@touch $@

run: .venv/.running ## Run a region, cells and a simulated fleet on LISTEN (127.0.0.1:8778), with data in ./data
	@exec $(BIN)/berth up --listen $(LISTEN) --data data --hosts 20 --cells 2 --servers 24

test: checks ## Check and test everything, the quick things first
	$(MAKE) --no-print-directory unit
	$(PYTEST) $(AT_ONCE) worksteal $(SIMULATED)
	$(PYTEST) $(FOUR_AT_ONCE) loadgroup --no-loadscope-reorder $(PROCESSES)

check: checks ## Check and test what changes most often: some of everything, without clusters
	$(MAKE) --no-print-directory unit
	$(PYTEST) $(AT_ONCE) loadgroup $(SMOKE) -k 'not galera'

# Two at once: most of each is one process that works, or waits for a download.
checks: setup
	$(MAKE) --no-print-directory --jobs 2 --output-sync=target types lint imports packages

packages: setup
	$(BIN)/python -m tests.packages

test-keystone: setup ## Test with OpenStack Keystone and Glance themselves, a few minutes
	$(PYTEST) $(SERVICES) tests/clients/test_keystone.py

unit: setup ## The tests that need no server process
	$(PYTEST) $(AT_ONCE) loadscope --no-loadscope-reorder tests $(SLOW:%=--ignore=%)

lint: setup ## Style
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m tools.console_check

types: setup ## Types, strictly
	$(BIN)/mypy
	$(BIN)/mypy tests/conformance/run
	$(BIN)/mypy tests/conformance/launch-upstream

imports: setup ## Which package may import which
	$(BIN)/lint-imports

fmt: setup ## Bring the code into shape
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: setup ## Write the pages that follow from the code
	$(BIN)/python -c 'from berth.cli.settings import page; print(page(), end="")' > docs/guides/settings.md
	$(BIN)/python -c 'from berth.sagas.table import render_page; print(render_page(), end="")' > docs/guides/operations.md
	$(BIN)/python tools/extra_specs_page.py > docs/guides/extra-specs.md
	$(BIN)/python -m tools.console_types > src/berth/console/api.d.ts
	$(BIN)/python -m tools.metrics_table
	$(BIN)/python -m tools.api_reference
	$(BIN)/python -m tests.tempest.page > docs/guides/what-of-nova.md.new && mv docs/guides/what-of-nova.md.new docs/guides/what-of-nova.md

tempest: setup ## Run Tempest's tests of the compute and the image API against berth up, some ten minutes
	$(BIN)/python -m tests.tempest

hashes: setup ## Ask the index for the hashes of what the requirements files pin, and write them there
	$(BIN)/python tools/hashes.py

bench: setup ## Measure Berth beside OpenStack Placement, half an hour, and how cost grows
	$(BIN)/python -m bench.run

bench-bystander: setup ## Measure how long others wait while a costly request is answered, at 10,000 hosts
	$(BIN)/python -m bench.bystander

bench-scale: setup ## Measure a region of 100,000 hosts, 1,000,000 servers and 50 cells, and servers that write together
	$(BIN)/python -m bench.scale
	$(BIN)/python -m bench.writers
	$(BIN)/python -m bench.journal_growth

bench-console: setup ## Measure the console with 10,000 hosts and 500 changes a second, some twelve minutes
	$(BIN)/python -m bench.console

screenshots: setup ## Draw the pictures of the console that the README shows
	$(BIN)/python -m tools.screenshots

SEEDS ?= 1000

soak: setup ## Play SEEDS seeds (1000) of every profile in the simulator, on all cores
	$(BIN)/python -m berth.sim.soak --seeds $(SEEDS)

mutants: setup ## Plant bugs one by one, and see whether the simulator finds them
	$(BIN)/python tools/mutants.py

soak-wire: setup ## Send random requests to Berth and to OpenStack Placement and compare, some twenty minutes
	$(BIN)/python -m tests.differential --seeds 1000

clean: ## Remove what the other targets made, except ./data
	rm -rf .venv build dist tools/console/node_modules src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
