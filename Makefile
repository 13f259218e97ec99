# make demo: set up and run the tour. make test: set up and run the tests, but for the longest, one in twelve, which take
# nearly as long as all others: make test-long. make test-fast: those of the inner loop.
# The demo installs the plain package; everything else installs what the tests, the checks and the pages need beside it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NEEDS := pyproject.toml requirements.lock src/awavo/__init__.py
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable

.PHONY: install install-plain demo test test-long test-fast slow-list lint docs clean lock

install: $(VENV)/.installed
install-plain: $(VENV)/.installed-plain

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "awavo needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-plain: $(NEEDS) | $(BIN)/python
	@echo "installing awavo into $(VENV) (about 900 MB, once)"
	$(INSTALL) .
	touch $@

$(VENV)/.installed: $(NEEDS) | $(BIN)/python
	@echo "installing awavo and what its tests need into $(VENV) (about 2.2 GB, once)"
	$(INSTALL) '.[dev]'
	touch $@ $(VENV)/.installed-plain

demo: install-plain
	$(BIN)/awavo demo --out runs/demo

test: install
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not long"

# Chains of processes, learners and planners compiled whole, examples: what .ci/run adds to `make test`.
test-long: install
	$(BIN)/python -m pytest -n 2 --dist worksteal -m long

test-fast: install
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" --durations=5 --durations-min=2

# Measure all tests, in one process and with an empty cache of compiled programs, and write which of them are slow.
slow-list: install
	rm -rf .pytest_cache/xla
	$(BIN)/python -m pytest --write-slow-list

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: install
	$(BIN)/sphinx-build -W -q docs docs/_build/html

# Pins of the environment the tests passed in: names and versions alone, no addresses.
lock:
	$(BIN)/python -m pip freeze --exclude-editable | sort -f > requirements.lock

clean:
	rm -rf $(VENV) docs/_build .pytest_cache
