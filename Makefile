PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test lint bench clean

run: $(VENV)/ready
	$(BIN)/shoestring run flights

test: $(VENV)/ready lint
	$(BIN)/pytest

lint: $(VENV)/ready
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

bench: $(VENV)/ready
	for claim in bench/[a-z]*.py; do $(BIN)/python $$claim || exit 1; done

# torch goes first and by its exact version: a range would fetch a CUDA build of several gigabytes.
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip install --quiet -c constraints.txt -e '.[kfp,cluster,train,gpu,flights,dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info
