# Two commands: `make demo` and `make test`. Both set up everything they need in .venv first.
PYTHON ?= python3
BIN := .venv/bin
DATA ?= $(if $(CROWDWISE_DATA),$(CROWDWISE_DATA),$(wildcard ../shared/data))

.PHONY: demo test test-slow lint format clean

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

.venv/.installed-dev: .venv/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: .venv/.installed
	$(BIN)/crowdwise demo

lint: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	CROWDWISE_DATA=$(DATA) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not gpu" -n 2 --dist loadfile

test-slow: lint
	CROWDWISE_DATA=$(DATA) $(BIN)/python -m pytest -m "not gpu"

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
