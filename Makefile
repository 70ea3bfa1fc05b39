# Everything runs inside .venv, made and filled on first use; the stamp files say what has been installed.
PYTHON ?= python3
MINUTES ?= 10
SEED ?= 0
VENV := .venv
BIN := $(VENV)/bin
# tests whose models are small enough for kernels that are not compiled
COVERED ?= tests/test_conformance.py

# byte code is kept: tests start some hundred processes, each of which would translate all modules of a fresh copy again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test fuzz check-memory check-deployment coverage lint bench wheel clean

$(VENV)/.base: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[images]"
	touch $@

$(VENV)/.dev: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --editable ".[images,dev]"
	touch $@

$(VENV)/.bench: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --editable ".[images,bench]" || \
	  echo "some peers could not be installed; they are left out of the comparison"
	touch $@

demo: $(VENV)/.base  ## solve a real stereo pair and write demo.png
	$(BIN)/tightmap demo --output demo.png

test: $(VENV)/.dev  ## lint, types, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist worksteal

fuzz: $(VENV)/.dev  ## random models and files, all methods, against brute force; failures go to fuzz-failures/
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --seed $(SEED) --out fuzz-failures

coverage: $(VENV)/.dev  ## line coverage of the kernels, which run as plain Python for it
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m coverage run -m pytest -p no:xdist $(COVERED)
	$(BIN)/python tools/kernel_coverage.py

lint: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy

MODELS ?= 48
check-memory: $(VENV)/.dev  ## every method on models of every shape with index and heap checks; MODELS=n random ones
	$(BIN)/python tests/memory/check.py --models $(MODELS)

check-deployment:  ## build the container of deploy/ and solve with it; without a container engine, in a fresh environment
	$(PYTHON) tools/check_deployment.py

bench: $(VENV)/.bench  ## the short benchmark, with a report page
	$(BIN)/tightmap bench smoke --report bench.html

wheel: $(VENV)/.base  ## a wheel for this platform with all kernels compiled, in dist/; METHOD="trws admm" for these only
	$(BIN)/python -m pip install --quiet wheel
	$(BIN)/python tools/build_wheel.py --out dist $(addprefix --method ,$(METHOD))

clean:
	rm -rf $(VENV) .coverage demo.png bench.html fuzz-failures
