# `make train` and `make test` do all their own set-up: a .venv beside this file, filled once and reused while
# pyproject.toml and constraints.txt stay as they are.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# One small model on two cores: spinning OpenMP threads would cost more than they give.
export OMP_WAIT_POLICY ?= PASSIVE
export TOKENIZERS_PARALLELISM ?= false
export HF_HUB_OFFLINE ?= 1
export TRL_EXPERIMENTAL_SILENCE ?= 1
export NO_MKDOCS_2_WARNING ?= 1

.PHONY: train test lint docs browser nightly clean
train: $(READY)
	$(BIN)/gear train $(ARGS)

test: $(READY) lint docs browser
	$(BIN)/python -m pytest $(ARGS)

# The report's tests drive a real browser. CI installs one; elsewhere they run if there is one, and say so if not.
browser:
ifneq ($(CI),)
	command -v chromedriver >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium chromium-driver fonts-dejavu-core >/dev/null; }
endif

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks examples docs
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

# The site, in build/site. Any warning is an error: a broken link, a page outside the navigation, a docstring that cannot be read.
docs: $(READY)
	$(BIN)/mkdocs build --strict --quiet

# Every method to its end on the embedded task: about a minute and a half each.
nightly: $(READY)
	set -e; for m in $$($(BIN)/gear methods --json | $(BIN)/python -c 'import json,sys; print(*[m["name"] for m in json.load(sys.stdin)])'); do \
	  $(BIN)/gear train --credit $$m --out runs/nightly/$$m; done

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "gear-rl needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[trl,math,report,dev]'
	$(BIN)/python -m pip install -q --no-deps bfcl-eval==2025.8.6  # the official judge; its own pins would downgrade numpy
	touch $@
