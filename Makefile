# Every target works on a machine that has only Python 3.11 (or later) and make.
PYTHON ?= python3
BIN := .venv/bin
DEMO := .venv/.demo
READY := .venv/.ready
COMPILED := .venv/.compiled
PIP := $(BIN)/python -m pip install --quiet --constraint constraints.txt
# No bytecode, which pip would not pass on as an option to the environment in which it builds the package.
# ("no" is what turns compilation off: pip takes the value for that of --compile.)
export PIP_NO_COMPILE := no
export PIP_DISABLE_PIP_VERSION_CHECK := 1
EXAMPLES := src/calibrant/examples
# Hundreds of test processes load PyTorch: keep the compiled bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo compiled test test-logs test-numpy test-slow test-all coverage lint check lowest dist bench docs clean

# One environment, grown step by step: the demo needs a tenth of what the tests do. Its packages are
# unpacked on one core while the other compiles the extension.
NEEDS := import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
  more = p["optional-dependencies"]; print(*p["dependencies"], *more["train"], *more["report"], sep="\n")
$(DEMO): pyproject.toml setup.py constraints.txt $(wildcard src/calibrant/_core/_rows*.[ch])
	$(PYTHON) -m venv .venv
	$(PYTHON) -c '$(NEEDS)' > .venv/needs.txt
	$(PIP) --no-deps --editable . & $(PIP) --requirement .venv/needs.txt && wait $$!
	touch $(DEMO)

# constraints.txt names every package, so nothing is left to resolve. The largest are unpacked beside the others,
# which take turns with the package index: in two halves.
# What only `make dist` and the extra `features` need is left out.
LARGE := llvmlite|mypy|numpy|onnxruntime|pandas|playwright|ray|scipy|statsmodels|transformers
$(READY): $(DEMO)
	grep -E '^($(LARGE))==' constraints.txt > .venv/large.txt
	grep -vE '^(#|build==|twine==|efficientnet|($(LARGE))==)' constraints.txt > .venv/others.txt
	awk 'NR % 2' .venv/others.txt > .venv/odd.txt; awk 'NR % 2 == 0' .venv/others.txt > .venv/even.txt
	$(PIP) --no-deps --requirement .venv/large.txt & large=$$!; \
	$(PIP) --no-deps --requirement .venv/odd.txt & odd=$$!; \
	$(PIP) --no-deps --requirement .venv/even.txt && wait $$large && wait $$odd
	$(BIN)/python -m pip check
	touch $(READY)

# Collecting the tests compiles all that they import; each of the processes that run them would do so.
$(COMPILED): $(READY)
	-$(BIN)/python -m pytest -q --collect-only > /dev/null
	touch $(COMPILED)

compiled: $(COMPILED)  ## the development environment, with the bytecode of what the tests import

demo: $(DEMO)  ## find the best loss and calibrator on an embedded task, and write two reports: a minute or two
	@mkdir -p demo
	$(BIN)/calibrant report $(EXAMPLES)/cross_entropy.npz $(EXAMPLES)/label_smoothing.npz -o demo/report.html > demo/report.txt 2>&1 & \
	$(BIN)/calibrant study run quick --out demo/results && wait $$!
	@echo
	$(BIN)/calibrant measure $(EXAMPLES)/cross_entropy.npz
	@echo
	$(BIN)/calibrant report demo/results --study quick -o demo/study.html
	@tail -n 3 demo/report.txt

# One process runs a file as a whole; tests/conftest.py says in which order, and what holds for slow tests.
PYTEST := $(BIN)/python -m pytest -q -n auto --dist loadscope

test: $(COMPILED)  ## the tests but the slow ones
	$(PYTEST) -m "not slow"

# The rows of scores are swept by compiled kernels where a compiler was found; NumPy is their reference.
NUMPY_TESTS := tests/test_predictions.py tests/test_metric_oracles.py tests/test_streaming.py tests/test_hostile.py
test-numpy: $(COMPILED)  ## the tests of rows, oracles, streams and bad input on the NumPy kernels
	CALIBRANT_KERNELS=numpy $(PYTEST) -m "not slow" $(NUMPY_TESTS)

test-slow: $(COMPILED)  ## the slow tests alone: simulations, killed processes, clusters
	$(PYTEST) -m slow

# Each tool in an environment of its own: their requirements differ from ours.
test-logs: $(COMPILED)  ## the tests of evaluation logs, on logs that the current Inspect and lm-evaluation-harness write
	rm -rf build/logs
	set -e; for tool in inspect-ai lm-eval; do \
	  $(PYTHON) -m venv build/$$tool; \
	  build/$$tool/bin/python -m pip install --quiet --no-compile $$tool; \
	  build/$$tool/bin/python tests/make_logs.py build/logs; \
	done
	CALIBRANT_LOGS=build/logs $(PYTEST) tests/test_logs.py

test-all: test test-numpy test-slow  ## every test

coverage: $(COMPILED)  ## the tests but the slow ones, with the coverage by branch; fails below the floor in pyproject.toml
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -n auto --dist loadscope -m "not slow"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

lint: $(READY)  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

check: lint test-all  ## lint and all tests: warnings are errors, doctests run

lowest:  ## the core tests with the lowest supported versions of the dependencies, in a separate environment
	$(PYTHON) tests/lowest.py

dist: $(READY)  ## the source archive and a wheel, into dist/, with their description checked
	$(PIP) build twine
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/twine check --strict dist/*

# On an idle machine. A script that fails leaves its table as it was; the others run all the same.
BENCH := metrics calibrators losses training study segmentation cluster "peers speed" missed
bench: $(READY)  ## speed ratios against floors and other packages; rewrites docs/benchmarks.md and docs/comparison.md
	@failed=; for each in $(BENCH); do \
	  set -- $$each; script=$$1; shift; \
	  echo "$$script $$*"; $(BIN)/python benchmarks/$$script.py "$$@" || failed="$$failed $$script"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

docs: $(READY)  ## the documentation site, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf .venv site demo dist .coverage .pytest_cache .mypy_cache .ruff_cache
