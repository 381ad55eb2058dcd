# `make demo` and `make test` work in a fresh clone: they make .venv and install pinned packages into it first.
# The stamps in .venv keep a second run from installing again.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is installed is compiled when it is first imported: most of it never is.
PIP := $(BIN)/pip install --quiet --no-compile --constraint requirements/constraints.txt
PACKAGES := -p coilpack.schemas -p coilpack.runtime -p coilpack.cli -p coilpack.compiler
PINS := pyproject.toml requirements/constraints.txt

# Tests start hundreds of processes; where the environment forbids it, each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test lint types generate check-generated coverage clean
.DELETE_ON_ERROR:

help:
	@echo "make demo      compile and run the main sample (samples/minilm)"
	@echo "make test      run the tests"
	@echo "make lint      check style, formatting and the direction of imports"
	@echo "make types     check types"
	@echo "make generate  write the Python code of the schemas"
	@echo "make coverage  write docs/coverage.md"
	@echo "make clean     remove .venv and build"

$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "coilpack needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	touch $@

# torch comes first and alone: the pinned build decides what everything after it resolves to.
$(VENV)/has-torch: $(VENV)/made $(PINS)
	$(PIP) torch triton
	touch $@

$(VENV)/ready-to-compile: $(VENV)/has-torch
	$(PIP) --editable '.[compile,samples]'
	touch $@

$(VENV)/ready-to-develop: $(VENV)/has-torch
	$(PIP) --editable '.[compile,dev,iree,samples]'
	touch $(VENV)/ready-to-compile $@

demo: $(VENV)/ready-to-compile
	$(BIN)/python samples/minilm/demo.py

test: $(VENV)/ready-to-develop
	$(BIN)/pytest -n 2 --dist worksteal --durations 10 tests

lint: $(VENV)/ready-to-develop
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/ready-to-develop
	$(BIN)/mypy $(PACKAGES)

generate: $(VENV)/ready-to-develop
	$(BIN)/python schemas/generate.py

check-generated: $(VENV)/ready-to-develop
	$(BIN)/python schemas/generate.py --check

coverage: $(VENV)/ready-to-develop
	$(BIN)/python tests/compile/coverage_page.py --write

clean:
	rm -rf $(VENV) build
