PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
REGISTRY ?= ghcr.io/shoestring-ml
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

# PyTorch's own index has builds without CUDA, of 0.2 GB instead of 3 GB. Where there is an NVIDIA driver, the
# default index's build for Linux is the right one: it is with CUDA.
TORCH_INDEX ?= $(if $(shell nvidia-smi -L >/dev/null 2>&1 && echo driver),,https://download.pytorch.org/whl/cpu)

# Worker processes of the tests. A third of their time is waiting, so two cores take three.
WORKERS ?= 3
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist worksteal

.PHONY: reference run test test-all tests bytecode lint bench images image-gpu kind kind-smoke kind-nightly kubeflow cluster \
	cluster-down clean

run: $(VENV)/ready
	$(BIN)/shoestring run flights

# Lint, types and the quick tests: what to run before a commit.
test: $(VENV)/ready lint bytecode
	$(PYTEST)

# The same with the slow tests, and twice as many examples of each property.
test-all: lint tests

tests: $(VENV)/ready bytecode
	$(PYTEST) -m "not kind and not kubeflow" --hypothesis-profile ci --durations 25

# The tests start some hundred processes. Each would compile the package where PYTHONDONTWRITEBYTECODE is set.
bytecode: $(VENV)/ready
	$(BIN)/python -m compileall -q -x cli/template shoestring components pipelines

lint: $(VENV)/ready
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

# docs/attempt-ends.md, docs/cli.md and docs/components.md, from the code.
reference: $(VENV)/ready
	$(BIN)/python docs/reference.py

bench: $(VENV)/ready
	for claim in bench/[a-z]*.py; do $(BIN)/python $$claim || exit 1; done

# PYTHON_IMAGE=python:3.11-slim@sha256:DIGEST: the base image by its digest, so that it stays the same.
BUILD := docker build --file images/Dockerfile $(if $(PYTHON_IMAGE),--build-arg PYTHON=$(PYTHON_IMAGE))

images:
	$(BUILD) --target base --tag $(REGISTRY)/shoestring-base:$(VERSION) .
	$(BUILD) --target train --tag $(REGISTRY)/shoestring-train:$(VERSION) .

# PyPI's torch for Linux is the one with CUDA.
image-gpu:
	$(BUILD) --target train --build-arg TORCH_INDEX= --build-arg EXTRAS="train gpu" \
		--tag $(REGISTRY)/shoestring-train-gpu:$(VERSION) .

# In six minutes: the main job, a killed and resumed pod, and the end of a silent one.
kind-smoke: $(VENV)/ready images
	$(BIN)/pytest -m smoke -rfER --durations 10 tests/kind

# It fails after 25 minutes, with the summary of the tests until then and without the cluster.
kind: $(VENV)/ready images
	timeout --foreground --signal INT --kill-after 3m 25m \
		$(BIN)/pytest -m "kind and not nightly" -rfER --durations 25 tests/kind

# With the scenarios that take longer.
kind-nightly: $(VENV)/ready images
	$(BIN)/pytest -m kind -rfER tests/kind

# The same scenarios on Kubeflow Pipelines, in a kind cluster of their own: docs/kubeflow.md.
kubeflow: $(VENV)/ready images
	tests/kubeflow/run_on_kind.sh $(BIN)/python

# The cluster of the kind tests, to try Shoestring on: docs/cluster.md.
cluster: $(VENV)/ready images
	$(BIN)/python tests/kind/cluster_setup.py up

cluster-down: $(VENV)/ready
	$(BIN)/python tests/kind/cluster_setup.py down

# torch goes first, by its exact version and from its own index, which is asked for nothing else.
$(VENV)/ready: pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-deps $$($(BIN)/python .ci/torch-index "$(TORCH_INDEX)") \
		"$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip install --quiet -c constraints.txt -e '.[kfp,cluster,train,gpu,flights,kjv,texts,dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info
