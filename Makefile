# Everything sets itself up: `make demo` and `make test` need Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests of one file share their fixtures in one worker; files that cost most come first (tests/costs.json).
PYTEST := $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder
# Bytecode is kept whatever the environment says: otherwise every process compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo docs wheel test pytest test-all test-docs test-studies test-spark test-browser test-bounds coverage fuzz \
	check format benchmark clean

demo: $(VENV)/.compiled
	$(BIN)/clickshift shift run --scale quick --output out/demo

# The checks and the suite side by side.
test: $(VENV)/.compiled-dev
	$(MAKE) --jobs 2 check pytest

pytest: $(VENV)/.compiled-dev
	$(PYTEST) -m "not browser and not page and not spark"

# The commands of the how-to pages and the notebooks, as a reader runs them.
test-docs: $(VENV)/.compiled-dev
	$(BIN)/pytest -m page tests/test_docs.py tests/test_examples.py

# Pages and pictures in a real browser, e.g. Debian's Chromium.
test-browser: $(VENV)/.compiled-dev
	$(BIN)/pytest -m browser tests/display tests/experiments/click_vs_ips tests/exploration tests/test_site.py

# Everything, studies whole. Their numbers are written to benchmarks/results/studies.json.
test-all: check
	$(PYTEST) --study full

# Each study at its smallest size, which shows that it still works.
test-studies: $(VENV)/.installed-dev
	$(PYTEST) --study smallest -m study tests

# Branch coverage of the ordinary suite; compiled kernels are left out, for no line of theirs is seen to run.
coverage: $(VENV)/.installed-dev
	$(PYTEST) --cov --cov-report=
	$(BIN)/coverage report --sort=cover

# The kernels with a check of every index, which costs too much elsewhere; they are compiled apart from the others.
BOUNDS := $(addprefix tests/,counts/test_cells.py counts/test_cascade.py counts/test_tails.py counts/test_connectivity.py \
	data/test_sessions.py io/encode learners/test_counting.py learners/test_mixture.py learners/test_position_kernels.py \
	learners/test_priors.py models/test_histories.py models/test_walks.py)
test-bounds: $(VENV)/.installed-dev
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=.pytest_cache/numba-bounds $(BIN)/pytest $(BOUNDS)

# Hostile input for every reader, folder, option and text, bounded in number and time; make fuzz CASES=20000 for a campaign.
CASES ?= 600
FUZZ_SECONDS ?= 90
fuzz: $(VENV)/.compiled-dev
	$(BIN)/python -m tests.fuzz --count $(CASES) --seconds $(FUZZ_SECONDS)

# Warehouses: a real Spark, which needs Java 17 or newer, and Ibis.
test-spark: $(VENV)/.installed-spark
	$(BIN)/pytest tests/counts/warehouse

# The documentation site, into site/. It is read from files, and fetches nothing.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The source distribution and the wheel, into dist/.
wheel: $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt hatchling
	$(BIN)/python -m hatchling build --directory dist

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Every table of docs/benchmarks.md with a peer, in one run: some four hours on two idle cores. Each line is a table by
# itself; the last one writes the README's numbers and figure.
benchmark: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/simulation.py
	$(BIN)/python benchmarks/clax.py --sessions 100000,1000000,10000000 --peer-repeats 3
	$(BIN)/python benchmarks/neural.py
	$(BIN)/python benchmarks/pointwise.py
	$(BIN)/python benchmarks/pointwise_torch.py
	$(BIN)/python benchmarks/ope.py
	$(BIN)/python benchmarks/cmip_library.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/summary.py

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("clickshift needs Python 3.11 or newer; run make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[neural]'
	touch $@

# Compile the kernels that everybody needs, on a small simulated log, so that the first commands answer at once.
$(VENV)/.compiled: $(VENV)/.installed
	@echo "compiling kernels, once after installation"
	@folder=$$(mktemp -d) && log=$$folder/clicks.parquet && trap "rm -rf $$folder" EXIT && { \
	$(BIN)/clickshift simulate --output $$log --sessions 2000 --queries 50 && \
	$(BIN)/clickshift log info $$log && \
	$(BIN)/clickshift compare $$log && \
	$(BIN)/clickshift fit UBM $$log --output $$folder/model && \
	$(BIN)/clickshift evaluate $$folder/model $$log && \
	$(BIN)/clickshift judgments $$folder/model --output $$folder/judgments.qrels && \
	$(BIN)/clickshift propensities $$log --output $$folder/examination.json; } > /dev/null 2> $$folder/messages || { cat $$folder/messages; false; }
	touch $@

# Compile the kernels that only tests need and several files of tests use: the workers of a run would compile them
# twice. Whether the tests of these files pass is the business of the suite, which compiles what one file alone uses,
# such as most JAX programs.
KERNELS := $(addprefix tests/,core/test_unique_rows.py counts/test_cells.py counts/warehouse/test_spark_tails.py \
	experiments/model_selection/test_r2.py io/datasets/test_letor.py io/datasets/test_yandex.py \
	io/encode/test_partitions.py models/test_histories.py models/test_walks.py ope/test_estimators.py \
	ope/test_intervals.py ope/test_optimise.py policies/test_derived.py policies/test_plackett_luce.py)
$(VENV)/.compiled-dev: $(VENV)/.installed-dev
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/.compiled $(VENV)/.typed
	@echo "compiling kernels of the tests, once after installation"
	@PYTEST_ADDOPTS= $(PYTEST) --quiet $(KERNELS) > /dev/null || true
	touch $@

# Fill mypy's cache while one core compiles.
$(VENV)/.typed: $(VENV)/.installed-dev
	@$(BIN)/mypy > /dev/null || true
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@

$(VENV)/.installed-spark: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[spark,ibis]'
	touch $@

clean:
	rm -rf $(VENV) out dist build site
