# Two commands do everything on a fresh machine: make demo, make test.
.PHONY: demo test check bench lock setup
VENV := .venv
# Tests are rewritten when they are loaded, by every process of a run, unless that is kept.
export PYTHONDONTWRITEBYTECODE =
PY := $(VENV)/bin/python

setup: $(VENV)/.ready

$(VENV)/.ready: requirements/dev.txt pyproject.toml scripts/setup
	./scripts/setup $(VENV)

demo: setup
	./scripts/demo $(VENV)/bin/bullpen

check: setup
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PY) -m compileall -q src tests
	$(PY) -m pytest -n 2 -m "not slow"

test: check
	$(PY) -m pytest -n 4 --dist worksteal -m slow --durations=120 --durations-min=3

bench: setup
	$(PY) -m bench

lock:
	$(VENV)/bin/pip install -q pip-tools
	$(VENV)/bin/pip-compile -q --allow-unsafe --generate-hashes --strip-extras --no-header \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  -o requirements/dev.txt pyproject.toml requirements/dev.in
