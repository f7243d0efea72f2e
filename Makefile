# Two commands: `make demo` and `make test`. Both make the environment they need, with the pinned versions.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CORE   := $(VENV)/.core
DEV    := $(VENV)/.dev
# workers of the tests; tests/conftest.py says what each does
JOBS   ?= 2

.PHONY: demo test check coverage lint format docs clean
demo: $(CORE)
	$(BIN)/undertow demo --out demo-output

test: $(DEV) lint
	$(BIN)/python -m pytest -n $(JOBS)

# the fast part of the tests, for every change; `make test` is everything
check: $(DEV) lint
	$(BIN)/python -m pytest -q -n $(JOBS) -m "not slow"

# which lines of src/ the tests run: a table, and pages in htmlcov/
coverage: $(DEV)
	$(BIN)/python -m pytest -q -n $(JOBS) --cov --cov-report=term --cov-report=html

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# the documentation as a site: open docs/_build/html/index.html; a warning is an error, also in the tests
docs: $(DEV)
	$(BIN)/python -m sphinx -q -W --keep-going -c docs . docs/_build/html

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "undertow needs Python 3.11 or newer: set PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)

$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@ $(CORE)

clean:
	rm -rf $(VENV) demo-output htmlcov docs/_build .coverage*
