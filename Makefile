# Two commands: `make demo` and `make test`. Each makes .venv from a lock file on its first call.

PYTHON ?=
ARGS ?=
DEMO_ARGS ?=
WORKERS ?= 2
NO_BROWSER ?=
UPGRADE ?=

HOST_PYTHON := $(or $(PYTHON),$(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell command -v $(name)))))
VENV_PYTHON := .venv/bin/python
TESTS := $(if $(NO_BROWSER),not gpu and not browser,not gpu)
PYTHON_PATHS := $(wildcard services webapp tests scripts benchmarks manage.py)

# Where bytecode is turned off, `import torch` takes 6 s instead of 2 s.
export PYTHONDONTWRITEBYTECODE =
export PYTHON

.PHONY: help demo up test test-gpu lint format docs lock clean python all dev

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: all ## optimise a sample op, then leave the web running (DEMO_ARGS=--once: exit after the run)
	@$(VENV_PYTHON) manage.py demo $(DEMO_ARGS)

up: all ## start broker, web, workers and beat in this terminal
	@$(VENV_PYTHON) manage.py up

test: dev ## the whole suite (ARGS="-k name", WORKERS=1, NO_BROWSER=1)
	@$(VENV_PYTHON) -m pytest -m "$(TESTS)" -n $(WORKERS) --dist loadgroup $(ARGS)

test-gpu: dev ## the tests that need an NVIDIA GPU
	@$(VENV_PYTHON) -m pytest -m gpu $(ARGS)

lint: dev ## ruff, mypy, import borders, templates, migrations, settings
	@$(VENV_PYTHON) scripts/lint.py

format: dev ## let ruff and djade mend and format the code and the templates
	@$(VENV_PYTHON) -m ruff format $(PYTHON_PATHS)
	@find webapp -path '*/templates/*' -name '*.html' | xargs .venv/bin/djade --target-version 5.2 || [ $$? = 123 ]
	@$(VENV_PYTHON) -m ruff check --fix $(PYTHON_PATHS)

docs: dev ## bring the table of settings in docs/operations.md up to date
	@$(VENV_PYTHON) scripts/settings_table.py

lock: python ## write requirements/*.txt from pyproject.toml (UPGRADE=1: newest allowed versions)
	@$(HOST_PYTHON) scripts/lock.py $(if $(UPGRADE),--upgrade)

clean: ## remove .venv and caches; the data in var/ stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build *.egg-info
	find $(PYTHON_PATHS) -name __pycache__ -prune -exec rm -rf {} +

all: python
	@$(HOST_PYTHON) scripts/bootstrap.py all

dev: python
	@$(HOST_PYTHON) scripts/bootstrap.py dev $(if $(NO_BROWSER),,--browser)

python:
	@"$(HOST_PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null || { \
	  echo "warpsmith: Python 3.11, 3.12 or 3.13 is needed; found $(or $(HOST_PYTHON),none)." \
	  "Name one: make demo PYTHON=/path/to/python3.11" >&2; exit 1; }
