# Every target works on a machine that has only Python 3.11 (or later) and make.
PYTHON ?= python3
BIN := .venv/bin
DEMO := .venv/.demo
READY := .venv/.ready
# Hundreds of test processes load PyTorch: keep the compiled bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-all lint check lowest bench docs clean

# One environment, grown step by step: the demo needs a tenth of what the tests do.
$(DEMO): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[train,report]'
	touch $(DEMO)

$(READY): $(DEMO)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev,docs]'
	touch $(READY)

demo: $(DEMO)  ## find the best loss and calibrator on an embedded task, and write two reports: a minute or two
	$(BIN)/calibrant study run quick --out demo/results
	@echo
	$(BIN)/calibrant measure src/calibrant/examples/cross_entropy.npz
	@echo
	@mkdir -p demo
	$(BIN)/calibrant report demo/results --study quick -o demo/study.html
	$(BIN)/calibrant report src/calibrant/examples/cross_entropy.npz src/calibrant/examples/label_smoothing.npz -o demo/report.html

# Tests that share something costly, a browser or a finished study, are marked as one group.
PYTEST := $(BIN)/python -m pytest -q -n auto --dist loadgroup

test: $(READY)  ## the tests but the slow ones
	$(PYTEST) -m "not slow"

test-slow: $(READY)  ## the slow tests alone: simulations, killed processes, clusters
	$(PYTEST) -m slow

test-all: test test-slow  ## every test

lint: $(READY)  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

check: lint test-all  ## lint and all tests: warnings are errors, doctests run

lowest:  ## the core tests with the lowest supported versions of the dependencies, in a separate environment
	$(PYTHON) tests/lowest.py

bench: $(READY)  ## speed ratios against floors and other packages; rewrites docs/benchmarks.md and docs/comparison.md
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/python benchmarks/calibrators.py
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/study.py
	$(BIN)/python benchmarks/peers.py

docs: $(READY)  ## the documentation site, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf .venv site demo .pytest_cache .mypy_cache .ruff_cache
