# FedNode: `make run` trains and reports, `make test` tests; both set themselves up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=
TRACE ?=
SERVER ?= valkey-server
HASHES ?=
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help run quick test test-slow test-valkey bench lint check lock sbom setup clean

help:
	@echo "make run        train on 20 clients and write a report under runs/ (ARGS='--clients 10' for other settings)"
	@echo "make test       all tests but the slow ones, on all cores (ARGS='--lf' for those that failed last)"
	@echo "make quick      format, lint, types, fast tests: no whole runs, no attacks, no servers"
	@echo "make test-slow  the slow ones"
	@echo "make test-valkey  what needs a cache server, over Valkey (SERVER=valkey-server)"
	@echo "make bench      measure against limits, PASS or FAIL a row, JSON and plot under bench-results/ (ARGS='--quick')"
	@echo "make lint       format, lint, types, import layers, house rules"
	@echo "make check      lint, then test: what must hold before a change lands"
	@echo "make lock       write requirements.lock anew after a change of dependencies (ARGS=--upgrade for new versions)"
	@echo "make sbom       write sbom.json: what is installed, as CycloneDX"
	@echo "make setup      only install into $(VENV)"
	@echo "make clean      remove $(VENV) and caches; runs/ stays"

run: $(STAMP)
	@echo "== running fednode run $(ARGS)"
	@$(BIN)/fednode run $(ARGS)

test: $(STAMP)
	@echo "== running the tests"
	@$(BIN)/python -m pytest -n auto $(ARGS)

test-slow: $(STAMP)
	@echo "== running the slow tests"
	@$(BIN)/python -m pytest -n auto -m slow $(ARGS)

test-valkey: $(STAMP)
	@echo "== running what needs a cache server over $(SERVER)"
	@FEDNODE_TEST_SERVER=$(SERVER) $(BIN)/python -m pytest $$(grep -rl RedisServer tests --include='test_*.py') $(ARGS)

bench: $(STAMP)
	@echo "== measuring secure sums, then the cache; keep the machine quiet"
	@$(BIN)/fednode bench sum $(ARGS); sums=$$?; [ $$sums -le 1 ] || exit $$sums; \
		$(BIN)/fednode bench cache $(if $(TRACE),--trace $(TRACE)) $(ARGS) && \
		exit $$sums

quick: $(STAMP)
	@scripts/check format lint types imports house quick

lint: $(STAMP)
	@scripts/check format lint types imports house

check: $(STAMP)
	@scripts/check

lock: $(STAMP)
	@$(BIN)/python -m scripts.lock $(ARGS)

sbom: $(STAMP)
	@$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --of JSON -o sbom.json $(BIN)/python
	@echo "== sbom.json lists what is installed in $(VENV)"

setup: $(STAMP)
	@echo "== $(VENV) is ready"

# the stamp is written last: an installation that broke off is done again
$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "FedNode needs Python 3.11 or newer; choose one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "Python's venv module is missing; install it with: apt-get install python3-venv" >&2; exit 1; }
	@rm -f $(STAMP)
	@if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		echo "== creating $(VENV)"; $(PYTHON) -m venv --clear $(VENV); fi
	@echo "== installing FedNode and what it needs into $(VENV); this takes a few minutes, once"
	@HASHES=$(HASHES) scripts/install $(BIN)/python && touch $(STAMP)

clean:
	@echo "== removing $(VENV) and caches"
	@rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
