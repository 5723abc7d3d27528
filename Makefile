# Two commands: `make demo` and `make test`. Both set up everything they need in .venv first.
PYTHON ?= python3
BIN := .venv/bin
DATA ?= $(if $(CROWDWISE_DATA),$(CROWDWISE_DATA),$(wildcard ../shared/data))

.PHONY: demo test fast-tests test-slow test-elsewhere test-oldest lint format docs dist constraints clean browser audit

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

# The site in site/, with what in README.md and docs/ follows from the code and from the records in benchmarks/results.
docs: .venv/.installed-dev
	$(BIN)/python docs/generated.py --write
	$(BIN)/python benchmarks/results_table.py --write
	$(BIN)/python docs/notebooks.py --write
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "make: open site/index.html"

# Source distribution and wheel in dist/.
dist: .venv/.installed-dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist

# constraints.txt for all extras: what is pinned stays. `make constraints UPGRADE=--upgrade` takes the newest of everything but torch.
constraints:
	$(PYTHON) .ci/constraints.py $(UPGRADE)

# A real browser tries the report; where it cannot be installed (no apt, no rights, no network) those tests are skipped.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null \
		|| (command -v apt-get >/dev/null && apt-get install --yes --quiet=2 chromium >/dev/null 2>&1) \
		|| echo "make: Chromium is missing and cannot be installed here: the tests of the report in a browser are SKIPPED"

# Bytecode is kept, as tests start many processes.
TEST := CROWDWISE_DATA=$(DATA) OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

# Checks of the source, which keep one core busy, beside the tests, which keep two.
test: .venv/.installed-dev browser
	@$(MAKE) --no-print-directory --jobs 2 lint fast-tests

fast-tests: .venv/.installed-dev
	$(TEST) -m "not slow and not gpu" -n 2 --dist loadscope --no-loadscope-reorder

test-slow: lint browser
	$(TEST) -m "not gpu" -n 2 --dist loadscope --no-loadscope-reorder --durations 30

# What is computed, tested as on another processor: sums are taken in another order there.
test-elsewhere: .venv/.installed-dev
	CROWDWISE_DATA=$(DATA) $(BIN)/python .ci/elsewhere.py

# The fast tests with the oldest versions that pyproject.toml allows, in an environment of its own. It needs uv, and says what it could not test.
test-oldest:
	CROWDWISE_DATA=$(DATA) $(PYTHON) .ci/oldest.py

# Known vulnerabilities of the pinned versions. It says what it could reach: nothing found is only said where everything was looked up.
audit: .venv/.installed
	@$(BIN)/python .ci/audit.py

clean:
	rm -rf .venv .venv-oldest build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
