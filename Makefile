# Two commands: `make demo` and `make test`. Both set up everything they need in .venv first.
PYTHON ?= python3
BIN := .venv/bin
DATA ?= $(if $(CROWDWISE_DATA),$(CROWDWISE_DATA),$(wildcard ../shared/data))

.PHONY: demo test test-slow lint format docs clean browser audit

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[report]"
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

# What in README.md and docs/ follows from the code and from the records in benchmarks/results.
docs: .venv/.installed
	$(BIN)/python docs/generated.py --write
	$(BIN)/python benchmarks/results_table.py --write

# A real browser tries the report; where it cannot be installed (no apt, no rights, no network) those tests are skipped.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null \
		|| (command -v apt-get >/dev/null && apt-get install --yes --quiet=2 chromium >/dev/null 2>&1) \
		|| echo "make: Chromium is missing and cannot be installed here: the tests of the report in a browser are SKIPPED"

# Bytecode is kept, as tests start many processes.
TEST := CROWDWISE_DATA=$(DATA) OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

test: lint browser
	$(TEST) -m "not slow and not gpu" -n 2 --dist loadfile --no-loadscope-reorder

test-slow: lint browser
	$(TEST) -m "not gpu" -n 2 --dist loadgroup --no-loadscope-reorder --durations 30

# Known vulnerabilities of the pinned versions. It needs the package index's database: where that cannot be reached, it fails.
audit: .venv/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt pip-audit \
		|| (echo "make: pip-audit cannot be installed here: nothing was audited"; exit 1)
	@$(BIN)/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt \
		|| (echo "make: a pinned version has a known vulnerability, or the database cannot be reached (see above)"; exit 1)

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
