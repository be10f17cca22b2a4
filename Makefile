# Every verb of the project. A fresh clone needs Python 3.11+, pip and make; nothing is installed
# outside .venv, and a target that finds its set-up done does not repeat it.
PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/.ready
PEER   ?=

.DEFAULT_GOAL := help
.PHONY: help setup test check lint type imports fmt report chat bench crash docs

help: ## show the verbs
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Hermes needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

setup: $(READY) ## create .venv and install the project with its test tools

test: $(READY) ## run every test
	$(BIN)/python -m pytest -n auto $(ARGS)

check: lint type imports docs test ## all that CI runs

lint: $(READY) ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(READY) ## strict types
	$(BIN)/basedpyright

imports: $(READY) ## the layers of ARCHITECTURE.md
	$(BIN)/lint-imports

docs: $(READY) ## generated pages agree with the code (make docs WRITE=1 rewrites them)
	$(BIN)/python scripts/reference.py $(if $(WRITE),--write)

fmt: $(READY) ## format, and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

report: $(READY) ## size and complexity outliers, for a reader to judge
	$(BIN)/python scripts/report.py

chat: $(READY) ## start Hermes
	$(BIN)/hermes

bench: $(READY) ## measure, print the table, write docs/benchmarks.md (PEER=0.19.0: beside hermes-agent)
	$(BIN)/python -m bench $(if $(PEER),--peer $(PEER)) $(ARGS)

crash: $(READY) ## the long crash matrix: 5,000 kills
	$(BIN)/python -m hermes_state.testing.crash --kills 5000
