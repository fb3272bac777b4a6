# Two commands do everything on a fresh machine: make demo, make test.
.PHONY: demo test storm check bench picture pictures web-pictures lock setup
VENV := .venv
# Tests are rewritten when they are loaded, by every process of a run, unless that is kept.
export PYTHONDONTWRITEBYTECODE =
PY := $(VENV)/bin/python
# For example -k NAME, or --shuffle SEED.
PYTEST_FLAGS ?=
# What failed is run once more, alone, before it fails the run; empty: it fails at once.
LOOK ?= --second-look
# Both tiers of `make test` are one run: how many tests may fail once is counted over both.
export FLAKY_RUN := $(shell date +%s.%N)

FRONTEND := src/bullpen/web/frontend
PAGE := src/bullpen/web/static/index.html

setup: $(VENV)/.ready-for-test $(PAGE)

# The page that `bullpen web` serves, anew when a source of it has changed.
$(PAGE): $(shell find $(FRONTEND) -path $(FRONTEND)/node_modules -prune -o -type f -print)
	@./scripts/page

$(VENV)/.ready-for-demo: requirements/run.txt pyproject.toml scripts/setup
	@./scripts/setup $(VENV) demo

$(VENV)/.ready-for-test: requirements/dev.txt pyproject.toml scripts/setup tests/forge/description/subset.py
	@./scripts/setup $(VENV) test

demo: $(VENV)/.ready-for-demo
	@./scripts/demo $(VENV)/bin/bullpen

check: setup
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/lint-imports
	$(VENV)/bin/mypy & types=$$!; $(PY) -m compileall -q src tests && $(PY) -m tests.rewritten --quick && wait $$types
	$(PY) -m pytest -n 3 -m "not slow and not storm" $(LOOK) $(PYTEST_FLAGS)

test: check
	$(PY) -m tests.rewritten
	$(PY) -m pytest -n 8 --dist worksteal -m "slow and not storm" --durations=10 $(LOOK) $(PYTEST_FLAGS)

storm: setup
	$(PY) -m pytest -n 4 --dist worksteal -m storm --durations=10 $(LOOK) $(PYTEST_FLAGS)

bench: setup
	$(PY) -m bench --write

# docs/picture.svg, from a session that is played anew.
picture: setup
	$(PY) scripts/picture

# build/pictures/*.png: every page of the web view in light, dark and at the width of a phone.
pictures: setup
	@mkdir -p build/pictures
	$(PY) scripts/web-pictures build/pictures

# docs/web-*.png, from a scene that is played anew.
web-pictures: setup
	$(PY) scripts/web-pictures

COMPILE := $(VENV)/bin/pip-compile -q --allow-unsafe --generate-hashes --strip-extras --no-header \
  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host

lock:
	$(VENV)/bin/pip install -q pip-tools
	$(COMPILE) -o requirements/dev.txt pyproject.toml requirements/dev.in
	$(COMPILE) -c requirements/dev.txt -o requirements/run.txt pyproject.toml requirements/run.in
