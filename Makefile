# Every target sets up .venv by itself; a fresh machine needs python3 (3.11 or newer), git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# A proxy or a user site must not leak into the environment that the lock describes.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONNOUSERSITE := 1
# With bytecode kept, a second run does not compile 350 test modules again: 16 seconds of CPU per worker.
unexport PYTHONDONTWRITEBYTECODE
# One worker more than cores: some tests wait for a process or a lock.
WORKERS ?= $(shell expr $$($(PYTHON) -c 'import os; print(os.cpu_count() or 1)') + 1)
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup

.PHONY: setup demo fleet-demo test test-fast test-clients check format lint types imports bench bench-quick walks screens soak lock clean

setup: $(READY)

$(READY): requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"Sevenfold needs Python 3.11 or newer, and $(PYTHON) is {v[0]}.{v[1]}. Set PYTHON=python3.12, for instance.")'
	@$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "setting up $(VENV) from requirements/dev.lock"
	@$(BIN)/python -m pip install --quiet --require-hashes --no-deps -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY)
	@$(BIN)/sevenfold demo

# Three machines with one memory, and a PostgreSQL server that is killed on the way.
fleet-demo: $(READY)
	@$(BIN)/python examples/fleet.py

test: $(READY)
	$(PYTEST)

# Units and one flow of each kind, in about a minute; `make test` is what must pass.
test-fast: $(READY)
	$(PYTEST) --fast

# Other people's clients against the simulator, offline, in environments that this lane makes and keeps
# (tests/clients/environments.py). ARGS="-k codex" goes to pytest.
test-clients: $(READY)
	PYTHONPATH=tests $(BIN)/python -m clients.lane -q -n $(WORKERS) $(ARGS)

check: format lint types imports test

format: $(READY)
	$(BIN)/ruff format --check .

lint: $(READY)
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python -m benchmarks

bench-quick: $(READY)
	$(BIN)/python -m benchmarks --quick

# The functions and files that six common actions enter; --files lists them.
walks: $(READY)
	PYTHONPATH=tests $(BIN)/python -m architecture.walks

# The pictures of the docs, from a real terminal (needs tmux).
screens: $(READY)
	$(BIN)/python docs/screens/draw_screens.py

soak: $(READY)
	$(BIN)/python -m pytest -q -m soak

lock:
	uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-header -o requirements/dev.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
