PYTHON ?= python3
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
VENV := .venv
RUN := $(VENV)/bin/python
INSTALL := $(VENV)/bin/uv pip install --quiet --python $(RUN)
# Each worker takes up to 3 GiB of memory, and a run of tests in order, which share models.
WORKERS ?= 2
PYTEST := $(RUN) -m pytest -n $(WORKERS) --dist worksteal
JAX_TESTS := tests/training/engine/jax
export TF_CPP_MIN_LOG_LEVEL ?= 3
# Containers often set it: then every process compiles TensorFlow's modules anew, which takes 6 seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quickstart test lint test-all test-jax test-jax-all test-slow test-fuzz test-kills test-changes
.PHONY: test-runtimes test-cluster test-hugging-face test-torch test-delegates test-mutants legacy tpu docs clean

help: ## Name the commands.
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

quickstart: $(VENV)/installed ## Train, evaluate, export and verify a small model on real digits.
	@$(RUN) examples/quickstart.py

# Tests trace many graphs and run each a few times: TensorFlow's passes over them take longer than they save.
test: export GRAPH_PASSES ?= off
test: $(VENV)/installed lint ## Check everything that a change is likely to break.
	$(PYTEST) -m "not slow and not long" --ignore=$(JAX_TESTS)

lint: $(VENV)/installed ## Ruff, which room may import which, and mypy on the four packages.
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(VENV)/bin/lint-imports --no-logo --no-cache
	$(RUN) -m mypy

test-all: $(VENV)/installed lint ## And what takes longer: clusters, kills, every kind of model in every export.
	$(PYTEST) -m "not slow" --ignore=$(JAX_TESTS)

# What JAX compiles for one worker is there for the other, and for the next time.
test-jax: export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/$(VENV)/compiled
test-jax: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0
test-jax: export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES ?= -1
test-jax: $(VENV)/jax-installed ## The library's tests on Keras's JAX backend, and the JAX engine's.
	KERAS_BACKEND=jax $(PYTEST) -m "not slow" tests/keras_vit
	$(PYTEST) -m "not slow and not long" $(JAX_TESTS)

test-jax-all: test-jax ## And the JAX engine's kills, processes and meshes, which compile for long.
	$(PYTEST) -m "long and not slow" $(JAX_TESTS) \
		tests/benchmarks/test_commands_and_processes.py::test_without_tensorflow_jax_measures_this_package

test-runtimes: $(VENV)/runtimes-installed ## Exports in a real Chromium, ONNX Runtime, OpenVINO and MediaPipe, which it installs.
	$(PYTEST) -m "not slow" tests/export/web tests/export/onnx tests/export/verification/test_runtimes.py \
		tests/export/tflite/test_cpu_inference_function.py tests/export/tflite/test_delegates.py \
		tests/training/evaluators/test_nearest_neighbors.py tests/training/commands/test_similar.py \
		tests/export/test_variants.py::test_every_kind_of_model_is_right_in_every_runtime

test-cluster: $(VENV)/cluster-installed ## Predictions on a Ray cluster, a node of which is killed; Apache Beam; loggers; installs them.
	$(RUN) -m pytest tests/training/prediction/test_cluster.py
	@$(RUN) -m tests.other_environments beam
	@$(RUN) -m tests.other_environments loggers

test-hugging-face: $(VENV)/installed ## Folders in transformers and timm, with PyTorch, which it installs.
	@$(RUN) -m tests.other_environments hugging_face

test-torch: $(VENV)/jax-installed ## The library's tests on Keras's torch backend, and model.fit on grain and datasets; installs them.
	@$(RUN) -m tests.other_environments torch

test-kills: $(VENV)/jax-installed ## Thirty kills at random moments, both engines, one and two processes.
	$(RUN) -m pytest -m slow $(JAX_TESTS) tests/training/loop/test_resume.py tests/training/engine/tensorflow/test_equivalence_and_workers.py

test-changes: $(VENV)/jax-installed ## Kills and failures at every change of a file, in runs and exports: long.
	$(PYTEST) -m slow tests/fuzz/test_every_change.py

test-slow: $(VENV)/installed ## Longest checks: ten kill points, a full quickstart.
	$(RUN) -m pytest -m slow --ignore=tests/fuzz/test_every_change.py

docs: $(VENV)/docs-installed ## The site in build/site; a broken link or a missing docstring fails.
	$(RUN) -m pytest tests/test_public_interface.py
	@mkdir -p build
	$(VENV)/bin/zensical build --clean --strict 2>&1 | tee build/docs.log
	@! grep -q '^griffe' build/docs.log || (echo "The docstrings above differ from their signatures." && exit 1)

test-fuzz: $(VENV)/installed ## Mutations of every file that is read, odd configs, failing disks.
	FUZZ=$${FUZZ:-2} FUZZ_SEED=$${FUZZ_SEED:-$$RANDOM} $(RUN) -m pytest -m "not slow" tests/fuzz

test-mutants: $(VENV)/mutants-installed ## Change a sample of places, and name the changes that no test notices.
	MUTANTS_SEED=$${MUTANTS_SEED:-$$RANDOM} WORKERS=$(WORKERS) $(RUN) -m tests.mutants

legacy: $(VENV)/installed ## Fine-tune an exported module under TF 2.15 and tensorflow-addons.
	$(RUN) -m tests.legacy

test-delegates: $(VENV)/installed ## Every kind of model on LiteRT's GPU delegate, on a Vulkan in software.
	@$(RUN) -m tests.other_environments gpu

tpu: $(VENV)/installed ## Look for a TPU from TensorFlow's last environment for TPUs.
	$(RUN) -m tests.other_environments tpu

$(VENV)/installed: requirements.lock setup.py
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 10) <= sys.version_info[:2] <= (3, 13) else "keras-vit needs Python 3.10 to 3.13, this is %d.%d: make PYTHON=/path/to/python3.11" % sys.version_info[:2])'
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@echo "Installing the packages of requirements.lock into $(VENV) (once, half a minute)"
	@$(RUN) -m pip install --quiet --disable-pip-version-check $$(grep ^uv= requirements.lock)
	@$(INSTALL) -r requirements.lock
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/jax-installed: $(VENV)/installed requirements-jax.lock
	@$(INSTALL) -r requirements-jax.lock
	@touch $@

$(VENV)/runtimes-installed: $(VENV)/installed requirements-runtimes.lock
	@$(INSTALL) -r requirements-runtimes.lock
	@command -v chromium google-chrome >/dev/null || apt-get install -qq chromium \
		|| $(RUN) -m playwright install --with-deps chromium \
		|| echo "Skipped: what needs a browser, for no Chromium can be installed here."
	@touch $@

$(VENV)/cluster-installed: $(VENV)/installed requirements-cluster.lock
	@$(INSTALL) -r requirements-cluster.lock
	@touch $@

$(VENV)/mutants-installed: $(VENV)/installed requirements-mutants.lock
	@$(INSTALL) -r requirements-mutants.lock
	@touch $@

$(VENV)/docs-installed: $(VENV)/installed requirements-docs.lock
	@$(INSTALL) -r requirements-docs.lock
	@touch $@

clean: ## Remove environments and runs.
	rm -rf $(VENV) .venv-* runs *.egg-info
